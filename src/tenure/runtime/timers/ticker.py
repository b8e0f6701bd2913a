"""The ticker: moves the cursors of schedules when their ticks are due. There is no leader.

Every replica sleeps until the next tick of each schedule, and then asks the store to move its
cursor. One replica gets the run; the others learn that the tick has passed. A ticker's state may be
lost or out of date at any time, because the store decides each tick.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence

from msgspec.structs import replace

from tenure.core.ids import JobIds
from tenure.core.jobs.records import JobRecord, NewJob
from tenure.core.schedules.definition import Plan
from tenure.core.schedules.documents import ANSWERED_LATE, Decision
from tenure.core.schedules.records import Commit
from tenure.core.schedules.steps import Step, bounds, next_step, run_of
from tenure.core.schedules.ticks import Advance, Advanced
from tenure.errors import StoreError
from tenure.observe.events import Events
from tenure.observe.timers import TicksMissed
from tenure.runtime.attempts.backlog import Backlog
from tenure.runtime.attempts.unlocked_runs import UnlockedRuns, runs_unlocked
from tenure.runtime.batcher import Batcher
from tenure.runtime.store_retry import Retrier
from tenure.runtime.timers.declarations import Declarations
from tenure.runtime.timers.outages import TimerOutages
from tenure.runtime.timers.scheduling import Scheduling
from tenure.runtime.timers.state import TimerState
from tenure.runtime.timers.tick_batches import TickBatches
from tenure.runtime.timers.tick_reports import report_ran, report_skipped
from tenure.runtime.timers.timer_slots import TimerSlots
from tenure.stores.contract import Store

__all__ = ["Ticker"]

log = logging.getLogger("tenure")

# The longest sleep: clocks may be set, and time zone rules may change.
_LOOK_EVERY = 60.0
# How soon to retry a tick at its limit. The end of a run in this process wakes it earlier.
_HELD = 1.0
# After this time an unanswered tick is only looked up, not sent again: its run may be finished and
# pruned by then. Finished runs are kept for at least 60 s.
_SENT_FOR = 20.0


class Ticker:
    """Ticks the schedules of one worker."""

    def __init__(
        self,
        store: Store,
        retrier: Retrier,
        events: Events,
        plans: Sequence[Plan],
        *,
        replica: Callable[[], str | None],
        start: Callable[[JobRecord], None],
        withdraw: Callable[[JobRecord, str], Awaitable[None]],
        backlog: Backlog,
        unlocked: UnlockedRuns,
    ) -> None:
        """`start` starts a run; `withdraw` ends a run in the store that must not start any more."""
        self._clock = store.clock
        self._retrier = retrier
        self._events = events
        self._replica = replica
        self._start = start
        self._withdraw = withdraw
        self._unlocked = unlocked
        self._ids = JobIds(self._clock)
        self._commits = Batcher(store.schedules.commit, weigh=_weight)
        self._scheduling = Scheduling(store, commit=self._commits.add, events=events)
        self._time = self._scheduling.time
        self._timers = [TimerState(plan) for plan in plans]
        self._stopped = asyncio.Event()
        self._outages = TimerOutages(
            self._scheduling,
            retrier,
            events,
            ids=self._ids,
            unlocked=unlocked,
            start=start,
            withdraw=withdraw,
            is_mine=self._is_mine,
            stopped=self._stopped,
        )
        self._declarations = Declarations(
            self._scheduling,
            retrier,
            events,
            self._clock,
            self._timers,
            stopped=self._stopped,
            on_declared=self.look_again,
        )
        self._slots = TimerSlots(self._clock, events, backlog)
        self._room = TickBatches()
        self._room_unlocked = TickBatches()
        self._held: dict[
            TimerState, None
        ] = {}  # a dict, for an order that does not depend on addresses

    @property
    def pending(self) -> set[str]:
        """Runs that the store may have created for this replica, without an answer so far."""
        return {timer.pending for timer in self._timers if timer.pending}

    async def run(self) -> None:
        """Tick until `stop` is called. A tick that is in flight then is still decided."""
        if not self._timers:
            await self._stopped.wait()
            return
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._declarations.run())
                for timer in self._timers:
                    group.create_task(self._follow(timer))
            await self._outages.drain()
        finally:
            self._outages.close()
            self._commits.close()

    def stop(self) -> None:
        self._stopped.set()
        self._declarations.hurry()
        self.look_again()

    def look_again(self) -> None:
        """Look at all timers again, for example after the replica has joined under a new id."""
        for timer in self._timers:
            timer.wake_up.set()

    def runs_ended(self, names: Collection[str]) -> None:
        """Look again at the timers among these that were at their limit."""
        for timer in [held for held in self._held if held.plan.name in names]:
            timer.wake_up.set()
            self._held.pop(timer, None)

    def slot_freed(self) -> None:
        """Look again at the timers that wait for a slot."""
        self._slots.freed()

    # Ticking.

    async def _follow(self, timer: TimerState) -> None:
        while not self._stopped.is_set():
            timer.wake_up.clear()
            replica = self._replica()
            if not timer.ruler or replica is None:
                await self._clock.wait(timer.wake_up, None)
                continue
            try:
                pause = await self._look(timer, replica)
            except Exception:  # an error in one timer must not stop the others or the worker
                name = timer.plan.name
                log.exception("timer %r could not tick", name, extra={"timer": name})
                pause = _HELD
            if pause > 0 and not self._stopped.is_set():
                await self._clock.wait(timer.wake_up, min(pause, _LOOK_EVERY))

    async def _look(self, timer: TimerState, replica: str) -> float:
        """Do what is due. Returns how long to wait before the next look."""
        # Other timers wait for the store inside their own tasks, as long as it is down.
        is_unlocked = runs_unlocked(timer.plan.definition)
        async with self._room_unlocked if is_unlocked else self._room:
            if self._stopped.is_set():
                return 0.0
            now = self._time.now()
            step = next_step(timer.plan.definition, timer.cursor, now)
            if isinstance(step, Step):
                waits = timer.waits(step)
                step = self._beside_unlocked(timer, step, waits=waits)
                if step is None:
                    self._held[timer] = None
                    return _HELD
                if step.runs and timer.runs_here and not self._slots.free:
                    self._slots.wait(timer)
                    return _HELD
                return await self._take(timer, step, replica, waits=waits)
            timer.is_behind = False
            return _LOOK_EVERY if step is None else (step - now) / 1e6

    def _beside_unlocked(self, timer: TimerState, step: Step, *, waits: bool) -> Step | None:
        """Return the step that may happen beside a run without the store, which has no job.

        None: the tick waits until that run ends.
        """
        overlap = timer.plan.definition.overlap
        is_free = not step.runs or overlap == "allow" or timer.outage is not None
        if is_free or timer.plan.name not in self._unlocked.timers:
            return step
        if overlap != "skip" or waits:
            return None
        skipped = Decision(outcome="skipped", reason="overlap", first=step.to, last=step.to)
        return replace(step, runs=False, passed=(*step.passed, skipped))

    async def _take(self, timer: TimerState, step: Step, replica: str, *, waits: bool) -> float:
        """Try to move the cursor. Returns how long to wait before the next look."""
        if timer.outage is not None:
            if self._outages.take(timer, timer.outage, step, replica, waits=waits):
                return 0.0
            self._held[timer] = None
            return _HELD
        move = self._move(timer, step, replica, waits=waits)
        timer.pending = move.id
        self._slots.send(timer)
        try:
            answer = await self._send(timer, move)
            if answer is None:
                return 0.0
            return await self._answered(timer, move, answer)
        except StoreError:  # also for errors that persist, such as a read-only disk
            self._outages.begin(timer, move)
            return 0.0
        finally:
            if timer.outage is None:
                timer.pending = ""
            self._slots.answered(timer)

    def _move(self, timer: TimerState, step: Step, replica: str, *, waits: bool) -> Advance:
        plan, id_ = timer.plan, self._ids.make()
        limit, own = bounds(plan.definition, waits=waits)
        return Advance(
            id=id_,
            name=plan.name,
            ruler=timer.ruler,
            revision=timer.revision,
            seen=timer.cursor if timer.is_shared else None,
            to=step.to,
            due=step.due,
            run=self._run(timer, id_, step) if step.runs else None,
            replica=replica if timer.runs_here else "",
            rest=plan.definition.rest,
            limit=limit,
            own=own,
            passed=step.passed,
        )

    def _run(self, timer: TimerState, id_: str, step: Step) -> NewJob:
        chance = self._clock.random()
        return run_of(
            timer.plan, id_, tick=step.to, due=step.due, previous=timer.last_run, chance=chance
        )

    async def _send(self, timer: TimerState, move: Advance) -> Advanced | None:
        """Return the store's answer, however long it takes; None if this ticker was stopped.

        Raises StoreError at once for a timer that runs without the store.

        The first try may have moved the cursor although its reply was lost, so a repeat sends the
        same move. If the tick must not run any more, because a newer tick is due or its run may
        have been pruned, the repeat only looks up the outcome.
        """
        began, tries = self._clock.boot(), 0

        async def advance() -> Advanced:
            nonlocal tries
            tries += 1
            is_late = self._clock.boot() - began > _SENT_FOR
            if tries == 1 or (not is_late and self._is_newest(timer, move)):
                return await self._scheduling.advance(move)
            return await self._scheduling.look_up(move)

        if runs_unlocked(timer.plan.definition):
            return await advance()
        try:
            return await self._retrier.until_answered("commit", advance, self._stopped)
        except Exception:  # noqa: BLE001 - logged by `Retrier`, and this ticker is about to stop
            return None

    def _is_newest(self, timer: TimerState, move: Advance) -> bool:
        """Return whether the tick of a move is still the current one."""
        if timer.plan.definition.rests:
            return True
        step = next_step(timer.plan.definition, timer.cursor, self._time.now())
        return isinstance(step, Step) and step.to == move.to

    async def _answered(self, timer: TimerState, move: Advance, answer: Advanced) -> float:
        """Act on an answer. Returns how long to wait before the next look."""
        # The answer may come late: the store may have paused after it decided the move.
        seen = timer.cursor if move.seen is None else move.seen
        is_late = move.run is not None and not timer.still_runs(move.to, seen=seen, now=answer.now)
        match answer.outcome:
            case "done" | "skipped":
                await self._decided(timer, move, answer, is_late=is_late)
                return 0.0
            case "early":
                return answer.ready_in
            case "held":
                self._held[timer] = None
                return _HELD * (0.5 + 0.5 * self._clock.random())
            case "passed" if (answer.ruler, answer.revision) == (timer.ruler, timer.revision):
                timer.moved(answer)
                # The replica that got the tick may also have a late answer, and withdraw its run.
                # Until then the next tick would be skipped.
                if is_late:
                    timer.wake_up.clear()
                return _HELD if is_late else 0.0
            case "passed" | "unknown":
                timer.ruler = ""
                self._declarations.hurry()
                return 0.0
            case "gone":
                return _HELD  # the heartbeat learns this as well, and joins again

    async def _decided(
        self, timer: TimerState, move: Advance, answer: Advanced, *, is_late: bool
    ) -> None:
        last_run = timer.last_run
        timer.moved(answer)
        if not timer.is_shared:
            timer.cursor = move.to
        for decision in move.passed:
            if decision.outcome == "missed":
                self._events.emit(TicksMissed(move.name, decision.ticks, decision.reason))
            else:
                report_skipped(self._events, timer.plan, decision.reason)
        if answer.outcome == "skipped":
            report_skipped(self._events, timer.plan, answer.reason)
        is_mine = answer.run is not None and self._is_mine(answer.run)
        if move.run is not None and answer.outcome == "done" and not (is_mine and is_late):
            report_ran(self._events, timer.plan, move, answer)
        if answer.run is None or not is_mine:
            return
        timer.has_withdrawn = is_late
        if not is_late:
            self._start(answer.run)
            return
        timer.last_run = last_run
        self._events.emit(TicksMissed(move.name, 1, "late"))
        # The next tick would be skipped while this run is unfinished.
        await self._withdraw(answer.run, ANSWERED_LATE)

    def _is_mine(self, run: JobRecord) -> bool:
        """Return whether this replica may start a run.

        The answer may come after the replica was declared dead and its runs were recovered.
        """
        return run.state == "running" and run.replica == self._replica()


def _weight(commit: Commit) -> int:
    return 0 if commit.run is None else len(commit.run.payload)
