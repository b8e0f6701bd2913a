"""Finds the jobs of a filter, newest first: for a page within a tenth of a second.

A page that is not full by then has a cursor, from which the next one goes on, and a search says how
far back it has looked. So the cost of a page does not depend on how many jobs there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from tenure.core.ids import is_job_id
from tenure.core.jobs.records import JobRecord, Page
from tenure.core.jobs.states import JobState
from tenure.core.jobs.view import as_datetime
from tenure.dashboard.answer import Refusal
from tenure.dashboard.selection import Criteria
from tenure.dashboard.snapshot import Snapshot

__all__ = ["Matches", "Place", "matches", "read_place", "selected"]

PATIENCE: Final = 0.1
"""Seconds after which a page is answered with what was found until then."""
_BULK_PATIENCE: Final = 5.0
_PAGE: Final = 200


class Place(Struct, frozen=True):
    """Where a list goes on: with the jobs of a state below an id, then with the next states."""

    state: JobState | None = None
    """None: the only state that is looked at, or all of them in one list."""
    below: str | None = None

    @property
    def cursor(self) -> str:
        """The place as one word."""
        prefix = "" if self.state is None else f"{self.state}:"
        return prefix + (self.below or "")


class Matches(Struct, frozen=True):
    """Jobs that fit, newest first."""

    jobs: list[JobRecord]
    rest: Place | None = None
    """Where more of them may be."""
    searched: int | None = None
    """How many jobs a search has looked at."""
    note: str | None = None
    """How far back it has looked."""


def read_place(cursor: str | None, criteria: Criteria) -> Place | None:
    """Return the place of a cursor; None for none. Raises Refusal if it is of another list."""
    if cursor is None:
        return None
    name, colon, below = cursor.rpartition(":")
    named = [state for state in criteria.states if state is not None and state == name]
    fits = len(named) == 1 if colon else len(criteria.states) <= 1
    if not fits or not (is_job_id(below) or (colon and not below)):
        raise Refusal(400, "cursor is not one: pass on the cursor of the page before.")
    return Place(named[0] if colon else None, below or None)


async def matches(
    snapshot: Snapshot, criteria: Criteria, *, limit: int, after: Place | None = None
) -> Matches:
    """Return up to `limit` jobs that fit, newest first."""
    if is_job_id(criteria.id):
        [job] = await snapshot.records([criteria.id])
        return Matches([] if job is None else [job])

    async def ask() -> Matches:
        scan = _Scan(snapshot, criteria, limit, PATIENCE)
        rest = await scan.follow(criteria.states, after)
        if not criteria.is_search:
            return Matches(scan.jobs, rest)
        return Matches(scan.jobs, rest, scan.searched, _note(criteria, rest))

    return await snapshot.looks.share(("matches", criteria, limit, after), ask)


async def selected(
    snapshot: Snapshot, criteria: Criteria, states: Sequence[JobState | None], most: int
) -> tuple[list[JobRecord], bool]:
    """Return up to `most` jobs in these states, newest first within each, and if there may be more.

    Reads as many pages as it takes, for some seconds.
    """
    searched = [part for state in states for part in replace(criteria, state=state).states]
    # One more than there is room for tells whether there are more.
    scan = _Scan(snapshot, criteria, most + 1, _BULK_PATIENCE, is_thorough=True)
    rest = await scan.follow(searched)
    return scan.jobs[:most], rest is not None or len(scan.jobs) > most


class _Scan:
    """Follows pages of the store, state by state, until it has enough or the time is over."""

    def __init__(
        self,
        snapshot: Snapshot,
        criteria: Criteria,
        limit: int,
        patience: float,
        *,
        is_thorough: bool = False,
    ) -> None:
        self._snapshot = snapshot
        self._criteria = criteria
        self._limit = limit
        self._until = snapshot.clock.boot() + patience
        # Where the store decides, it has looked at thousands: a page with a few jobs is an answer.
        self._is_thorough = is_thorough or criteria.is_search or not criteria.is_exact
        self.jobs: list[JobRecord] = []
        self.searched = 0

    async def follow(
        self, states: Sequence[JobState | None], after: Place | None = None
    ) -> Place | None:
        """Look at one state after the other. Returns where there may be more."""
        several, below = len(states) > 1, None if after is None else after.below
        first = states.index(after.state) if several and after is not None else 0
        for at, state in enumerate(states[first:], start=first + 1):
            below = await self._follow(replace(self._criteria, state=state), below)
            if below is not None:
                return Place(state if several else None, below)
            if at < len(states) and self._is_over:
                return Place(states[at])
        return None

    @property
    def _is_over(self) -> bool:
        return (
            len(self.jobs) >= self._limit
            or bool(self.jobs and not self._is_thorough)
            or self._snapshot.clock.boot() >= self._until
        )

    async def _follow(self, criteria: Criteria, below: str | None) -> str | None:
        # Mostly the first jobs fit; a page more than needed may be megabytes of arguments.
        size = min(self._limit, _PAGE)
        while True:
            page = await _find(self._snapshot.find, criteria, size, below)
            size = _PAGE
            self.searched += page.visited or len(page.jobs)
            room = self._limit - len(self.jobs)
            fitting = [job for job in page.jobs if criteria.fits(job)]
            self.jobs += fitting[:room]
            if len(fitting) > room:
                return fitting[room - 1].id  # a page goes on behind the id that it is given
            below = page.cursor
            if below is None or self._is_over:
                return below


def _note(criteria: Criteria, rest: Place | None) -> str:
    """Return how far back a search has looked."""
    states = [state for state in criteria.states if state is not None]
    if rest is None:
        return f"Searched all {_named(states)}."
    done = states[: states.index(rest.state)] if rest.state is not None else []
    back_to = "" if rest.below is None else f"back to {_born(rest.below)}"
    if not done:
        return f"Searched {_named(states[:1])} {back_to}. Older ones may match."
    if rest.below is None:
        return f"Searched all {_named(done)}. Other jobs may match."
    return f"Searched all {_named(done)}, and {rest.state} ones {back_to}. Older ones may match."


def _named(states: Sequence[str]) -> str:
    *firsts, last = ["", *states]
    if len(firsts) > 1:
        return f"{', '.join(firsts[1:])} and {last} jobs"
    return f"{last} jobs".strip()


def _born(id_: str) -> str:
    """Return when a job was enqueued, which its id says."""
    at = as_datetime(int(id_.replace("-", "")[:12], 16) * 1000)
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


async def _find(
    find: Callable[..., Any], criteria: Criteria, limit: int, cursor: str | None
) -> Page:
    """Return a page by what the store has a filter for."""
    filters: dict[str, Any] = {
        "state": criteria.state,
        "queue": criteria.queue,
        "task": criteria.task,
        "limit": limit,
        "cursor": cursor,
    }
    if criteria.id:
        filters["id_end"] = criteria.id
    if criteria.error and (literal := criteria.literal) is not None:
        filters["error"] = literal
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
    visited = sum(page.visited for page in pages)
    return Page([jobs[id_] for id_ in ids[:limit]], frontier, visited=visited)
