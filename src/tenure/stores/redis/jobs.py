"""Jobs on Redis: each call is one script, or one per slice. What is stored: lua/jobs.lua."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from tenure.core.durations import micros
from tenure.core.records import (
    BATCH_MAX,
    Cancelled,
    Claimed,
    Inserted,
    JobRecord,
    NewJob,
    Note,
    Requeued,
    Settled,
    Settlement,
)
from tenure.core.soundness import SET_ASIDE
from tenure.stores.redis.connection import Connection
from tenure.stores.redis.job_words import (
    insert_words,
    is_plain,
    other_words,
    packed_bytes,
    plain_words,
    read_job,
)
from tenure.stores.redis.scripts import (
    ASIDE,
    CANCEL,
    CLAIM,
    GET,
    INSERT,
    NOTE,
    PAUSE,
    PRUNE_JOBS,
    REQUEUE,
    SETTLE,
    Script,
)
from tenure.stores.redis.wire import Word, text

__all__ = ["JobScripts", "Jobs", "readable", "slices"]

_SETTLED: Final[tuple[Settled, ...]] = (
    *("lost", "settled", "repeated", "unreadable", "cancelled"),
)
_CANCELLED: Final[tuple[Cancelled | None, ...]] = (None, "cancelled", "requested", "finished")
_REQUEUED: Final[tuple[Requeued | None, ...]] = (
    *(None, "requeued", "unfinished", "conflict", "refused"),
)

_ASIDE: Final = 2
"""What note.lua answers for a job that it has set aside."""

# Where each job is decided alone, and a repeat finds what was done, a call may be several scripts.
_SLICE: Final = 100

_One = TypeVar("_One")


class JobScripts(Connection):
    """How the parts of the job half run their scripts, and read records."""

    def _read_job(self, id_: str, record: bytes | None, fixed: bytes | None) -> JobRecord | None:
        """Return a job; None if there is none, or none that can be read."""
        if record is None:
            return None
        return self.damage.read("job", self._job_hashes, id_, read_job, record, fixed or b"")

    @property
    def _job_hashes(self) -> str:
        """Where a job is: what never changes of it in one hash, the rest in the other."""
        return f"{self._tag}job:fixed and {self._tag}job:state"

    def _report_aside(self, id_: str) -> None:
        self.damage.report("job", id_, SET_ASIDE, f"{self._tag}job:broken")

    async def _job_script(
        self, script: Script, *arguments: Word, keys: tuple[str, ...] = ()
    ) -> list[Any]:
        """Run a script on all keys of the jobs, if not on more; its reply is a list."""
        keys = keys or self._job_keys
        words = (len(keys), *keys, self._now, self._bells, *arguments)
        reply = await self._open_sender.run(script, words)
        if type(reply) is not list:
            raise self._fault(reply)
        return reply


def slices(items: Sequence[_One], size: int = _SLICE) -> Iterator[Sequence[_One]]:
    """Cut what one script may not do at once: nobody else is served while it runs."""
    for first in range(0, len(items), size):
        yield items[first : first + size]


def readable(record: bytes, fixed: bytes) -> Iterator[JobRecord]:
    """Yield the job in the two parts of a record; nothing if it is none."""
    with suppress(ValueError, RecursionError):
        yield read_job(record, fixed)


class Jobs(JobScripts):
    """Jobs, from insert to prune."""

    async def insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        answers: list[Inserted] = []
        # A batch is one script: a failure between two of them would leave half of it behind.
        for batch in slices(jobs, BATCH_MAX):
            reply = await self._job_script(INSERT, *insert_words(batch))
            at, *found = reply
            for job, answer in zip(batch, found, strict=True):
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
        reply = await self._job_script(CLAIM, replica, claim_no, most, *dict.fromkeys(queues))
        if not reply:
            return None
        next_in, aside, *parts = reply
        jobs = [
            job for pair in zip(parts[::2], parts[1::2], strict=True) for job in readable(*pair)
        ]
        if 2 * len(jobs) < len(parts):
            # Nobody can ever run them, and this replica would seem to, as long as it lives.
            aside += await self._job_script(ASIDE, replica, "", *(job.id for job in jobs))
            next_in = 0  # there may be more behind them
        for name in aside:
            if b"\0" in name:  # no id has one
                why = "it stood in a queue and names no job; it was removed"
                self.damage.report("job", text(name), why, f"{self._tag}job:waiting")
            else:
                self._report_aside(text(name))
        return Claimed(jobs, None if next_in < 0 else next_in / 1e6)

    async def settle(self, replica: str, settlements: Sequence[Settlement]) -> list[Settled]:
        answers: list[Settled] = []
        for some in slices(settlements):
            answers += await self._settle(replica, some)
        for one, answer in zip(settlements, answers, strict=True):
            if answer == "unreadable":
                self._report_aside(one.id)
        return answers

    async def _settle(self, replica: str, settlements: Sequence[Settlement]) -> list[Settled]:
        if len({one.id for one in settlements}) < len(settlements):
            # The script takes a job once, so that it can read all of them before it writes.
            return [(await self._settle(replica, [one]))[0] for one in settlements]
        plain: list[Word] = []
        others: list[Word] = []
        order: list[int] = []
        odd: list[int] = []
        for number, one in enumerate(settlements):
            if is_plain(one):
                plain += plain_words(one)
                order.append(number)
            else:
                others += other_words(one)
                odd.append(number)
        reply = await self._job_script(SETTLE, replica, len(order), *plain, *others)
        if not odd:
            return [_SETTLED[answer] for answer in reply]
        told = dict(zip([*order, *odd], reply, strict=True))
        return [_SETTLED[told[number]] for number in range(len(settlements))]

    async def note(self, replica: str, notes: Sequence[Note]) -> list[bool]:
        answers: list[bool] = []
        for some in slices(notes):
            words: list[Word] = [replica]
            for one in some:
                words += (
                    one.id,
                    one.fence,
                    "" if one.progress is None else repr(one.progress),
                    "" if one.message is None else f"m{one.message}",
                    b"" if one.checkpoint is None else packed_bytes(one.checkpoint),
                )
            reply = await self._job_script(NOTE, *words)
            answers += [answer == 1 for answer in reply]
            for note, answer in zip(some, reply, strict=True):
                if answer == _ASIDE:
                    self._report_aside(note.id)
        return answers

    async def cancel(self, ids: Sequence[str], *, reason: str = "") -> list[Cancelled | None]:
        answers: list[Cancelled | None] = []
        for some in slices(ids):
            reply = await self._job_script(CANCEL, reason, *some)
            answers += [_CANCELLED[answer] for answer in reply]
        return answers

    async def requeue(self, ids: Sequence[str]) -> list[Requeued | None]:
        answers: list[Requeued | None] = []
        for some in slices(ids):
            answers += [_REQUEUED[answer] for answer in await self._job_script(REQUEUE, *some)]
        return answers

    async def get(self, ids: Sequence[str]) -> list[JobRecord | None]:
        found: list[JobRecord | None] = []
        for some in slices(ids):
            records, fixed, aside = await self._job_script(GET, *some)
            for name in aside:
                self._report_aside(text(name))
            parts = zip(some, records, fixed, strict=True)
            found += [self._read_job(id_, *halves) for id_, *halves in parts]
        return found

    async def pause(self, queue: str, *, seconds: float | None = None) -> None:
        await self._job_script(PAUSE, queue, "inf" if seconds is None else micros(seconds))

    async def resume(self, queue: str) -> None:
        await self._job_script(PAUSE, queue, "")

    async def _prune_jobs(self, limit: int) -> int:
        pruned: int = 0
        while True:
            most = min(BATCH_MAX, limit - pruned)
            removed, looked, keys = await self._job_script(PRUNE_JOBS, most, BATCH_MAX)
            pruned += removed
            if looked < max(most, 1) and keys < BATCH_MAX:
                return pruned
