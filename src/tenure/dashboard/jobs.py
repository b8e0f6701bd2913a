"""The list of jobs, and all about one job."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any, Final

from msgspec import Struct

from tenure.core.ids import is_job_id
from tenure.core.jobs.options import read_options
from tenure.core.jobs.parents import parent_of, parent_tag
from tenure.core.jobs.records import JobRecord
from tenure.core.jobs.run_numbers import numbered_history, runs_of
from tenure.core.jobs.states import FINISHED, may_delete
from tenure.core.jobs.view import as_datetime
from tenure.core.why import why_job
from tenure.dashboard.answer import Refusal
from tenure.dashboard.documents import Places, instant, lite
from tenure.dashboard.masks import argument_names, plain_headers
from tenure.dashboard.matches import matches, read_place
from tenure.dashboard.request import Request
from tenure.dashboard.selection import read_criteria
from tenure.dashboard.site import Site, places_of
from tenure.dashboard.snapshot import without_contents
from tenure.dashboard.viewer import Viewer
from tenure.jobs import report_of

__all__ = ["job", "jobs", "record_of"]

_LIMIT: Final = 50
_LIMIT_MAX: Final = 200
_CHILDREN_MAX: Final = 50
_SIZE_STEP: Final = 128
_PAGING: Final = ("cursor", "limit")


async def jobs(site: Site, request: Request) -> dict[str, Any]:
    """Return a page of jobs, newest first. It may be short and still have a `cursor`."""
    filters = {name: text for name, text in request.query.items() if name not in _PAGING}
    criteria = read_criteria(site, request.viewer, filters)
    limit = max(1, request.number("limit", _LIMIT, _LIMIT_MAX))
    after = read_place(request.query.get("cursor") or None, criteria)
    page = await matches(site.snapshot, criteria, limit=limit, after=after)
    around = await site.surroundings(page.jobs)
    document = {
        "jobs": [site.job(record, request.viewer, around) for record in page.jobs],
        "cursor": None if page.rest is None else page.rest.cursor,
        "searched": page.searched,
        "note": page.note,
    }
    return await site.stamped(document)


class _Seen(Struct, frozen=True):
    """What is kept of a job for a second: its record without contents, and facts about these."""

    record: JobRecord
    sizes: dict[str, int | None]
    arguments: list[str]


async def record_of(site: Site, id_: str) -> JobRecord:
    """Return a job as it is now. Raises Refusal if there is none, or if it cannot be read."""
    if not is_job_id(id_):
        raise Refusal(404, "This is not the id of a job.")
    damage = (await site.snapshot.services()).store.damage
    before = damage.reports
    [record] = await site.snapshot.records([id_])
    if record is not None:
        return record
    if damage.is_reported("job", id_, before):
        raise Refusal(404, "The record of this job is damaged. 'tenure doctor' says more.")
    raise Refusal(404, "There is no such job: it was deleted, or its retention is over.")


async def job(site: Site, request: Request) -> dict[str, Any]:
    """Return all about a job but its contents."""
    seen = await site.snapshot.looks.share(
        ("job", request.subject), lambda: _look(site, request.subject)
    )
    record, viewer = seen.record, request.viewer
    around = await site.surroundings([record])
    places = places_of(around)
    headers = read_options(record.options).headers
    report = report_of(record)
    return await site.stamped(
        {
            **site.job(record, viewer, around),
            "why": why_job(record, around),
            "headers": plain_headers(headers),
            "timeout": record.timeout,
            "kept_until": _kept_until(record),
            "fence": record.fence,
            "revision": record.revision,
            "reason": record.reason,
            "trace": "" if report is None else report.trace,
            "sizes": _sizes(site, viewer, seen),
            "arguments": {"names": seen.arguments},
            "attempts": [*_attempts(record, places)],
            **await _family(site, record, places),
            "trace_link": site.trace_link(headers),
            "may": [*_possible(site, record, viewer)],
        }
    )


def _sizes(site: Site, viewer: Viewer, seen: _Seen) -> dict[str, int | None]:
    """Return the bytes of the contents. Exact ones would tell `true` from `false`, or a short PIN
    from a long one, so a viewer who may not see all contents gets whole steps.
    """
    if site.masks.may_see_all(viewer, seen.record.task):
        return seen.sizes
    return {
        part: size and math.ceil(size / _SIZE_STEP) * _SIZE_STEP
        for part, size in seen.sizes.items()
    }


async def _look(site: Site, id_: str) -> _Seen:
    record = await record_of(site, id_)
    sizes = {
        "arguments": len(record.payload),
        "checkpoint": None if record.checkpoint is None else len(record.checkpoint),
        "result": None if record.result is None else len(record.result),
    }
    return _Seen(without_contents(record), sizes, argument_names(record.payload))


async def _family(site: Site, record: JobRecord, places: Places) -> dict[str, Any]:
    """Return the job that has enqueued this one, and the newest jobs that this one has."""
    snapshot, parent = site.snapshot, parent_of(record.tags)
    page = await snapshot.jobs(tag=parent_tag(record.id), limit=_CHILDREN_MAX)
    family: dict[str, Any] = {
        "parent": None,
        "children": [lite(child, places) for child in page.jobs],
        "has_more_children": page.cursor is not None,
    }
    if parent is not None:
        stored = await snapshot.looks.share(("parent", parent), lambda: _parent(site, parent))
        family["parent"] = None if stored is None else lite(stored, places)
    return family


async def _parent(site: Site, id_: str) -> JobRecord | None:
    [record] = await site.snapshot.records([id_])
    return None if record is None else without_contents(record)


def _kept_until(record: JobRecord) -> Any:
    if record.state not in FINISHED:
        return None
    return as_datetime(record.finished + round(record.kept_for * 1e6))


def _possible(site: Site, record: JobRecord, viewer: Viewer) -> Iterator[str]:
    """Yield the actions that this viewer may take on this job as it stands."""
    if site.masks.may_reveal(viewer, record.task):
        yield "contents"
    if not viewer.may_act:
        return
    if record.state not in FINISHED and not record.cancelling:
        yield "cancel"
    if record.state in FINISHED and not record.schedule:  # runs of timers are triggered
        yield "requeue"
    if may_delete(record.state):
        yield "delete"


def _attempts(record: JobRecord, places: Places) -> Iterator[Mapping[str, Any]]:
    """Yield the attempts, oldest first: the last ten that have ended, and the one that runs."""
    past = numbered_history(record)
    ended = [record.created, *(line.ended for line in past)]
    for line, before in zip_longest(past, ended[: len(past)]):
        yield {
            "attempt": line.attempt,
            "replica": line.replica,
            "where": places.of(line.replica),
            "started": instant(line.started),
            "ended": instant(line.ended),
            "outcome": line.outcome,
            "error": line.error or None,
            "wait": _between(before, line.started),
            "run": _between(line.started, line.ended),
        }
    if record.state == "running":
        yield {
            "attempt": runs_of(record),
            "replica": record.replica,
            "where": places.of(record.replica),
            "started": instant(record.started),
            "ended": None,
            "outcome": "running",
            "error": None,
            "wait": _between(ended[-1], record.started),
            "run": None,
        }


def _between(begin: int, end: int) -> float:
    return max(0, end - begin) / 1e6
