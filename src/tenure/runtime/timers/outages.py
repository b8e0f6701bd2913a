"""Runs timers without the store during an outage, and records these runs afterwards.

Only for timers with on_unavailable="run". Their cursors move in this process alone until the store
answers. Then the decisions of the outage are written to the history in one commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from msgspec.structs import replace

from tenure.core.ids import JobIds
from tenure.core.jobs.records import JobRecord
from tenure.core.schedules.documents import ANSWERED_LATE, RAN_UNLOCKED, Decision
from tenure.core.schedules.steps import Step, left_of
from tenure.core.schedules.ticks import Advance, Advanced
from tenure.observe.events import Events
from tenure.observe.timers import TicksMissed
from tenure.runtime.attempts.unlocked_runs import Outage, UnlockedRuns
from tenure.runtime.store_retry import Retrier
from tenure.runtime.timers.scheduling import Scheduling
from tenure.runtime.timers.state import TimerState
from tenure.runtime.timers.tick_reports import report_ran, report_skipped

__all__ = ["TimerOutages"]


class TimerOutages:
    """The outages of the timers of one ticker."""

    def __init__(
        self,
        scheduling: Scheduling,
        retrier: Retrier,
        events: Events,
        *,
        ids: JobIds,
        unlocked: UnlockedRuns,
        start: Callable[[JobRecord], None],
        withdraw: Callable[[JobRecord, str], Awaitable[None]],
        is_mine: Callable[[JobRecord], bool],
        stopped: asyncio.Event,
    ) -> None:
        """`withdraw` ends a run in the store that must not start. It gets the reason."""
        self._scheduling = scheduling
        self._retrier = retrier
        self._events = events
        self._ids = ids
        self._unlocked = unlocked
        self._start = start
        self._withdraw = withdraw
        self._is_mine = is_mine
        self._stopped = stopped
        self._tasks: set[asyncio.Task[None]] = set()

    async def drain(self) -> None:
        """Wait until all runs without the store are recorded, or a last try has failed."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def begin(self, timer: TimerState, move: Advance) -> None:
        """Begin an outage after a move without an answer. Retries until the store answers."""
        timer.outage = Outage(move, timer.cursor if move.seen is None else move.seen)
        task = asyncio.ensure_future(self._end(timer, timer.outage))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def take(
        self, timer: TimerState, outage: Outage, step: Step, replica: str, *, waits: bool
    ) -> bool:
        """Run a tick without the store, and move the cursor in this process only.

        Returns False if the tick must wait for an unfinished run in this process.
        """
        if step.runs and waits and self._unlocked.is_full(timer.plan):
            return False
        for decision in step.passed:
            outage.note(decision)
            if decision.outcome == "skipped":
                report_skipped(self._events, timer.plan, decision.reason)
        if step.runs:
            self._run(timer, outage, step, replica)
        timer.cursor = outage.upto = step.to
        return True

    def _run(self, timer: TimerState, outage: Outage, step: Step, replica: str) -> None:
        name, now = timer.plan.name, self._scheduling.time.now()
        if self._scheduling.is_frozen(name, step.to):
            report_skipped(self._events, timer.plan, "paused")
            outage.skipped(step.to, "paused")
        elif self._unlocked.start(timer.plan, step, previous=timer.last_run, now=now):
            outage.ran(step.to, replica)
            timer.last_run = step.to
        else:
            outage.skipped(step.to, "overlap")

    async def _end(self, timer: TimerState, outage: Outage) -> None:
        """Record the decisions of an outage once the store answers, so no tick is caught up."""
        look_up = partial(self._scheduling.look_up, outage.move)
        try:
            first = await self._retrier.until_answered("commit", look_up, self._stopped)
            await self._take_first(timer, outage, first)
            cursor = first.cursor if timer.is_shared else outage.seen
            while lines := outage.take_lines():  # more ticks may run meanwhile
                cursor = await self._record(timer, outage, lines, cursor)
        except Exception:  # noqa: BLE001 - logged by `Retrier`, and this ticker is about to stop
            return
        finally:
            timer.outage, timer.pending = None, ""
            timer.wake_up.set()

    async def _take_first(self, timer: TimerState, outage: Outage, first: Advanced) -> None:
        """Start or withdraw the run of the first tick, if the store has carried out its move.

        The store may have done so before or after the outage. Later ticks may have been decided
        here since, and then the run is withdrawn.
        """
        run, tick = first.run, outage.move.to
        if run is None:
            return
        has_passed = outage.upto >= tick
        is_wanted = not has_passed and timer.still_runs(tick, seen=outage.seen, now=first.now)
        timer.cursor = max(timer.cursor, tick)
        if not self._is_mine(run):
            if not outage.has_run_first:
                report_ran(self._events, timer.plan, outage.move, first)
            return
        if is_wanted:
            report_ran(self._events, timer.plan, outage.move, first)
            timer.last_run = tick
            self._start(run)
        elif outage.has_run_first:
            await self._withdraw(run, RAN_UNLOCKED)
        else:
            self._events.emit(TicksMissed(timer.plan.name, 1, "late"))
            await self._withdraw(run, ANSWERED_LATE)

    async def _record(
        self, timer: TimerState, outage: Outage, lines: list[Decision], cursor: int
    ) -> int:
        """Write the lines of an outage, and move the cursor past them. Returns the new cursor.

        A repeat is the same move under the same id, so a lost reply does not duplicate the lines.
        """
        passed = [line for line in lines if line.outcome == "ran"]
        for line in lines:
            # Other replicas may have decided ticks that did not run here.
            left = None if line in passed else left_of(timer.plan.definition, line, cursor)
            passed += [] if left is None else [left]
        move = replace(
            outage.move,
            id=self._ids.make(),
            to=outage.upto,
            due=0,
            run=None,
            passed=tuple(sorted(passed, key=lambda line: line.first)),
            records=True,
        )
        record = partial(self._scheduling.advance, move)
        answer = await self._retrier.until_answered("commit", record, self._stopped)
        for line in move.passed:
            if line.outcome == "missed" and answer.outcome == "done":
                self._events.emit(TicksMissed(timer.plan.name, line.ticks, line.reason))
        if not timer.is_shared:
            return cursor
        timer.cursor = max(timer.cursor, answer.cursor)
        return answer.cursor
