"""Declares the timers of a worker: the store learns that their definitions still have a replica.

A definition rules for a minute after its last declaration, so each worker declares its own three
times as often. Definitions that do not rule, or that have a former name, are registered instead:
`core.schedules.registration` then decides again which definition rules.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tenure.core.clock import Clock
from tenure.core.schedules.definition import Plan
from tenure.core.schedules.documents import DECLARED_FOR
from tenure.core.schedules.registration import Registered, Registration
from tenure.observe.events import Events
from tenure.runtime.store_retry import Retrier
from tenure.runtime.timers.future_timers import AheadTimers
from tenure.runtime.timers.scheduling import Scheduling
from tenure.runtime.timers.state import TimerState

__all__ = ["Declarations"]

_DECLARE_EVERY = DECLARED_FOR / 3


class Declarations:
    """Declares the definitions of one ticker. `run` ends once `stopped` is set."""

    def __init__(
        self,
        scheduling: Scheduling,
        retrier: Retrier,
        events: Events,
        clock: Clock,
        timers: Sequence[TimerState],
        *,
        stopped: asyncio.Event,
        on_declared: Callable[[], None],
    ) -> None:
        self._scheduling = scheduling
        self._retrier = retrier
        self._clock = clock
        self._timers = timers
        self._stopped = stopped
        self._on_declared = on_declared
        self._ahead = AheadTimers(events)
        self._is_urgent = asyncio.Event()

    def hurry(self) -> None:
        """Declare at once, because a timer no longer rules or the ticker stops."""
        self._is_urgent.set()

    async def run(self) -> None:
        while not self._stopped.is_set():
            self._is_urgent.clear()
            await self._declare()
            await self._clock.wait(self._is_urgent, _DECLARE_EVERY)

    async def _declare(self) -> None:
        """Declare the ruling definitions, register the others, and wake all timers."""
        rulers = {timer: timer.ruler for timer in self._timers}

        async def declare() -> list[tuple[TimerState, Registered]]:
            # Renames are registered each time, because an old replica may have declared the former
            # name again. So are timers that are ahead, because an operator may have reset them.
            steady = {
                timer.plan.name: timer
                for timer, ruler in rulers.items()
                if ruler and not timer.plan.renamed_from and timer not in self._ahead
            }
            lost = await self._scheduling.declare(
                [(name, rulers[timer]) for name, timer in steady.items()]
            )
            kept = {steady[name] for name in steady.keys() - {*lost}}
            others = [timer for timer in self._timers if timer not in kept]
            registrations = [_registration(timer.plan) for timer in others]
            registered = await self._scheduling.register(registrations)
            return list(zip(others, registered, strict=True))

        try:
            answers = await self._retrier.until_answered("declare", declare, self._stopped)
        except Exception:  # noqa: BLE001 - logged by `Retrier`, and this ticker is about to stop
            return
        for timer, answer in answers:
            timer.registered(answer)
        self._ahead.look(self._timers, self._scheduling.time.now())
        self._on_declared()


def _registration(plan: Plan) -> Registration:
    definition = plan.definition
    return Registration(
        name=plan.name,
        digest=definition.digest,
        calendar=definition.calendar,
        definition=definition.encode(),
        renamed_from=plan.renamed_from,
    )
