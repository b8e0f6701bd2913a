"""The Lua scripts: one per atomic operation, each assembled from the files that it needs.

Before its own file, a lease script has lua/leases.lua, a job script lua/record.lua, lua/jobs.lua
and lua/holders.lua, and a schedule script lua/runs.lua and lua/schedules.lua as well.

A server that has reached its maxmemory rejects every command that may need memory. But it continues
a script that has begun with a deletion, in all versions (see EVAL in the documentation of Redis).
So scripts that write begin by deleting nothing: on a full server workers renew, claim, settle and
prune, and locks are acquired and released. The exception is `insert`, because new jobs fill the
server.
"""

from __future__ import annotations

from hashlib import sha1
from importlib.resources import files
from typing import Final

from tenure.core.bounds import ASIDE_FOR
from tenure.core.durations import micros
from tenure.core.jobs.records import COUNT_MAX, SOON
from tenure.core.jobs.replicas import CANCELS_MAX, RESTARTS_MAX
from tenure.core.schedules.records import BLOCKING_MAX, DECISIONS_MAX, DECLARED_ANEW_AFTER

__all__ = ["SCRIPTS", "Script"]

_FOLDER = files("tenure.stores.redis") / "lua"

_LEASES = ("acquire", "find", "mark", "members", "prune", "release", "renew")
_JOBS = (
    *("beat", "orphans", "replicas", "insert", "claim", "aside", "settle", "note", "cancel"),
    *("requeue", "delete", "get", "candidates", "pick", "queues", "counts", "tagged", "stranded"),
    *("pause", "prune_jobs", "stats"),
)
_SCHEDULES = ("commit", "declare", "read")

# A server that rejects all writes, for example because it cannot save to disk, still runs these.
_READ_ONLY = frozenset(
    (
        *("find", "members", "replicas", "get", "candidates", "pick", "queues", "counts"),
        *("tagged", "stranded", "read", "rights", "stats"),
    )
)
_REFUSED_WHEN_FULL = frozenset(("insert",))

# The preludes of the scripts of leases, jobs and schedules.
_REMOVE_NO_LEASE = "redis.call('ZREM', KEYS[1], '\\0')\n"
_REMOVE_NO_JOB = "redis.call('HDEL', KEYS[1], '\\0')\n"
_CONSTANTS = f"""\
local SOON, ASIDE_FOR = {micros(SOON)}, {micros(ASIDE_FOR)}
local CANCELS_MAX, RESTARTS_MAX = {CANCELS_MAX}, {RESTARTS_MAX}
"""
_SCHEDULE_CONSTANTS = f"""\
local DECISIONS_MAX, BLOCKING_MAX = {DECISIONS_MAX}, {BLOCKING_MAX}
local COUNT_MAX, DECLARED_ANEW_AFTER = {COUNT_MAX}, {micros(DECLARED_ANEW_AFTER)}
"""
_LEASE_FILES = ("soundness", "leases")
_JOB_FILES = ("soundness", "record", "jobs", "holders")
_CROWDS = "-- Insert crowd.lua here.\n"


def _read(name: str) -> str:
    return (_FOLDER / f"{name}.lua").read_text(encoding="utf-8")


class Script:
    """A script and the name under which servers keep it."""

    def __init__(
        self, name: str, removal: str, constants: str = "", before: tuple[str, ...] = ()
    ) -> None:
        self.name = name
        passes_when_full = name not in _READ_ONLY | _REFUSED_WHEN_FULL
        text = "".join([constants, *map(_read, before), _read(name)])
        # Inserted late, because a plain lock does not need them; see lua/leases.lua.
        text = text.replace(_CROWDS, _read("crowd"))
        self.text = ((removal if passes_when_full else "") + text).encode()
        self.sha = sha1(self.text, usedforsecurity=False).hexdigest().encode()


SCRIPTS: Final = {
    script.name: script
    for script in (
        *(Script(name, _REMOVE_NO_LEASE, before=_LEASE_FILES) for name in _LEASES),
        Script("discard", _REMOVE_NO_LEASE),
        *(Script(name, _REMOVE_NO_JOB, _CONSTANTS, _JOB_FILES) for name in _JOBS),
        *(
            Script(
                name,
                _REMOVE_NO_JOB,
                _CONSTANTS + _SCHEDULE_CONSTANTS,
                (*_JOB_FILES, "runs", "schedules"),
            )
            for name in _SCHEDULES
        ),
        Script("sleep", _REMOVE_NO_JOB),
        Script("rights", ""),
    )
}
