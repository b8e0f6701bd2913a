"""Actions on all jobs that a filter selects: their number is counted and shown before.

An action gets the number that its viewer has seen. If more jobs match by now it does nothing, so it
never touches more than was agreed to.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from msgspec import Struct

from tenure.core.jobs.records import BATCH_MAX, JobRecord
from tenure.core.jobs.states import STATES, JobState, may_delete
from tenure.dashboard import audit
from tenure.dashboard.actions import Action, Done
from tenure.dashboard.answer import Refusal
from tenure.dashboard.matches import selected
from tenure.dashboard.request import Request
from tenure.dashboard.selection import Criteria, read_criteria
from tenure.dashboard.site import Site
from tenure.runtime.attempts.job_ends import report_cancelled
from tenure.stores.contract import Store

__all__ = ["BULK_ACTIONS", "CALLS", "VERBS"]

SELECTED_MAX: Final = 10_000
_REASON: Final = "cancelled with others in the dashboard"


class Verb(Struct, frozen=True):
    """What can be done to many jobs."""

    states: tuple[JobState, ...]
    """The states that a filter without a state selects; a filter may name one of them."""
    outcomes: frozenset[str]
    """The answers of the store that count as done."""
    allowed: tuple[JobState, ...]
    """The states of the jobs to which it can be done."""


_DELETABLE: Final = tuple(state for state in STATES if may_delete(state))

VERBS: Final[dict[str, Verb]] = {
    "cancel": Verb(
        ("waiting", "running"), frozenset({"cancelled", "requested"}), ("waiting", "running")
    ),
    "requeue": Verb(("failed",), frozenset({"requeued"}), ("succeeded", "failed", "cancelled")),
    "delete": Verb(_DELETABLE, frozenset({"deleted"}), _DELETABLE),
}


async def _count(site: Site, request: Request) -> Done:
    """Count the jobs that a bulk action would touch; without an `action`, all that match."""
    criteria = _criteria(site, request)
    verb = request.text("action")
    states = _states(verb, criteria) if verb else _any_state(criteria)
    jobs, more = await selected(site.snapshot, criteria, states, SELECTED_MAX)
    if more and not jobs:
        raise Refusal(409, "No job was found in time, and others may match. Narrow the filter.")
    return Done("counted", {"count": len(jobs), "is_capped": more})


async def _bulk(site: Site, request: Request) -> Done:
    """Act on the jobs that match, oldest first, in batches."""
    verb = request.text("action", required=True)
    criteria, agreed = _criteria(site, request), request.whole("count")
    states = _states(verb, criteria)
    jobs, more = await selected(site.snapshot, criteria, states, SELECTED_MAX)
    if len(jobs) > agreed:
        detail = f"{len(jobs):,} jobs match by now, not {agreed:,}. Look again, then decide."
        raise Refusal(409, detail, more={"count": len(jobs), "is_capped": more})
    store = (await site.snapshot.services()).store
    # Read newest first, changed oldest first, so that requeued jobs start in their old order.
    jobs.reverse()
    done = 0
    try:
        for first in range(0, len(jobs), BATCH_MAX):
            batch = jobs[first : first + BATCH_MAX]
            answers = await CALLS[verb](site, store, batch)
            done += sum(answer in VERBS[verb].outcomes for answer in answers)
    except BaseException:  # also if the server stops: what is done is done
        audit.record(request.viewer, f"{verb} jobs", _words(criteria), f"{done:,} before an error")
        raise
    outcome = f"{verb} {done:,} of {len(jobs):,} jobs with {_words(criteria)}"
    return Done(outcome, {"done": done, "skipped": len(jobs) - done})


async def _cancelled(site: Site, store: Store, jobs: Sequence[JobRecord]) -> Sequence[str | None]:
    answers = await store.jobs.cancel([job.id for job in jobs], reason=_REASON)
    await report_cancelled(store, site.snapshot.engine.events, jobs, answers)
    return answers


async def _requeued(site: Site, store: Store, jobs: Sequence[JobRecord]) -> Sequence[str | None]:
    del site
    return await store.jobs.requeue([job.id for job in jobs])


async def _deleted(site: Site, store: Store, jobs: Sequence[JobRecord]) -> Sequence[str | None]:
    del site
    return await store.jobs.delete([job.id for job in jobs])


CALLS: Final[
    dict[str, Callable[[Site, Store, Sequence[JobRecord]], Awaitable[Sequence[str | None]]]]
] = {"cancel": _cancelled, "requeue": _requeued, "delete": _deleted}
"""Each does it to at most BATCH_MAX jobs, and returns the answers of the store."""


def _criteria(site: Site, request: Request) -> Criteria:
    fields: Any = request.body.get("filter")
    if not isinstance(fields, dict):
        raise Refusal(400, "filter must be an object.")
    criteria = read_criteria(site, request.viewer, fields)
    if criteria.is_empty:
        raise Refusal(400, "Filter the jobs first: by state, task, queue, tag, owner or error.")
    return criteria


def _states(verb: str, criteria: Criteria) -> tuple[JobState, ...]:
    if verb not in VERBS:
        raise Refusal(400, f"action must be one of {', '.join(VERBS)}.")
    if criteria.state is None:
        return VERBS[verb].states
    if criteria.state not in VERBS[verb].allowed:
        allowed = " or ".join(VERBS[verb].allowed)
        raise Refusal(400, f"{verb} is for jobs that are {allowed}, not {criteria.state}.")
    return (criteria.state,)


def _any_state(criteria: Criteria) -> tuple[JobState | None, ...]:
    return (criteria.state,)


def _words(criteria: Criteria) -> str:
    """Return a filter as text for the audit log, without the names of owners."""
    parts = {"state": criteria.state, "queue": criteria.queue, "task": criteria.task}
    parts |= {"tag": criteria.tag, "error": criteria.error and repr(criteria.error)}
    parts |= {"id": criteria.id, "owner": "(one)" if criteria.owners is not None else None}
    return ", ".join(f"{name} {value}" for name, value in parts.items() if value)


BULK_ACTIONS: Final[dict[tuple[str, str], Action]] = {
    ("jobs", "count"): Action(name="count jobs", run=_count, is_audited=False, changes=False),
    ("jobs", "bulk"): Action(name="bulk", run=_bulk),
}
