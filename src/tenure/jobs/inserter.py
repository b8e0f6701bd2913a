"""Storing jobs: natural batches, repeats after lost replies, and unique keys that are held.

A batch never waits for one of its jobs: a job whose unique key is held by an open transaction
leaves the batch and is tried again in batches of such jobs only.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from tenure.core.jobs.records import Inserted, NewJob
from tenure.core.store_policy import may_insert_again, may_wait_for_key, retry_after_error
from tenure.errors import StoreFull, StoreUnavailable
from tenure.runtime.batcher import Batcher, next_slice
from tenure.stores.contract import Store

__all__ = ["Inserter", "Refusal", "in_slices"]


class Refusal(Struct, frozen=True):
    """Why a full store has refused the last insert, and when, by the boot clock."""

    at: float
    reason: str


class Inserter:
    """Stores the jobs of one open app."""

    def __init__(
        self,
        store: Store,
        on_stored: Callable[[list[NewJob], list[Inserted]], None] | None = None,
    ) -> None:
        """`on_stored` is called once with each batch that the store has answered."""
        self._store = store
        self._on_stored = on_stored
        self._clock = store.clock
        self._batches: Batcher[NewJob, Inserted] = Batcher(self._insert, weigh=_weight)
        # Apart, because the store waits a moment for each key that is held.
        self._held_batches: Batcher[NewJob, Inserted] = Batcher(self._insert, weigh=_weight)
        # Of each key that is held: how many callers wait for it.
        self._held: Counter[str] = Counter()
        self.refusal: Refusal | None = None
        """The refusal of the last insert, for health checks; None if the store has taken it."""

    async def insert(self, new: NewJob) -> Inserted:
        """Store one job together with others; return the store's answer."""
        if new.unique is None or new.unique.key not in self._held:
            answer = await self._batches.add(new)
            if answer.outcome != "busy":
                return answer
        return await self._wait_for_key(new)

    async def insert_many(self, news: list[NewJob]) -> list[Inserted]:
        """Store many jobs, a slice in each round trip."""
        answers = await in_slices(news, self._insert)
        busy = [n for n, answer in enumerate(answers) if answer.outcome == "busy"]
        waits = (self._wait_for_key(news[n]) for n in busy)
        late = await asyncio.gather(*waits, return_exceptions=True)
        for n, answer in zip(busy, late, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            answers[n] = answer
        return answers

    async def _wait_for_key(self, new: NewJob) -> Inserted:
        """Try until the key is free; after a while answer that it is busy."""
        key = new.unique.key if new.unique is not None else ""
        begun, tries = self._clock.boot(), 0
        self._held[key] += 1
        try:
            while True:
                tries += 1
                await self._clock.sleep(retry_after_error(tries, self._clock.random()))
                answer = await self._held_batches.add(new)
                if answer.outcome != "busy" or not may_wait_for_key(self._clock.boot() - begun):
                    return answer
        finally:
            self._held[key] -= 1
            if not self._held[key]:
                del self._held[key]

    async def _insert(self, news: list[NewJob]) -> list[Inserted]:
        begun, failures = self._clock.boot(), 0
        while True:
            try:
                answers = await self._store.jobs.insert(news)
            except StoreFull as error:
                self.refusal = Refusal(self._clock.boot(), str(error))
                # It is still full in a second. But its "nothing was stored" is about this try only.
                if failures:
                    raise _in_doubt() from error
                raise
            except StoreUnavailable:
                failures += 1
                await self._clock.sleep(retry_after_error(failures, self._clock.random()))
                # Decided after the pause, since the process may have been suspended meanwhile.
                if not may_insert_again(failures, self._clock.boot() - begun):
                    raise
            else:
                self.refusal = None
                if self._on_stored is not None:
                    self._on_stored(news, answers)
                return await self._with_first_instants(answers) if failures else answers

    async def _with_first_instants(self, answers: list[Inserted]) -> list[Inserted]:
        """Correct the instants of jobs that an earlier try may have created."""
        created = {answer.id: answer.at for answer in answers if answer.outcome == "created"}
        with suppress(StoreUnavailable):  # they are stored, and that is what counts
            records = await self._store.jobs.get(list(created))
            created |= {record.id: record.created for record in records if record is not None}
        return [replace(answer, at=created.get(answer.id, answer.at)) for answer in answers]


async def in_slices(
    news: list[NewJob], insert: Callable[[list[NewJob]], Awaitable[list[Inserted]]]
) -> list[Inserted]:
    """Insert many jobs, a slice in each call; return all answers."""
    answers: list[Inserted] = []
    waiting = deque(news)
    while waiting:
        answers += await insert(next_slice(waiting, _weight))
    return answers


def _in_doubt() -> StoreUnavailable:
    """Return what to raise for a full store if an earlier try of the insert got no answer."""
    return StoreUnavailable(
        "the jobs may or may not be stored: the store did not answer at first, and had no room for "
        "a repeat. Give the store room, look for the jobs, and enqueue what is missing. With a "
        "unique key it is safe to enqueue again at once."
    )


def _weight(new: NewJob) -> int:
    return len(new.payload)
