"""Which jobs a list or a bulk action is about: filters, and searches among the newest jobs.

Stores have indexes for states, queues, tasks and tags. The end of an id and the text of an error
are searched among the newest 10,000 jobs of a state, and answers say how many were searched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, get_args

from msgspec import Struct
from msgspec.structs import replace

from tenure.core.ids import is_job_id
from tenure.core.jobs.records import JobRecord, Page
from tenure.core.jobs.states import STATES, JobState
from tenure.core.schedules.records import TIMERS_QUEUE
from tenure.dashboard.answer import Refusal
from tenure.dashboard.documents import counted
from tenure.dashboard.owners import is_of_http, tags_of
from tenure.dashboard.request import checked_name
from tenure.dashboard.site import Site
from tenure.dashboard.snapshot import Snapshot
from tenure.dashboard.viewer import Viewer
from tenure.jobs import report_of

__all__ = ["SEARCHED_MAX", "Criteria", "Matches", "matches", "read_criteria", "selected"]

SEARCHED_MAX: Final = 10_000
_PAGE: Final = 200
_UNINDEXED: Final = SEARCHED_MAX // _PAGE
_SELECTED: Final = 1000  # pages of a bulk action, which may be short
_HIDING: Final = 10  # pages that may consist of runs of timers
_PATIENCE: Final = 5.0
_ERROR_MAX: Final = 200
_END: Final = re.compile(r"[0-9a-f-]{4,36}")
_FIELDS: Final = frozenset({"state", "queue", "task", "tag", "owner", "id", "error", "timers"})


class Criteria(Struct, frozen=True, kw_only=True):
    """What jobs have in common. None and "": anything."""

    state: JobState | None = None
    queue: str | None = None
    task: str | None = None
    tag: str | None = None
    owners: tuple[str, ...] | None = None
    """The tags of an owner, of which a job has one."""
    id: str = ""
    """An id, or its end."""
    error: str = ""
    timers: bool = False
    """Whether runs of timers count, too."""

    @property
    def is_empty(self) -> bool:
        return replace(self, timers=False) == Criteria()

    @property
    def hides_timers(self) -> bool:
        # Runs of timers have a queue and tasks of their own: other names leave them out.
        return not (self.timers or self.queue or self.task or self.id)

    @property
    def is_indexed(self) -> bool:
        """Whether the store finds exactly these jobs by itself."""
        return not (self.id or self.error or self.hides_timers or (self.owners and self.tag))

    def fits(self, job: JobRecord) -> bool:
        """Return whether a job is one of these, as far as the store does not decide it."""
        if self.hides_timers and job.queue == TIMERS_QUEUE:
            return False
        if self.owners is not None and self.tag and self.tag not in job.tags:
            return False
        if not job.id.endswith(self.id):
            return False
        return not self.error or self.error in _error_of(job).lower()


class Matches(Struct, frozen=True):
    """Jobs that fit, newest first, and how far was searched."""

    jobs: list[JobRecord]
    cursor: str | None = None
    searched: int | None = None
    """How many jobs were looked at, if the store has no index for the filter."""
    note: str | None = None


def read_criteria(site: Site, viewer: Viewer, fields: Mapping[str, Any]) -> Criteria:
    """Return the filter that a request describes. Raises Refusal."""
    if unknown := sorted(set(fields) - _FIELDS):
        raise Refusal(400, f"There is no filter {unknown[0]!r}.")
    texts = {name: fields.get(name) or "" for name in _FIELDS - {"timers"}}
    if not all(isinstance(text, str) for text in texts.values()):
        raise Refusal(400, "Filters are texts.")
    names = {
        name: checked_name(texts[name], name) if texts[name] else None
        for name in ("queue", "task", "tag")
    }
    if names["tag"] is not None and is_of_http(names["tag"]):
        raise Refusal(403, "This tag stands for an owner. Search for the owner instead.")
    if texts["state"] and texts["state"] not in STATES:
        raise Refusal(400, f"state must be one of {', '.join(get_args(JobState))}.")
    if texts["id"] and not _END.fullmatch(texts["id"].lower()):
        raise Refusal(400, "id must be the id of a job, or at least the last 4 characters of it.")
    return Criteria(
        state=texts["state"] or None,
        **names,
        owners=_owners(site, viewer, texts["owner"]),
        id=texts["id"].lower(),
        error=texts["error"][:_ERROR_MAX].lower(),
        timers=fields.get("timers") in (True, "1", "true"),
    )


def _owners(site: Site, viewer: Viewer, owner: str) -> tuple[str, ...] | None:
    if not owner:
        return None
    if not viewer.may_see_owners:
        raise Refusal(403, "You may not search for owners.")
    checked_name(owner, "owner")
    tags = tags_of(owner, site.routers)
    if not tags:
        detail = "This process has no AsyncRouter. Name the routers: Dashboard(routers=[...])."
        raise Refusal(400, detail)
    return tuple(tags)


async def matches(
    snapshot: Snapshot, criteria: Criteria, *, limit: int, cursor: str | None = None
) -> Matches:
    """Return up to `limit` jobs that fit, newest first."""
    if is_job_id(criteria.id):
        [job] = await snapshot.records([criteria.id])
        return Matches([] if job is None else [job])
    if criteria.is_indexed:
        page = await _find(snapshot.jobs, criteria, limit, cursor)
        return Matches(page.jobs, page.cursor)
    key = ("search", criteria, limit, cursor)
    return await snapshot.looks.share(key, lambda: _search(snapshot, criteria, limit, cursor))


async def _search(
    snapshot: Snapshot, criteria: Criteria, limit: int, cursor: str | None
) -> Matches:
    """Look at the newest jobs one by one."""
    if not (criteria.id or criteria.error):
        jobs, cursor, _ = await _scan(snapshot, criteria, limit, cursor, _HIDING)
        return Matches(jobs, cursor)
    states = _searched_states(criteria)
    began = snapshot.clock.boot()
    jobs, searched, rest = list[JobRecord](), 0, None
    for state in states:
        in_state = replace(criteria, state=state)
        more, rest, number = await _scan(snapshot, in_state, limit - len(jobs), cursor, _UNINDEXED)
        jobs, searched = jobs + more, searched + number
        if len(jobs) >= limit or snapshot.clock.boot() - began > _PATIENCE:
            break
    # With several states, there is no place from which to go on.
    rest = rest if len(states) == 1 and len(jobs) >= limit else None
    where = " and ".join(states) if len(states) < len(STATES) else "each state"
    note = f"Searched {counted(searched, 'job')}: the newest {SEARCHED_MAX:,} of {where} at most."
    return Matches(jobs, rest, searched, note)


async def selected(
    snapshot: Snapshot, criteria: Criteria, states: Sequence[JobState | None], most: int
) -> tuple[list[JobRecord], bool]:
    """Return up to `most` jobs in these states, newest first within each, and if there are more.

    Reads as many pages as it takes; with an error text or the end of an id, the newest 10,000 jobs
    of each state.
    """
    jobs: list[JobRecord] = []
    pages = _UNINDEXED if criteria.id or criteria.error else _SELECTED
    for state in states:
        room = most - len(jobs)
        in_state = replace(criteria, state=state)
        # One more than there is room for tells whether there are more.
        more, _, _ = await _scan(snapshot, in_state, room + 1, None, pages)
        jobs += more[:room]
        if len(more) > room:
            return jobs, True
    return jobs, False


def _searched_states(criteria: Criteria) -> Sequence[JobState]:
    if criteria.state is not None:
        return (criteria.state,)
    # A job that has succeeded has no error.
    return tuple(state for state in STATES if criteria.id or state != "succeeded")


async def _scan(
    snapshot: Snapshot, criteria: Criteria, limit: int, cursor: str | None, pages: int
) -> tuple[list[JobRecord], str | None, int]:
    """Return jobs that fit among a bounded number, where to go on, and how many were read."""
    jobs: list[JobRecord] = []
    searched = 0
    # Mostly the first jobs fit; a page more than needed may be megabytes of arguments.
    size = min(limit, _PAGE) if criteria.hides_timers else _PAGE
    for _ in range(pages):
        page = await _find(snapshot.find, criteria, size, cursor)
        size = _PAGE
        searched += len(page.jobs)
        jobs += filter(criteria.fits, page.jobs)
        cursor = page.cursor
        if len(jobs) > limit:
            cursor = jobs[limit - 1].id  # a page goes on behind the id that it is given
        if cursor is None or len(jobs) >= limit:
            break
    return jobs[:limit], cursor, searched


async def _find(
    find: Callable[..., Any], criteria: Criteria, limit: int, cursor: str | None
) -> Page:
    """Return a page by what the store has an index for."""
    filters = {
        "state": criteria.state,
        "queue": criteria.queue,
        "task": criteria.task,
        "limit": limit,
        "cursor": cursor,
    }
    tags = (criteria.tag,) if criteria.owners is None else criteria.owners
    pages: list[Page] = [await find(**filters, tag=tag) for tag in tags]
    return pages[0] if len(pages) == 1 else _merged(pages, limit)


def _merged(pages: Sequence[Page], limit: int) -> Page:
    """Return the pages of several tags as one: as far down as each of them goes."""
    jobs = {job.id: job for page in pages for job in page.jobs}
    frontier = max((page.cursor for page in pages if page.cursor is not None), default=None)
    ids = sorted((id_ for id_ in jobs if frontier is None or id_ >= frontier), reverse=True)
    if len(ids) > limit:
        frontier = ids[limit - 1]
    return Page([jobs[id_] for id_ in ids[:limit]], frontier)


def _error_of(job: JobRecord) -> str:
    report = report_of(job)
    return job.reason if report is None else report.line
