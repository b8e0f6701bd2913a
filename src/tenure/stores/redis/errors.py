"""Translates errors of the driver and of the server into Tenure's exceptions, with advice."""

from __future__ import annotations

import re

from redis import exceptions

from tenure.errors import StoreError, StoreFull, StoreUnavailable

__all__ = ["NOT_DONE", "WRONG_PLACE", "Misled", "code_of", "missing_rights", "translate"]

# The first word of an error reply, and its meaning for a caller.
_LATER = {
    "BUSY": "is busy with a script",
    "CLUSTERDOWN": "belongs to a cluster that is down",
    "LOADING": "is loading its data",
    "MASTERDOWN": "is a replica without its primary",
    "MISCONF": "refuses writes because it cannot save to disk; see its log",
    "NOREPLICAS": "refuses writes because too few replicas are connected",
    "READONLY": "is a read-only replica, maybe after a fail-over; the URL must name the primary",
    "TRYAGAIN": "is moving keys to another node",
    "UNBLOCKED": "changed its role",
}
_MOVED = {
    "ASK": "is moving this namespace to another node of the cluster",
    "MOVED": "is part of a cluster and does not own this namespace",
}

NOT_DONE = frozenset(("MOVED", "READONLY"))
"""Replies of a server that has not run the command; another server may run it."""

WRONG_PLACE = NOT_DONE | {"ASK", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "TRYAGAIN"}
"""Replies after which another server may be the primary."""

_NO_RIGHTS = ("NOAUTH", "NOPERM", "WRONGPASS")
_NO_RIGHTS_IN_SCRIPT = ("ACL failure in script", "The user executing the script can't")
_NO_DISK = "No space left on device"
_IN_SCRIPT = re.compile(r": -([A-Z]+) ")


class Misled(exceptions.RedisError):
    """The URL leads to servers of another kind. The text continues "the store <url>"."""

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(f"{what}. {advice}")
        self.what = what
        self.advice = advice


def missing_rights(error: Exception) -> bool:
    """Return whether the server rejected the user, not the command."""
    if isinstance(error, exceptions.AuthenticationError):
        return True
    if not isinstance(error, exceptions.ResponseError):
        return False
    return code_of(error) in _NO_RIGHTS or any(text in str(error) for text in _NO_RIGHTS_IN_SCRIPT)


def translate(error: Exception, url: str, user: str, *, moves: bool) -> StoreError:
    """Return Tenure's error for an error of the driver, to raise from that.

    `moves`: whether the URL follows the data to another server.
    """
    where, reason = f"the store {url}", str(error).rstrip("?. ")
    if missing_rights(error):
        return StoreError(
            f"{where} refused the user {user!r}: {reason}. Check user and password in the "
            "URL. A user needs the keys '~{tenure:*', the channels '&{tenure:*' and some commands: "
            "'tenure doctor' names those that it lacks."
        )
    if isinstance(error, exceptions.ResponseError):
        return _refusal(code_of(error), where, reason, moves=moves)
    if isinstance(error, Misled):
        return StoreUnavailable(f"{where} {reason}.")
    if isinstance(error, exceptions.TimeoutError):
        return StoreUnavailable(
            f"{where} did not answer in time: {reason}. Is it overloaded, or does one side use TLS "
            "(rediss://) and the other not?"
        )
    return StoreUnavailable(
        f"{where} cannot be reached: {reason}. Is it running, at this host and port?"
    )


def _refusal(code: str, where: str, reason: str, *, moves: bool) -> StoreError:
    """Return the error for a reply that begins with `code`."""
    if code == "OOM":
        return StoreFull(
            f"{where} is full and takes no new jobs ({reason}). Nothing was stored. Workers go on "
            "with the jobs that are there, and locks and timers work. Raise maxmemory, let "
            "finished jobs go sooner (retention), or move other data elsewhere; then try again."
        )
    if code == "MISCONF" and _NO_DISK in reason:
        return StoreFull(
            f"{where} refuses all writes because its disk is full ({reason}). Nothing was stored. "
            "Make room on the disk of the server; then try again."
        )
    if code in _MOVED and not moves:
        return StoreError(
            f"{where} {_MOVED[code]} ({reason}). Use redis+cluster:// instead of redis://, with "
            "the addresses of some nodes: it follows the namespace wherever it goes."
        )
    if code in _LATER or code in _MOVED:
        return StoreUnavailable(f"{where} {(_LATER | _MOVED)[code]} ({reason}).")
    if code == "CROSSSLOT":
        return StoreError(
            f"{where} is part of a cluster and was sent keys of two slots; this is a bug in "
            f"Tenure ({reason})."
        )
    return StoreError(f"{where} answered with an error: {reason}.")


def code_of(error: exceptions.ResponseError) -> str:
    """Return the first word of an error reply, which names the kind of error."""
    text = str(error)
    # Redis 6.2 wraps the error of a command in an error of the script that ran it.
    inner = _IN_SCRIPT.search(text) if text.startswith("ERR Error running script") else None
    return inner[1] if inner else text.partition(" ")[0]
