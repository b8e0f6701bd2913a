"""What viewers can do: each action checks a permission, runs, and is logged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from tenure.core.ids import is_job_id
from tenure.core.leases import Lease
from tenure.dashboard import audit
from tenure.dashboard.answer import Refusal
from tenure.dashboard.jobs import record_of
from tenure.dashboard.request import Request, checked_name
from tenure.dashboard.site import Site
from tenure.dashboard.viewer import Viewer

__all__ = ["ACTIONS", "WHOLE_ACTIONS", "Action", "Done"]

Document: TypeAlias = dict[str, Any]


class Done(Struct, frozen=True):
    """What an action has done: its answer, and its outcome for the audit log."""

    outcome: str
    document: Document = {}


class Action(Struct, frozen=True, kw_only=True):
    """An action as a route: `await action(site, request)`."""

    name: str
    run: Callable[[Site, Request], Awaitable[Done]]
    needs: Literal["act", "reveal"] = "act"
    is_audited: bool = True
    changes: bool = True
    """Whether the pages are to look anew."""

    async def __call__(self, site: Site, request: Request) -> Document:
        """Run it for a viewer who may. Raises Refusal otherwise."""
        viewer = request.viewer
        # A viewer without `may_reveal` may still see what a rule opens to all viewers.
        is_allowed = viewer.may_act if self.needs == "act" else bool(viewer.name)
        if not is_allowed:
            self._record(request, "refused: not permitted")
            raise Refusal(403, _not_allowed(viewer))
        try:
            done = await self.run(site, request)
        except Refusal as refusal:
            self._record(request, f"refused: {refusal.detail}")
            raise
        except Exception as error:
            self._record(request, f"failed: {type(error).__name__}")
            raise
        except BaseException as error:  # the server stops, for example
            self._record(request, f"cut off: {type(error).__name__}")
            raise
        self._record(request, done.outcome)
        return done.document

    def _record(self, request: Request, outcome: str) -> None:
        # Strangers of a dashboard without a sign-in could fill the log.
        if self.is_audited and request.viewer.name:
            subject = request.subject or str(request.body.get("name") or "")
            audit.record(request.viewer, self.name, subject, outcome)


def _not_allowed(viewer: Viewer) -> str:
    if not viewer.name:
        return "This dashboard is read-only: it has no sign-in. Give it one: Dashboard(auth=...)."
    return f"{viewer.name} may look, and may not do this."


# Jobs.


async def _contents(site: Site, request: Request) -> Done:
    record = await record_of(site, request.subject)
    if not site.masks.may_reveal(request.viewer, record.task):
        raise Refusal(403, "You may not see the contents of jobs of this task.")
    return Done("revealed", site.masks.contents(record))


async def _cancel(site: Site, request: Request) -> Done:
    record = await record_of(site, request.subject)
    services = await site.snapshot.services()
    outcome = await services.jobs.cancel(record, request.text("reason"))
    return _ended(outcome)


async def _requeue(site: Site, request: Request) -> Done:
    services = await site.snapshot.services()
    await services.jobs.requeue(_id_of(request))
    return _ended("requeued")


async def _delete(site: Site, request: Request) -> Done:
    services = await site.snapshot.services()
    [answer] = await services.store.jobs.delete([_id_of(request)])
    if answer not in (None, "deleted"):
        raise Refusal(409, "Cancel this job first, and delete it when it has ended.")
    return _ended(answer)


def _id_of(request: Request) -> str:
    if not is_job_id(request.subject):
        raise Refusal(404, "This is not the id of a job.")
    return request.subject


def _ended(outcome: str | None) -> Done:
    if outcome is None:
        raise Refusal(404, "There is no such job: it was deleted meanwhile.")
    return Done(outcome, {"outcome": outcome})


# Queues.


async def _pause_queue(site: Site, request: Request) -> Done:
    queue = checked_name(request.subject, "queue")
    services = await site.snapshot.services()
    seconds, reason = request.seconds(), request.text("reason")
    await services.store.jobs.pause(queue, seconds=seconds, reason=reason)
    return Done(_paused(seconds))


async def _resume_queue(site: Site, request: Request) -> Done:
    queue = checked_name(request.subject, "queue")
    services = await site.snapshot.services()
    await services.store.jobs.pause(queue, seconds=0)
    return Done("resumed")


def _paused(seconds: float | None) -> str:
    return "paused" if seconds is None else f"paused for {seconds:g} s"


# Timers.


async def _pause_timer(site: Site, request: Request) -> Done:
    handle = (await site.snapshot.timers_service()).handle(request.subject)
    seconds = request.seconds()
    await handle.pause(until=seconds, reason=request.text("reason"))
    return Done(_paused(seconds))


async def _resume_timer(site: Site, request: Request) -> Done:
    handle = (await site.snapshot.timers_service()).handle(request.subject)
    return Done("resumed" if await handle.resume() else "was not paused")


async def _trigger_timer(site: Site, request: Request) -> Done:
    handle = (await site.snapshot.timers_service()).handle(request.subject)
    job = await handle.trigger()
    return Done(f"triggered: job {job.id}", {"job": job.id})


async def _pause_timers(site: Site, request: Request) -> Done:
    seconds = request.seconds()
    await (await site.snapshot.timers_service()).pause(seconds, request.text("reason"))
    return Done(_paused(seconds))


async def _resume_timers(site: Site, request: Request) -> Done:
    del request
    was_paused = await (await site.snapshot.timers_service()).resume()
    return Done("resumed" if was_paused else "was not paused")


# Locks.


async def _release(site: Site, request: Request) -> Done:
    name = checked_name(request.text("name", required=True), "name")
    fence = request.whole("fence")
    if fence < 1:  # 0 would release whatever this holder has by now
        raise Refusal(400, "fence must be that of the holder.")
    lease = Lease(key=name, holder=request.text("holder", required=True), fence=fence)
    services = await site.snapshot.services()
    [was_held] = await services.store.leases.release([lease])
    outcome = f"fence {fence} released" if was_held else f"fence {fence} was no longer held"
    return Done(outcome, {"released": was_held})


ACTIONS: Final[dict[tuple[str, str], Action]] = {
    ("jobs", "contents"): Action(
        name="reveal contents of job", run=_contents, needs="reveal", changes=False
    ),
    ("jobs", "cancel"): Action(name="cancel job", run=_cancel),
    ("jobs", "requeue"): Action(name="requeue job", run=_requeue),
    ("jobs", "delete"): Action(name="delete job", run=_delete),
    ("queues", "pause"): Action(name="pause queue", run=_pause_queue),
    ("queues", "resume"): Action(name="resume queue", run=_resume_queue),
    ("timers", "pause"): Action(name="pause timer", run=_pause_timer),
    ("timers", "resume"): Action(name="resume timer", run=_resume_timer),
    ("timers", "trigger"): Action(name="trigger timer", run=_trigger_timer),
}
"""Actions on one thing, by the first and the last word of their path."""

WHOLE_ACTIONS: Final[dict[tuple[str, str], Action]] = {
    ("timers", "pause"): Action(name="pause all timers", run=_pause_timers),
    ("timers", "resume"): Action(name="resume all timers", run=_resume_timers),
    ("locks", "release"): Action(name="release lock", run=_release),
}
"""Actions whose path has no name."""
