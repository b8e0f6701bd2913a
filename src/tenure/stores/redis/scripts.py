"""The Lua scripts: one per atomic operation, put together as lua/prelude.lua describes.

A job script is lua/jobs.lua, what goes with that, and a file of its own, after the constants they
share with us. One of schedules has lua/runs.lua and lua/schedules.lua between the two.

A server that has reached its maxmemory refuses every command that may take memory. But it lets a
script go on that has begun with a removal, in all versions (see EVAL in the documentation of
Redis). So scripts that write begin with a removal of nothing: on a full server workers renew,
claim, settle and prune, and locks are taken and given back. The exception is `insert`, because new
jobs are what fills a server.
"""

from __future__ import annotations

from hashlib import sha1
from importlib.resources import files

from tenure.core.durations import micros
from tenure.core.records import COUNT_MAX, SOON
from tenure.core.schedules.records import BLOCKING_MAX, DECISIONS_MAX, DECLARED_ANEW_AFTER
from tenure.core.soundness import ASIDE_FOR

__all__ = [
    "ACQUIRE",
    "ASIDE",
    "BEAT",
    "CANCEL",
    "CANDIDATES",
    "CLAIM",
    "COMMIT",
    "COUNTS",
    "DECISIONS",
    "DECLARE",
    "DELETE",
    "DISCARD",
    "GET",
    "INSERT",
    "JOIN",
    "LIST",
    "LOOK",
    "MARK",
    "MEMBERS",
    "NOTE",
    "ORPHANS",
    "PAUSE",
    "PICK",
    "PRUNE",
    "PRUNE_JOBS",
    "QUEUES",
    "RELEASE",
    "RENEW",
    "REPLICAS",
    "REQUEUE",
    "RIGHTS",
    "SETTLE",
    "SLEEP",
    "STRANDED",
    "TAGGED",
    "Script",
]

_FOLDER = files("tenure.stores.redis") / "lua"

# A server that refuses all writes, because it cannot save to disk for instance, still runs these.
_READ_ONLY = frozenset(
    (
        *("list", "replicas", "get", "candidates", "pick", "queues", "counts", "tagged"),
        *("look", "decisions", "stranded"),
    )
)
_REFUSED_WHEN_FULL = frozenset(("insert",))


# What every job script begins with.
_JOBS = ("soundness", "soundness.jobs", "jobs", "holders")


class Script:
    """A script and the name under which servers keep it."""

    def __init__(self, name: str, *parts: str, constants: str = "") -> None:
        self.name = name
        texts = [(_FOLDER / f"{part}.lua").read_bytes() for part in parts]
        self.text = b"".join([constants.encode(), *texts])
        self.sha = sha1(self.text, usedforsecurity=False).hexdigest().encode()


def _of_leases(name: str) -> Script:
    removal = _removal(name, "removal.leases")
    sound = ("soundness", "soundness.leases")
    return Script(name, *removal, *sound, "prelude", f"{name}.alone", "crowd", f"{name}.crowd")


def _of_jobs(name: str, *before: str) -> Script:
    removal = _removal(name, "removal.jobs")
    constants = f"local SOON, ASIDE_FOR = {micros(SOON)}, {micros(ASIDE_FOR)}\n"
    return Script(name, *removal, *_JOBS, *before, name, constants=constants)


def _of_schedules(name: str) -> Script:
    constants = (
        f"local SOON, ASIDE_FOR = {micros(SOON)}, {micros(ASIDE_FOR)}\n"
        f"local DECISIONS_MAX, BLOCKING_MAX = {DECISIONS_MAX}, {BLOCKING_MAX}\n"
        f"local COUNT_MAX, DECLARED_ANEW_AFTER = {COUNT_MAX}, {micros(DECLARED_ANEW_AFTER)}\n"
    )
    removal = _removal(name, "removal.jobs")
    return Script(name, *removal, *_JOBS, "runs", "schedules", name, constants=constants)


def _removal(name: str, part: str) -> tuple[str, ...]:
    """Return what a script begins with, so that a full server runs it."""
    return () if name in _READ_ONLY | _REFUSED_WHEN_FULL else (part,)


ACQUIRE = _of_leases("acquire")
RENEW = _of_leases("renew")
RELEASE = _of_leases("release")
LIST = _of_leases("list")
MARK = _of_leases("mark")
MEMBERS = Script("members", "soundness", "soundness.leases", "prelude", "crowd", "members")
DISCARD = Script("discard", "removal.leases", "discard")
PRUNE = _of_leases("prune")

JOIN = _of_jobs("join")
BEAT = _of_jobs("beat")
ORPHANS = _of_jobs("orphans")
REPLICAS = _of_jobs("replicas")
INSERT = _of_jobs("insert")
CLAIM = _of_jobs("claim")
ASIDE = _of_jobs("aside")
SETTLE = _of_jobs("settle")
NOTE = _of_jobs("note")
CANCEL = _of_jobs("cancel", "cancelling")
REQUEUE = _of_jobs("requeue")
DELETE = _of_jobs("delete")
GET = _of_jobs("get")
CANDIDATES = _of_jobs("candidates")
PICK = _of_jobs("pick")
QUEUES = _of_jobs("queues")
COUNTS = _of_jobs("counts")
TAGGED = _of_jobs("tagged")
STRANDED = _of_jobs("stranded")
PAUSE = _of_jobs("pause")
PRUNE_JOBS = _of_jobs("prune_jobs")

COMMIT = _of_schedules("commit")
DECLARE = _of_schedules("declare")
LOOK = _of_schedules("look")
DECISIONS = _of_schedules("decisions")
SLEEP = Script("sleep", "removal.jobs", "sleep")
RIGHTS = Script("rights", "rights")
