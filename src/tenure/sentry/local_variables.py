"""Removes local variables from events of Sentry: in frames of handlers they are the arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sentry_sdk.types import Event, Hint

__all__ = ["without_local_variables"]


def without_local_variables(event: Event, _: Hint) -> Event:
    """Remove the local variables of all frames. An event processor of a scope."""
    for frame in _frames(event):
        frame.pop("vars", None)
    if "exception" not in event and "stacktrace" not in event:
        # With `attach_stacktrace`, Sentry adds a stack with its variables after this, unless the
        # event has one.
        event.setdefault("threads", {"values": []})
    return event


def _frames(event: Event) -> Iterator[dict[str, Any]]:
    holders: list[Any] = [event]
    for part in ("exception", "threads"):
        values: Any = event.get(part)
        if isinstance(values, dict):  # also as a bare list, by the protocol
            values = values.get("values")
        holders += values or []
    for holder in holders:
        stack = holder.get("stacktrace") if isinstance(holder, dict) else None
        yield from (stack or {}).get("frames") or []
