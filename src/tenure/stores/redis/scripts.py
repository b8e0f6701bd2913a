"""The Lua scripts: one per atomic operation, put together as lua/prelude.lua describes.

A job script is lua/jobs.lua and a file of its own, after the constants they share with us.
"""

from __future__ import annotations

from hashlib import sha1
from importlib.resources import files

from tenure.core.durations import micros
from tenure.core.records import SOON

__all__ = [
    "ACQUIRE",
    "ASIDE",
    "BEAT",
    "CANCEL",
    "CANDIDATES",
    "CLAIM",
    "COUNTS",
    "GET",
    "INSERT",
    "JOIN",
    "LEAVE",
    "LIST",
    "MARK",
    "NOTE",
    "PAUSE",
    "PICK",
    "PRUNE",
    "PRUNE_JOBS",
    "QUEUES",
    "RECOVER",
    "RELEASE",
    "RENEW",
    "REPLICAS",
    "REQUEUE",
    "RIGHTS",
    "SETTLE",
    "Script",
]

_FOLDER = files("tenure.stores.redis") / "lua"


class Script:
    """A script and the name under which servers keep it."""

    def __init__(self, name: str, *parts: str, constants: str = "") -> None:
        self.name = name
        texts = [(_FOLDER / f"{part}.lua").read_bytes() for part in parts]
        self.text = b"".join([constants.encode(), *texts])
        self.sha = sha1(self.text, usedforsecurity=False).hexdigest().encode()


def _of_leases(name: str) -> Script:
    return Script(name, "prelude", f"{name}.alone", "crowd", f"{name}.crowd")


def _of_jobs(name: str) -> Script:
    return Script(name, "jobs", name, constants=f"local SOON = {micros(SOON)}\n")


ACQUIRE = _of_leases("acquire")
RENEW = _of_leases("renew")
RELEASE = _of_leases("release")
LIST = _of_leases("list")
MARK = _of_leases("mark")
PRUNE = _of_leases("prune")

JOIN = _of_jobs("join")
BEAT = _of_jobs("beat")
LEAVE = _of_jobs("leave")
RECOVER = _of_jobs("recover")
REPLICAS = _of_jobs("replicas")
INSERT = _of_jobs("insert")
CLAIM = _of_jobs("claim")
ASIDE = _of_jobs("aside")
SETTLE = _of_jobs("settle")
NOTE = _of_jobs("note")
CANCEL = _of_jobs("cancel")
REQUEUE = _of_jobs("requeue")
GET = _of_jobs("get")
CANDIDATES = _of_jobs("candidates")
PICK = _of_jobs("pick")
QUEUES = _of_jobs("queues")
COUNTS = _of_jobs("counts")
PAUSE = _of_jobs("pause")
PRUNE_JOBS = _of_jobs("prune_jobs")

RIGHTS = Script("rights", "rights")
