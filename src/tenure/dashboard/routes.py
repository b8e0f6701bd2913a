"""The table of routes: which path and method is which function.

Names may contain any character, so a path is split before it is decoded, and what lies between the
first and the last word of a path is one name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct

from tenure.dashboard.actions import ACTIONS, WHOLE_ACTIONS, Action
from tenure.dashboard.answer import Refusal
from tenure.dashboard.bulk import BULK_ACTIONS
from tenure.dashboard.chosen import CHOSEN_ACTIONS
from tenure.dashboard.events import events
from tenure.dashboard.jobs import job, jobs
from tenure.dashboard.locks import locks
from tenure.dashboard.overview import overview
from tenure.dashboard.replicas import replicas
from tenure.dashboard.request import Request, name_in
from tenure.dashboard.site import Site, session
from tenure.dashboard.timers import timer, timers

__all__ = ["Route", "find_route"]

Handle: TypeAlias = Callable[[Site, Request], Awaitable[dict[str, Any]]]


class Route(Struct, frozen=True):
    """The function for a request, and the name or id in its path."""

    handle: Handle
    subject: str = ""
    action: Action | None = None
    """The action, if it is a POST."""


_READ: Final[dict[str, Handle]] = {
    "session": session,
    "overview": overview,
    "jobs": jobs,
    "timers": timers,
    "locks": locks,
    "replicas": replicas,
    "events": events,
}
_WHOLE: Final = WHOLE_ACTIONS | BULK_ACTIONS | CHOSEN_ACTIONS


def find_route(method: str, parts: Sequence[str]) -> Route:
    """Return the route of a path below `api/`. Raises Refusal 404 or 405."""
    action, subject = _find_action(parts)
    if action is not None and method == "POST":
        return Route(action, subject, action)
    read, name = _find_read(parts)
    if read is not None and method in ("GET", "HEAD"):
        return Route(read, name)
    if read is not None:
        raise Refusal(405, "Use GET.", headers={"allow": "GET, HEAD"})
    if action is not None:
        raise Refusal(405, "Use POST.", headers={"allow": "POST"})
    raise Refusal(404, "There is nothing at this address.")


def _find_read(parts: Sequence[str]) -> tuple[Handle | None, str]:
    match [*parts]:
        case [page]:
            return _READ.get(page), ""
        case ["jobs", id_]:
            return job, id_
        case ["timers", *words]:
            return timer, name_in(words)
        case _:
            return None, ""


def _find_action(parts: Sequence[str]) -> tuple[Action | None, str]:
    match [*parts]:
        case [first, last]:
            return _WHOLE.get((first, last)), ""
        case [first, *words, last] if words:
            return ACTIONS.get((first, last)), name_in(words)
        case _:
            return None, ""
