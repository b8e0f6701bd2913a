"""The page about events: what this process has seen lately."""

from __future__ import annotations

from typing import Any

from tenure.dashboard.recent_events import SCOPE
from tenure.dashboard.request import Request
from tenure.dashboard.site import Site

__all__ = ["events"]


async def events(site: Site, request: Request) -> dict[str, Any]:
    """Return the events after a number, oldest first. Works without the store."""
    lines = site.recent.after(request.number("after", 0, 10**15))
    return {
        "events": [line.document for line in lines],
        "next": site.recent.last,
        "scope": SCOPE,
    }
