"""What the keys of `tenure top` do to the store, and the words for it."""

from __future__ import annotations

from typing import Final

from tenure.app import Tenure
from tenure.cli.text import safe
from tenure.cli.top.data import Picture
from tenure.cli.top.state import JOBS, QUEUES, Action

__all__ = ["perform", "question"]

_REASON: Final = "tenure top"


def question(action: Action, picture: Picture | None) -> str:
    """Return what to confirm, in one line."""
    verb = action.what.capitalize()
    if action.pane != JOBS:
        return f"{verb} {_named(action)}?"
    jobs = () if picture is None else picture.jobs
    task = next((f" ({safe(job.task)})" for job in jobs if job.id == action.name), "")
    return f"{verb} {_named(action)}{task}?"


async def perform(app: Tenure, action: Action) -> str:
    """Do it, and return what was done. Raises TenureError."""
    match action.what:
        case "cancel":
            return await _cancel(app, action)
        case "requeue":
            await (await app.job(action.name)).requeue()
            return f"Requeued {_named(action)}."
        case "pause" if action.pane == QUEUES:
            await app.pause_queue(action.name, reason=_REASON)
        case "pause":
            await app.timer_handle(action.name).pause(reason=_REASON)
        case "resume" if action.pane == QUEUES:
            await app.resume_queue(action.name)
        case "resume":
            await app.timer_handle(action.name).resume()
    return _done(action)


def _done(action: Action) -> str:
    if action.what == "resume":
        return f"Resumed {_named(action)}."
    return f"Paused {_named(action)} until it is resumed."


async def _cancel(app: Tenure, action: Action) -> str:
    job = await app.job(action.name)
    if not await job.cancel(_REASON):
        return f"{_named(action).capitalize()} has finished already: {job.state}."
    return f"Cancelled {_named(action)}." if job.is_finished else f"Asked {_named(action)} to stop."


def _named(action: Action) -> str:
    if action.pane == JOBS:
        return f"job {action.name[-8:]}"
    return f"{'queue' if action.pane == QUEUES else 'timer'} {safe(action.name)}"
