"""Timers in an outage of the store: they run without it, and what they ran is recorded after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec.structs import replace

from tenure.core.ids import JobIds
from tenure.core.records import JobRecord
from tenure.core.schedules.advancing import Advance
from tenure.core.schedules.documents import Decision
from tenure.core.schedules.ticking import Step
from tenure.observe.events import Events, TickSkipped
from tenure.runtime.patience import Patience
from tenure.runtime.scheduling import Scheduling
from tenure.runtime.timer_state import TimerState
from tenure.runtime.unlocked_runs import Outage, UnlockedRuns

__all__ = ["NEVER", "TimerOutages"]

NEVER: Final = 2**62
"""An instant that does not come: a move that is due then is only looked up."""


class TimerOutages:
    """The outages of one ticker's timers."""

    def __init__(
        self,
        scheduling: Scheduling,
        patience: Patience,
        events: Events,
        *,
        ids: JobIds,
        unlocked: UnlockedRuns,
        start: Callable[[JobRecord], None],
        withdraw: Callable[[JobRecord], None],
        stopped: asyncio.Event,
    ) -> None:
        """`withdraw` ends a run that was made although its tick has run without the store."""
        self._scheduling = scheduling
        self._patience = patience
        self._events = events
        self._ids = ids
        self._unlocked = unlocked
        self._start = start
        self._withdraw = withdraw
        self._stopped = stopped
        self._tasks: set[asyncio.Task[None]] = set()

    async def drain(self) -> None:
        """Wait until what ran without the store is recorded, or a last try has failed."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def begin(self, timer: TimerState, move: Advance) -> None:
        """Take note that the store has not answered a move; watch out for its return."""
        timer.outage = Outage(move)
        task = asyncio.ensure_future(self._end(timer, timer.outage))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def take(self, timer: TimerState, outage: Outage, step: Step, replica: str) -> None:
        """Run a tick although the store does not answer; the cursor moves here alone."""
        name, now = timer.plan.name, self._scheduling.time.now()
        if not step.runs or self._scheduling.is_frozen(name, step.to):
            self._events.emit(TickSkipped(name, "paused" if step.runs else "blackout"))
        elif self._unlocked.start(timer.plan, step, previous=timer.last_run, now=now):
            outage.add(step.to, replica)
            timer.last_run = step.to
        timer.cursor = step.to

    async def _end(self, timer: TimerState, outage: Outage) -> None:
        """Record what has run without the store, once it answers: none of that is caught up."""
        # A move without a run is made up for: its lines in the history are still true.
        asked = outage.move if outage.move.run is None else replace(outage.move, due=NEVER)
        look_up = partial(self._scheduling.advance, asked)
        try:
            first = await self._patience.until_answered("commit", look_up, self._stopped)
            if first.run is not None:  # it was decided, and the reply was lost
                has_run = outage.ran is not None and outage.ran.first == outage.move.to
                (self._withdraw if has_run else self._start)(first.run)
            while (ran := outage.ran) is not outage.recorded:  # more may run meanwhile
                await self._record(timer, outage, ran)
        except Exception:  # noqa: BLE001 - told by `Patience`, and this ticker is about to stop
            return
        finally:
            timer.outage, timer.pending = None, ""
            timer.poked.set()

    async def _record(self, timer: TimerState, outage: Outage, ran: Decision | None) -> None:
        """Write one line about all runs of an outage, and move the cursor behind them.

        Repeats are the same move under the same id: a reply that is lost makes no second line.
        """
        if ran is not None:
            line = _after(ran, outage.recorded)
            move = replace(
                outage.move,
                id=self._ids.make(),
                to=line.last,
                due=0,
                run=None,
                passed=(line,),
                records=True,
            )
            record = partial(self._scheduling.advance, move)
            answer = await self._patience.until_answered("commit", record, self._stopped)
            if timer.is_shared:
                timer.cursor = max(timer.cursor, answer.cursor)
        outage.recorded = ran


def _after(ran: Decision, recorded: Decision | None) -> Decision:
    """Return what has run since the last record."""
    if recorded is None:
        return ran
    first, ticks = recorded.last + 1, ran.ticks - recorded.ticks
    return replace(ran, first=ran.last if ticks == 1 else first, ticks=ticks)
