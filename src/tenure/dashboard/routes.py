"""The table of routes: which path and method is which function.

Names may contain any character, so a path is split before it is decoded, and what lies between the
first and the last word of a path is one name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct

from tenure.dashboard.answer import Refusal
from tenure.dashboard.events import events
from tenure.dashboard.jobs import job, jobs
from tenure.dashboard.locks import locks
from tenure.dashboard.overview import overview
from tenure.dashboard.replicas import replicas
from tenure.dashboard.request import Request
from tenure.dashboard.site import Site, session
from tenure.dashboard.timers import timer, timers

__all__ = ["Route", "find_route"]

Handle: TypeAlias = Callable[[Site, Request], Awaitable[dict[str, Any]]]


class Route(Struct, frozen=True):
    """The function for a request, and the name or id in its path."""

    handle: Handle
    subject: str = ""
    acts: bool = False
    """Whether it is a POST: it changes something, or reveals contents."""


_READ: Final[dict[str, Handle]] = {
    "session": session,
    "overview": overview,
    "jobs": jobs,
    "timers": timers,
    "locks": locks,
    "replicas": replicas,
    "events": events,
}
_READ_ONE: Final[dict[str, Handle]] = {"jobs": job, "timers": timer}


def find_route(method: str, parts: Sequence[str]) -> Route:
    """Return the route of a path below `api/`. Raises Refusal 404 or 405."""
    first, rest = (parts[0], parts[1:]) if parts else ("", ())
    reads = _READ.get(first) if not rest else None
    subject = "/".join(rest)
    if reads is None and subject:
        reads = _READ_ONE.get(first)
    if reads is not None and method in ("GET", "HEAD"):
        return Route(reads, subject)
    if reads is None:
        raise Refusal(404, "There is nothing at this address.")
    raise Refusal(405, "Use GET.", headers={"allow": "GET, HEAD"})
