"""Jobs on Redis: each call is one script, or one per slice. lua/jobs.lua describes the keys."""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import sha1
from typing import Any, Final, Literal

from tenure.core.bounds import UNREADABLE
from tenure.core.durations import micros
from tenure.core.jobs.records import (
    BATCH_MAX,
    COUNT_MAX,
    TAGGED_MAX,
    Cancelled,
    Claimed,
    Deleted,
    Inserted,
    JobRecord,
    NewJob,
    Note,
    Page,
    QueueCounts,
    Requeued,
    Settled,
    Settlement,
    Stranded,
    Tagged,
)
from tenure.core.jobs.states import STATES, JobState, may_delete
from tenure.stores.redis.job_part import slices
from tenure.stores.redis.records import insert_words, note_words, read_job, settle_words
from tenure.stores.redis.replicas import Replicas
from tenure.stores.redis.wire import Word, text

__all__ = ["Jobs"]

# The answers of scripts for each job.
_SETTLED: Final[tuple[Settled, ...]] = (
    *("lost", "settled", "repeated", "unreadable", "cancelled"),
)
_CANCELLED: Final[tuple[Cancelled | None, ...]] = (None, "cancelled", "requested", "finished")
_REQUEUED: Final[tuple[Requeued | None, ...]] = (
    *(None, "requeued", "unfinished", "conflict", "refused"),
)
_NOTED: Final = 1
_NOTE_ASIDE: Final = 2
_DELETED: Final = 1
_CHANGED: Final = 2

# One call of `find` visits up to 2000 jobs, this many in one script: Redis serves no other client
# while a script runs.
_LOOKS: Final = 100
_STEPS: Final = 20


class Jobs(Replicas):
    """The job part of the contract."""

    async def insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        answers: list[Inserted] = []
        # A batch is one script: a failure between two scripts would leave half of it stored.
        for batch in slices(jobs, BATCH_MAX):
            at, *replies = await self._run("insert", *insert_words(batch))
            for job, answer in zip(batch, replies, strict=True):
                if answer:
                    same, owner = answer
                    holder = text(owner)
                    answers.append(Inserted("existing" if same else "mismatch", holder, at))
                else:
                    answers.append(Inserted("created", job.id, at))
        return answers

    async def claim(
        self, replica: str, claim_no: int, queues: Sequence[str], limit: int
    ) -> Claimed | None:
        most = min(limit, BATCH_MAX)
        reply = await self._run("claim", replica, claim_no, most, *dict.fromkeys(queues))
        if not reply:
            return None
        next_in, aside, *parts = reply
        jobs = [job for job in map(_readable, parts[::2], parts[1::2]) if job is not None]
        if 2 * len(jobs) < len(parts):
            # No worker can run them, and they would seem to run on this replica.
            aside += await self._run("aside", replica, "", *(job.id for job in jobs))
            next_in = 0  # there may be more jobs behind them
        for name in aside:
            if b"\0" in name:  # no id has one
                why = "it stood in a queue and names no job; it was removed"
                self._damage.report("job", text(name), why, f"{self._tag}job:waiting")
            else:
                self._report_aside(text(name))
        return Claimed(jobs, None if next_in < 0 else next_in / 1e6)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        answers: list[Settled] = []
        # The script reads all of its jobs before it writes any, so it takes no job twice.
        once = len({end.id for end in settlements}) == len(settlements)
        for batch in slices(settlements, BATCH_MAX if once else 1):
            reply = await self._run("settle", *settle_words(batch))
            answers += [_SETTLED[answer] for answer in reply]
        for end, answer in zip(settlements, answers, strict=True):
            if answer == "unreadable":
                self._report_aside(end.id)
        return answers

    async def note(self, notes: Sequence[Note]) -> list[bool]:
        answers: list[bool] = []
        for batch in slices(notes):
            reply = await self._run("note", *note_words(batch))
            answers += [answer == _NOTED for answer in reply]
            for note, answer in zip(batch, reply, strict=True):
                if answer == _NOTE_ASIDE:
                    self._report_aside(note.id)
        return answers

    async def cancel(self, ids: Sequence[str], *, reason: str = "") -> list[Cancelled | None]:
        answers: list[Cancelled | None] = []
        for batch in slices(ids):
            answers += [_CANCELLED[answer] for answer in await self._run("cancel", reason, *batch)]
        return answers

    async def requeue(self, ids: Sequence[str]) -> list[Requeued | None]:
        answers: list[Requeued | None] = []
        for batch in slices(ids):
            answers += [_REQUEUED[answer] for answer in await self._run("requeue", *batch)]
        return answers

    async def delete(self, ids: Sequence[str]) -> list[Deleted | None]:
        answers: dict[str, Deleted | None] = {}
        for batch in slices(list(dict.fromkeys(ids))):
            answers |= await self._delete(batch)
        # An id that is named twice is gone the second time.
        return [
            None if id_ in ids[:at] and answers[id_] == "deleted" else answers[id_]
            for at, id_ in enumerate(ids)
        ]

    async def _delete(self, ids: Sequence[str]) -> dict[str, Deleted | None]:
        """Read jobs, decide in Python, and remove those that have not changed since the read."""
        records, fixed, _ = await self._run("get", *ids)
        answers: dict[str, Deleted | None] = dict.fromkeys(ids, "running")
        going: dict[str, tuple[Word, ...]] = {}
        for id_, record, rest in zip(ids, records, fixed, strict=True):
            stored = (record or b"", rest or b"")
            job = _readable(*stored)
            if may_delete(None if job is None else job.state):
                fingerprint = sha1(b"".join(stored), usedforsecurity=False).hexdigest()
                going[id_] = (id_, fingerprint, int(job is not None))
        if not going:
            return answers
        words = (word for words in going.values() for word in words)
        removed = dict(zip(going, await self._run("delete", *words), strict=True))
        answers |= {id_: "deleted" if code == _DELETED else None for id_, code in removed.items()}
        changed = [id_ for id_, code in removed.items() if code == _CHANGED]
        return answers | await self._delete(changed) if changed else answers

    async def get(self, ids: Sequence[str]) -> list[JobRecord | None]:
        jobs: list[JobRecord | None] = []
        for batch in slices(ids):
            records, fixed, aside = await self._run("get", *batch)
            for name in aside:
                self._report_aside(text(name))
            jobs += map(self._read_job, batch, records, fixed)
        return jobs

    async def find(
        self,
        *,
        state: JobState | Literal["stranded"] | None = None,
        queue: str | None = None,
        task: str | None = None,
        tag: str | None = None,
        replica: str | None = None,
        id_end: str | None = None,
        error: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        if state == "stranded":
            return Page([], None, await self._stranded(limit))
        digit: Word = "" if state is None else STATES.index(state)
        wishes = [_wish(name) for name in (queue, task, tag, replica, id_end or None, error)]
        jobs: list[JobRecord] = []
        visited = 0
        for _ in range(_STEPS):
            room = limit - len(jobs)
            # Without a filter, it visits only as many jobs as the page needs.
            looks = _LOOKS if any(wishes) or state == "waiting" else min(_LOOKS, room)
            words = (looks + 1, cursor or "", digit, *wishes[2:4])
            ids, more = _newest(await self._run("candidates", *words), looks)
            # In a damaged index, the next page may not come after this one.
            ids = [id_ for id_ in ids if cursor is None or id_ < cursor]
            if not ids:
                return Page(jobs, None, visited=visited)
            looked, broken, *parts = await self._run("pick", room, digit, *wishes, *ids)
            for id_ in broken:
                self._damage.report("job", text(id_), UNREADABLE, self._job_hashes)
            read = map(self._read_job, map(text, parts[::3]), parts[1::3], parts[2::3])
            jobs += [job for job in read if job is not None]
            cursor, visited = ids[looked - 1], visited + looked
            more = more or looked < len(ids)
            if not more or len(jobs) == limit:
                return Page(jobs, cursor if more else None, visited=visited)
        return Page(jobs, cursor, visited=visited)

    async def _stranded(self, limit: int) -> list[Stranded]:
        aside, orphans = await self._run("stranded", limit)
        broken, held = f"{self._tag}job:broken", f"{self._tag}job:held"
        stranded = [
            Stranded(id=text(id_), why="unreadable", where=broken, left=left / 1e6)
            for id_, left in aside
        ]
        stranded += [
            Stranded(id=text(id_), why="orphan", where=held, replica=text(replica))
            for id_, replica in orphans
        ]
        return stranded[:limit]

    async def counts(self) -> list[QueueCounts]:
        waiting, others, unreadable = await self._run("queues", "")
        for name in unreadable:
            why = "its pause cannot be read, so it counts as none"
            self._damage.report("queue", text(name), why, f"{self._tag}job:paused")
        names = {*waiting, *others}
        while waiting:
            waiting, _, _ = await self._run("queues", waiting[-1])
            names.update(waiting)
        queues = sorted(queue for name in names if (queue := self._read_name(name)) is not None)
        counted: list[QueueCounts] = []
        for batch in slices(queues):
            rows = await self._run("counts", *batch)
            counted += [_counts(name, row) for name, row in zip(batch, rows, strict=True)]
        # A queue may be empty since its name was read.
        return [
            queue
            for queue in counted
            if queue.waiting or queue.running or queue.paused_for is not None
        ]

    def _read_name(self, name: bytes) -> str | None:
        return self._damage.read("queue", f"{self._tag}job:waiting", text(name), name.decode)

    async def count_tagged(
        self, tag: str, *, unfinished: int, recent: int, within: float
    ) -> Tagged:
        words = (tag, TAGGED_MAX, unfinished, recent, micros(within))
        live, young, oldest = await self._run("tagged", *words)
        return Tagged(live, young, oldest / 1e6)

    async def pause(self, queue: str, *, seconds: float | None = None, reason: str = "") -> None:
        length = "inf" if seconds is None else micros(seconds)
        await self._run("pause", queue, length, reason)

    async def prune(self, limit: int) -> int:
        """Remove up to `limit` jobs whose retention is over, and unique keys that are free."""
        pruned: int = 0
        while True:
            most = min(BATCH_MAX, limit - pruned)
            removed, looked, keys = await self._run("prune_jobs", most, BATCH_MAX)
            pruned += removed
            if looked < max(most, 1) and keys < BATCH_MAX:
                return pruned


def _readable(record: bytes, fixed: bytes) -> JobRecord | None:
    """Return the job in the two parts of a record; None, without a report, if unreadable."""
    try:
        return read_job(record, fixed)
    except (ValueError, RecursionError):
        return None


def _wish(name: str | None) -> str:
    """Return the filters that are set. An empty name is a filter as well."""
    return "" if name is None else f"={name}"


def _newest(reply: Sequence[object], looks: int) -> tuple[list[str], bool]:
    """Merge lists of ids, newest first. Also returns whether more may follow.

    The merged list ends where the first cut-off list ends, because that list may go on.
    """
    most, *lists = reply
    last = ""
    every: list[str] = []
    for members in lists:
        assert isinstance(members, list)
        ids = [text(id_) for id_ in members]
        every += filter(None, ids)  # no job has an empty id, and no page can begin after it
        if len(ids) == most:
            last = max(last, ids[-1])
    # Python compares code points and Redis bytes; for UTF-8 the order is the same.
    kept = sorted((id_ for id_ in every if id_ >= last), reverse=True)
    return kept[:looks], bool(last) or len(kept) > looks


def _counts(queue: str, row: Sequence[Any]) -> QueueCounts:
    waiting, running, oldest, paused, reason = row
    paused_for = None
    if paused:
        paused_for = math.inf if paused == b"inf" else int(paused) / 1e6
    return QueueCounts(
        queue=queue,
        waiting=min(COUNT_MAX, waiting),
        running=min(COUNT_MAX, running),
        oldest=None if oldest < 0 else oldest / 1e6,
        paused_for=paused_for,
        pause_reason=text(reason),
    )
