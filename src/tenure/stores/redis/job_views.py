"""Looking at many jobs at once, in bounded steps: find and counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from tenure.core.durations import micros
from tenure.core.records import (
    COUNT_MAX,
    TAGGED_MAX,
    JobRecord,
    Page,
    QueueCounts,
    Tagged,
)
from tenure.core.soundness import UNREADABLE
from tenure.core.states import STATES, JobState
from tenure.stores.redis.jobs import JobScripts, slices
from tenure.stores.redis.scripts import CANDIDATES, COUNTS, PICK, QUEUES, TAGGED
from tenure.stores.redis.wire import Word, text

__all__ = ["JobViews"]

# One call of `find` looks at 2000 jobs at most, so many of them in a script: nobody else is served
# while one runs.
_LOOKS: Final = 100
_STEPS: Final = 20


class JobViews(JobScripts):
    """What dashboards ask for."""

    async def find(
        self,
        *,
        state: JobState | None = None,
        queue: str | None = None,
        task: str | None = None,
        tag: str | None = None,
        replica: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        digit: Word = "" if state is None else STATES.index(state)
        wishes = [_wish(queue), _wish(task), _wish(tag), _wish(replica)]
        found: list[JobRecord] = []
        for _ in range(_STEPS):
            room = limit - len(found)
            # With nothing to sift, no more than what is wanted is looked at.
            looks = _LOOKS if any(wishes) or state == "waiting" else min(_LOOKS, room)
            words = (looks + 1, cursor or "", digit, *wishes[2:])
            ids, more = _newest(await self._job_script(CANDIDATES, *words), looks)
            # In an index that somebody has spoiled, what comes next may not come after.
            ids = [id_ for id_ in ids if cursor is None or id_ < cursor]
            if not ids:
                return Page(found, None)
            looked, broken, *parts = await self._job_script(PICK, room, digit, *wishes, *ids)
            for id_ in broken:
                self.damage.report("job", text(id_), UNREADABLE, self._job_hashes)
            read = map(self._read_job, map(text, parts[::3]), parts[1::3], parts[2::3])
            found += [job for job in read if job is not None]
            cursor = ids[looked - 1]
            more = more or looked < len(ids)
            if not more or len(found) == limit:
                return Page(found, cursor if more else None)
        return Page(found, cursor)

    async def counts(self) -> list[QueueCounts]:
        waiting, others, unreadable = await self._job_script(QUEUES, "")
        for name in unreadable:
            why = "its pause cannot be read, so it counts as none"
            self.damage.report("queue", text(name), why, f"{self._tag}job:paused")
        names = {*waiting, *others}
        while waiting:
            waiting, _, _ = await self._job_script(QUEUES, waiting[-1])
            names.update(waiting)
        queues = sorted(name for one in names if (name := self._read_name(one)) is not None)
        counted: list[QueueCounts] = []
        for some in slices(queues):
            rows = await self._job_script(COUNTS, *some)
            counted += [_counts(name, *row) for name, row in zip(some, rows, strict=True)]
        # What emptied since its name was read is not in anybody's way.
        return [one for one in counted if one.waiting or one.running or one.paused_for is not None]

    def _read_name(self, name: bytes) -> str | None:
        return self.damage.read("queue", f"{self._tag}job:waiting", text(name), name.decode)

    async def count_tagged(
        self, tag: str, *, unfinished: int, recent: int, within: float
    ) -> Tagged:
        words = (tag, TAGGED_MAX, unfinished, recent, micros(within))
        live, young, oldest = await self._job_script(TAGGED, *words)
        return Tagged(live, young, oldest / 1e6)


def _wish(name: str | None) -> str:
    """Return what is looked for, if anything: also an empty name is something."""
    return "" if name is None else f"={name}"


def _newest(reply: Sequence[object], looks: int) -> tuple[list[str], bool]:
    """Merge lists of ids, each newest first; say whether there may be more behind the result.

    Where a list was cut off, more of its own may follow: the result ends there, for all of them.
    """
    most, *lists = reply
    last = ""
    every: list[str] = []
    for one in lists:
        assert isinstance(one, list)
        ids = [text(id_) for id_ in one]
        every += filter(None, ids)  # an empty one is no job's, and no place to go on from
        if len(ids) == most:
            last = max(last, ids[-1])
    # Text is compared by code points here and by bytes there; for UTF-8 that is the same.
    kept = sorted((id_ for id_ in every if id_ >= last), reverse=True)
    return kept[:looks], bool(last) or len(kept) > looks


def _counts(queue: str, waiting: int, running: int, oldest: int, paused: bytes) -> QueueCounts:
    paused_for = None
    if paused:
        paused_for = math.inf if paused == b"inf" else int(paused) / 1e6
    return QueueCounts(
        queue=queue,
        waiting=min(COUNT_MAX, waiting),
        running=min(COUNT_MAX, running),
        oldest=None if oldest < 0 else oldest / 1e6,
        paused_for=paused_for,
    )
