"""Deletes jobs for good; running ones are cancelled first, and deleted when they have ended.

Between these steps a job may be requeued and start again, so the steps repeat until it is gone.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from tenure.core.jobs.records import Deleted
from tenure.errors import JobNotFound, JobUnreadable
from tenure.observe.events import Events
from tenure.runtime.attempts.job_ends import report_cancelled
from tenure.stores.contract import Store

__all__ = ["Deletion"]

_REASON = "to be deleted"


class Deletion:
    """One call that deletes jobs, at most as many as one call to the store takes."""

    def __init__(
        self,
        store: Store,
        events: Events,
        wait: Callable[[str, float | None], Awaitable[object]],
        *,
        cancel: bool,
        timeout: float | None,
    ) -> None:
        """`cancel`: whether to cancel running jobs, and `wait` for their end, `timeout` seconds."""
        self._store = store
        self._wait = wait
        self._events = events
        self._cancels = cancel
        self._deadline = math.inf if timeout is None else store.clock.boot() + timeout

    async def run(self, ids: Sequence[str]) -> list[Deleted | None]:
        """Delete jobs; return an answer for each. Raises TimeoutError if one does not end in time.

        None means that there was no such job. "running" only comes without `cancel`.
        """
        answers = dict(zip(ids, await self._store.jobs.delete(ids), strict=True))
        running = [id_ for id_, answer in answers.items() if answer == "running"]
        while self._cancels and running:
            await self._cancel(running)
            for id_ in running:
                # Unreadable, or gone as its retention is over: the delete that follows answers.
                with suppress(JobNotFound, JobUnreadable):
                    await self._wait(id_, self._left())
            again = await self._store.jobs.delete(running)
            # Its retention may have been over at its end: then it is gone without a delete.
            answers |= {
                id_: answer or "deleted" for id_, answer in zip(running, again, strict=True)
            }
            running = [id_ for id_ in running if answers[id_] == "running"]
        return [answers[id_] for id_ in ids]

    async def _cancel(self, ids: Sequence[str]) -> None:
        before = await self._store.jobs.get(ids)
        answers = await self._store.jobs.cancel(ids, reason=_REASON)
        cancelled = [
            (job, answer) for job, answer in zip(before, answers, strict=True) if job is not None
        ]
        jobs, outcomes = [job for job, _ in cancelled], [answer for _, answer in cancelled]
        await report_cancelled(self._store, self._events, jobs, outcomes)

    def _left(self) -> float | None:
        left = self._deadline - self._store.clock.boot()
        return None if left == math.inf else max(0.0, left)
