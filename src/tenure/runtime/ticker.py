"""The ticker: moves the cursors of schedules when their ticks are due. There is no leader.

Every replica sleeps until the next tick of each schedule and then asks the store to move the cursor
from where it was seen. One of them gets the run; the others learn that it has passed. All that a
ticker knows can be lost, and may be wrong: the store decides.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from tenure.core.clock import Clock
from tenure.core.ids import JobIds
from tenure.core.records import BATCH_MAX, JobRecord, NewJob
from tenure.core.schedules import DECLARED_FOR, Advance, Advanced, Planted, Planting
from tenure.core.ticking import Plan, Step, bounds, next_step, run_of
from tenure.observe.events import Events, TickSkipped, TicksMissed, TimersFull
from tenure.runtime.patience import Patience
from tenure.runtime.store_time import StoreTime
from tenure.runtime.unstarted import Unstarted
from tenure.stores.contract import Store

__all__ = ["Ticker"]

log = logging.getLogger("tenure")

_DECLARE_EVERY = DECLARED_FOR / 3
# Nobody sleeps for longer: clocks are set, and rules of zones change.
_LOOK_EVERY = 60.0
# How soon a tick is tried again that there is no room for; the end of a run here comes earlier.
_HELD = 1.0
# Many timers are due at the same instant. The store answers others in between.
_AT_ONCE = 50
_NEVER: Final = 2**62
# How often it is told that ticks wait for a slot, and how many running timers are named.
_TELL_EVERY = 60.0
_NAMED_MAX = 10


@dataclass(eq=False, slots=True)
class _Hand:
    """How one schedule stands, as far as it is known here."""

    plan: Plan
    revision: int = 0
    cursor: int = 0
    last_run: int = 0
    poked: asyncio.Event = field(default_factory=asyncio.Event)
    pending: str = ""
    """The run that was asked for, until there is an answer."""
    yields: bool = False
    """Whether another definition rules, as far as it was told."""

    @property
    def is_timer(self) -> bool:
        """Whether its ticks run here; those of a schedule only enqueue."""
        return self.plan.definition.kind == "timer"

    @property
    def is_shared(self) -> bool:
        """Whether its cursor is the store's; a replica's own ticks are its own business."""
        return self.plan.definition.each == "cluster"

    def planted(self, answer: Planted) -> None:
        self._tell(yields=not answer.revision)
        self.revision, self.last_run = answer.revision, answer.last_run
        if self.is_shared:
            self.cursor = max(self.cursor, answer.cursor)
        elif not self.cursor:
            self.cursor = answer.now
        self.poked.set()

    def _tell(self, *, yields: bool) -> None:
        if yields and not self.yields:
            log.warning(
                "%s %r does not tick here: another definition of it rules, and was declared within "
                "the last minute. It takes over a minute after the last process with that one left",
                self.plan.definition.kind,
                self.plan.name,
            )
        elif self.yields and not yields:
            log.info("%s %r ticks here from now on", self.plan.definition.kind, self.plan.name)
        self.yields = yields

    def moved(self, answer: Advanced) -> None:
        """Take over what the store says."""
        if self.is_shared:
            self.cursor = answer.cursor
        self.last_run = answer.last_run


class Ticker:
    """The schedules of one worker."""

    def __init__(
        self,
        store: Store,
        patience: Patience,
        events: Events,
        plans: Sequence[Plan],
        *,
        replica: Callable[[], str | None],
        start: Callable[[JobRecord], None],
        unstarted: Unstarted,
    ) -> None:
        self._store = store
        self._clock: Clock = store.clock
        self._patience = patience
        self._events = events
        self._replica = replica
        self._start = start
        self._unstarted = unstarted
        self._ids = JobIds(self._clock)
        self._time = StoreTime(self._clock)
        self._hands = [_Hand(plan) for plan in plans]
        self._stopped = asyncio.Event()
        self._declares = asyncio.Event()
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._held: dict[_Hand, None] = {}  # in an order that does not depend on addresses
        self._without_slot: dict[_Hand, None] = {}
        self._told_full = -_TELL_EVERY

    @property
    def pending(self) -> set[str]:
        """Runs that may have been born here, and of which nobody here knows yet."""
        return {hand.pending for hand in self._hands if hand.pending}

    async def run(self) -> None:
        """Tick until `stop` is called; a tick that is being decided then is still decided."""
        if not self._hands:
            await self._stopped.wait()
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_declaring())
            for hand in self._hands:
                group.create_task(self._follow(hand))

    def stop(self) -> None:
        self._stopped.set()
        self._declares.set()
        self.poke()

    def poke(self) -> None:
        """Look again at all of them: the replica is another one, say."""
        for hand in self._hands:
            hand.poked.set()

    def runs_ended(self, names: Collection[str]) -> None:
        """Look again at those of these that there was no room for."""
        for hand in [one for one in self._held if one.plan.name in names]:
            hand.poked.set()
            self._held.pop(hand, None)

    def slot_freed(self) -> None:
        """Look again at as many as there are slots for, those that wait longest first."""
        for hand in list(self._without_slot)[: self._free_slots]:
            self._without_slot.pop(hand)
            hand.poked.set()

    # Declaring.

    async def _keep_declaring(self) -> None:
        while not self._stopped.is_set():
            self._declares.clear()
            for first in range(0, len(self._hands), BATCH_MAX):
                await self._declare(self._hands[first : first + BATCH_MAX])
            await self._clock.wait(self._declares, _DECLARE_EVERY)

    async def _declare(self, hands: list[_Hand]) -> None:
        plantings = [_planting(hand.plan) for hand in hands]

        async def plant() -> list[Planted]:
            sent = self._clock.boot()
            answers = await self._store.plant(plantings)
            self._time.heard(answers[0].now, sent)
            return answers

        try:
            answers = await self._patience.until_answered("plant", plant, self._stopped)
        except Exception:  # noqa: BLE001 - told by `Patience`, and this ticker is about to stop
            return
        for hand, answer in zip(hands, answers, strict=True):
            hand.planted(answer)

    # Ticking.

    async def _follow(self, hand: _Hand) -> None:
        while not self._stopped.is_set():
            hand.poked.clear()
            replica = self._replica()
            if not hand.revision or replica is None:
                await self._clock.wait(hand.poked, None)
                continue
            try:
                pause = await self._look(hand, replica)
            except Exception:  # one timer must not stop all others, nor the worker
                log.exception("timer %r could not tick", hand.plan.name)
                pause = _HELD
            if pause > 0 and not self._stopped.is_set():
                await self._clock.wait(hand.poked, min(pause, _LOOK_EVERY))

    async def _look(self, hand: _Hand, replica: str) -> float:
        """Do what is due; return how long to wait before the next look."""
        async with self._room:
            if self._stopped.is_set():
                return 0.0
            now = self._time.now()
            step = next_step(hand.plan.definition, hand.cursor, now)
            if isinstance(step, Step):
                if step.runs and hand.is_timer and not self._free_slots:
                    return self._wait_for_slot(hand)
                return await self._take(hand, step, replica)
            return _LOOK_EVERY if step is None else (step - now) / 1e6

    @property
    def _free_slots(self) -> int:
        """Return how many more runs may be asked for: each answer may be one to start."""
        asked = sum(bool(hand.pending) and hand.is_timer for hand in self._hands)
        return max(0, self._unstarted.free_runs - asked)

    def _wait_for_slot(self, hand: _Hand) -> float:
        """Leave the tick to other replicas until there is a slot; return how long to wait.

        The cursor stays. A run that waited here after its tick was decided would be nobody
        else's, and its time-out would count from the decision.
        """
        self._without_slot[hand] = None
        now = self._clock.boot()
        is_full = not (self._unstarted.suspects or self._unstarted.is_alone)
        if is_full and now - self._told_full >= _TELL_EVERY:
            self._told_full = now
            running = tuple(self._unstarted.running_timers[:_NAMED_MAX])
            told = TimersFull(hand.plan.name, self._unstarted.timer_concurrency, running)
            self._events.emit(told)
        return _HELD

    async def _take(self, hand: _Hand, step: Step, replica: str) -> float:
        """Try to move the cursor; return how long to wait before the next look."""
        move = self._move(hand, step, replica)
        hand.pending = move.id
        try:
            answer = await self._ask(hand, move)
            if answer is None:
                return 0.0
            return self._answered(hand, move, answer)
        finally:
            hand.pending = ""
            self.slot_freed()

    def _move(self, hand: _Hand, step: Step, replica: str) -> Advance:
        plan, id_ = hand.plan, self._ids.make()
        limit, own = bounds(plan.definition, is_made_up=step.is_made_up)
        return Advance(
            id=id_,
            name=plan.name,
            revision=hand.revision,
            seen=hand.cursor if hand.is_shared else None,
            to=step.to,
            due=step.due,
            run=self._run(hand, id_, step) if step.runs else None,
            replica=replica if hand.is_timer else "",
            rest=plan.definition.rest,
            limit=limit,
            own=own,
            passed=step.passed,
        )

    def _run(self, hand: _Hand, id_: str, step: Step) -> NewJob:
        chance = self._clock.random()
        return run_of(
            hand.plan, id_, tick=step.to, due=step.due, previous=hand.last_run, chance=chance
        )

    async def _ask(self, hand: _Hand, move: Advance) -> Advanced | None:
        """Return the store's answer, however long it takes; None: this ticker was stopped.

        After an outage the tick may not be wanted any more, because a newer one is due. Then the
        same move is only asked about: if it has happened its answer tells, and if not it is too
        early for it for ever.
        """

        async def advance() -> Advanced:
            is_wanted = self._is_wanted(hand, move)
            sent = self._clock.boot()
            answer = await self._store.advance(move if is_wanted else replace(move, due=_NEVER))
            self._time.heard(answer.now, sent)
            return answer if is_wanted or answer.outcome != "early" else replace(answer, ready_in=0)

        try:
            return await self._patience.until_answered("advance", advance, self._stopped)
        except Exception:  # noqa: BLE001 - told by `Patience`, and this ticker is about to stop
            return None

    def _is_wanted(self, hand: _Hand, move: Advance) -> bool:
        if hand.plan.definition.rests:
            return True
        step = next_step(hand.plan.definition, hand.cursor, self._time.now())
        return isinstance(step, Step) and step.to == move.to

    def _answered(self, hand: _Hand, move: Advance, answer: Advanced) -> float:
        """Do what follows from an answer; return how long to wait before the next look."""
        match answer.outcome:
            case "done" | "skipped":
                self._decided(hand, move, answer)
                return 0.0
            case "early":
                return answer.ready_in
            case "held":
                self._held[hand] = None
                return _HELD * (0.5 + 0.5 * self._clock.random())
            case "passed" if answer.revision == hand.revision:
                hand.moved(answer)
                return 0.0
            case "passed" | "unknown":
                hand.revision = 0
                self._declares.set()
                return 0.0
            case "gone":
                return _HELD  # its beat learns it as well, and joins anew

    def _decided(self, hand: _Hand, move: Advance, answer: Advanced) -> None:
        hand.moved(answer)
        if not hand.is_shared:
            hand.cursor = move.to
        for one in move.passed:
            if one.outcome == "missed":
                self._events.emit(TicksMissed(move.name, one.ticks, one.reason))
            else:
                self._events.emit(TickSkipped(move.name, one.reason))
        if answer.outcome == "skipped":
            self._events.emit(TickSkipped(move.name, answer.reason))
        run = answer.run
        # The answer may come after the replica was taken for dead, and its runs were stopped.
        if run is not None and run.state == "running" and run.replica == self._replica():
            self._start(run)


def _planting(plan: Plan) -> Planting:
    definition = plan.definition
    return Planting(
        name=plan.name,
        digest=definition.digest,
        calendar=definition.calendar,
        definition=definition.encode(),
        renamed_from=plan.renamed_from,
    )
