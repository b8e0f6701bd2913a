"""The page about timers and schedules: rules, next ticks, histories and pauses."""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict

from tenure.core.schedules.records import DECISIONS_MAX
from tenure.core.why import Surroundings, why_timer
from tenure.dashboard.answer import Refusal
from tenure.dashboard.request import Request, checked_name
from tenure.dashboard.site import Site
from tenure.dashboard.snapshot import PREVIEWS, TIMERS_MAX
from tenure.timers import TickRecord, TimerPause, TimerView, TimerViews

__all__ = ["timer", "timers"]


async def timers(site: Site, request: Request) -> dict[str, Any]:
    """Return the first 500 timers by name, each with its last 20 outcomes."""
    del request
    listed, around = await site.snapshot.timers(), await site.surroundings()
    documents = [
        {**_document(view, around), "history": [_mark(tick) for tick in view.history]}
        for view in listed.timers
    ]
    document = {
        "paused": _pause(listed.pause),
        "timers": documents,
        "is_capped": len(documents) >= TIMERS_MAX,
    }
    return await site.stamped(document)


async def timer(site: Site, request: Request) -> dict[str, Any]:
    """Return one timer with its last 100 outcomes."""
    name = checked_name(request.subject, "timer name")
    snapshot = site.snapshot

    async def ask() -> TimerViews:
        service = await snapshot.timers_service()
        return await service.views([name], limit=1, lines=DECISIONS_MAX, previews=PREVIEWS)

    listed = await snapshot.looks.share(("timer", name), ask)
    if not listed.timers:
        raise Refusal(404, f"The store knows no timer {name!r}.")
    around = await site.surroundings()
    [view] = listed.timers
    document = {
        "paused": _pause(listed.pause),
        **_document(view, around),
        "history": [_tick(tick) for tick in view.history],
    }
    return await site.stamped(document)


def _document(view: TimerView, around: Surroundings) -> dict[str, Any]:
    info = view.info
    return {
        "name": info.name,
        "kind": info.kind,
        "rule": info.rule,
        "tz": info.tz,
        "task": info.task,
        "next": view.next,
        "previous": info.previous,
        "running": info.running,
        "pause": _pause(info.pause),
        "is_declared": info.is_declared,
        "renamed_to": info.renamed_to or None,
        "ahead": info.ahead,
        "why": why_timer(view.facts, around),
    }


def _mark(record: TickRecord) -> dict[str, Any]:
    """Return what a strip shows of a tick. A page has thousands of them, so nothing is null."""
    shown = {
        "outcome": record.outcome,
        "reason": record.reason,
        "nominal": record.nominal,
        "ticks": record.ticks,
        "started": record.started,
        "finished": record.finished,
        "error": record.error,
    }
    return {name: value for name, value in shown.items() if value}


def _tick(record: TickRecord) -> dict[str, Any]:
    return {
        "outcome": record.outcome,
        "reason": record.reason,
        "nominal": record.nominal,
        "first": record.first,
        "ticks": record.ticks,
        "decided": record.decided,
        "job": record.job or None,
        "started": record.started,
        "finished": record.finished,
        "attempts": record.attempts,
        "error": record.error or None,
    }


def _pause(pause: TimerPause | None) -> dict[str, Any] | None:
    return None if pause is None else asdict(pause)
