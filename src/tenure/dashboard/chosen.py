"""Actions on jobs that a viewer has chosen one by one, by their ids."""

from __future__ import annotations

from typing import Any, Final

from tenure.core.ids import is_job_id
from tenure.core.jobs.records import BATCH_MAX
from tenure.dashboard.actions import Action, Done
from tenure.dashboard.answer import Refusal
from tenure.dashboard.bulk import CALLS, VERBS
from tenure.dashboard.request import Request
from tenure.dashboard.site import Site

__all__ = ["CHOSEN_ACTIONS"]


async def _chosen(site: Site, request: Request) -> Done:
    """Act on these jobs, oldest first. Those that are gone or in another state are left out."""
    verb, ids = request.text("action", required=True), _ids_in(request)
    if verb not in VERBS:
        raise Refusal(400, f"action must be one of {', '.join(VERBS)}.")
    services = await site.snapshot.services()
    records = [job for job in await site.snapshot.records(ids) if job is not None]
    jobs = [job for job in records if job.state in VERBS[verb].allowed]
    # Ids begin with the time, so requeued jobs start in their old order.
    jobs.sort(key=lambda job: job.id)
    answers = await CALLS[verb](site, services.store, jobs) if jobs else ()
    done = sum(answer in VERBS[verb].outcomes for answer in answers)
    which = ", ".join(job.id for job in jobs)
    outcome = f"{verb} {done:,} of {len(ids):,} chosen jobs: {which}" if jobs else "none fits"
    return Done(outcome, {"done": done, "skipped": len(ids) - done})


def _ids_in(request: Request) -> list[str]:
    ids: Any = request.body.get("ids")
    if not isinstance(ids, list) or not all(isinstance(id_, str) for id_ in ids):
        raise Refusal(400, "ids must be a list of ids.")
    if not ids or len(ids) > BATCH_MAX:
        raise Refusal(400, f"Choose from 1 to {BATCH_MAX} jobs.")
    if not all(is_job_id(id_) for id_ in ids):
        raise Refusal(400, "One of the ids is not that of a job.")
    return list(dict.fromkeys(ids))


CHOSEN_ACTIONS: Final[dict[tuple[str, str], Action]] = {
    ("jobs", "chosen"): Action(name="act on chosen jobs", run=_chosen),
}
