"""The state of one timer or schedule in a ticker: its plan, and what the store has answered.

All of it can be lost or out of date. The store decides each tick again.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

from tenure.core.schedules.definition import Plan
from tenure.core.schedules.pauses import seconds_ahead
from tenure.core.schedules.registration import Registered
from tenure.core.schedules.steps import Step, still_runs
from tenure.core.schedules.ticks import Advanced
from tenure.runtime.attempts.unlocked_runs import Outage

__all__ = ["TimerState"]

log = logging.getLogger("tenure")


@dataclass(eq=False, slots=True)
class TimerState:
    """The state of one schedule in this process."""

    plan: Plan
    ruler: str = ""
    """The digest of its definition while that rules; empty otherwise."""
    revision: int = 0
    cursor: int = 0
    last_run: int = 0
    wake_up: asyncio.Event = field(default_factory=asyncio.Event)
    pending: str = ""
    """The move in flight, until the store answers."""
    outage: Outage | None = None
    """The ticks that ran without the store, until they are recorded."""
    yields: bool = False
    """Whether the log says that another definition rules."""
    has_withdrawn: bool = False
    """Whether the run of its last tick was withdrawn because the answer came too late."""
    is_behind: bool = True
    """Whether every look so far found a due tick: it may be catching up."""
    fresh: int = 0
    """The last tick that waited although it was on time; see `waits`."""

    @property
    def runs_here(self) -> bool:
        """Whether its ticks run in this process. Ticks of a schedule only enqueue jobs."""
        return self.plan.definition.kind == "timer"

    @property
    def is_shared(self) -> bool:
        """Whether replicas share its cursor: false for a timer with each="replica"."""
        return self.plan.definition.each == "cluster"

    def registered(self, answer: Registered) -> None:
        self._log_change(yields=not answer.ruler)
        self.ruler, self.revision = answer.ruler, answer.revision
        is_known_better = self.outage is not None and self.last_run > answer.last_run
        self.last_run = self.last_run if is_known_better else answer.last_run
        if self.is_shared:
            # An older answer must not set the cursor back. Only an operator's reset may.
            is_ahead = seconds_ahead(self.cursor, answer.now) > 0
            self.cursor = answer.cursor if is_ahead else max(self.cursor, answer.cursor)
        elif not self.cursor:
            self.cursor = answer.now
        self.wake_up.set()

    def still_runs(self, tick: int, *, seen: int, now: int) -> bool:
        """Return whether the tick of a late answer still runs although a newer tick is due.

        Of two ticks in a row only one is skipped for that reason. Otherwise a store that is always
        slow would stop the timer.
        """
        definition, only_newest = self.plan.definition, not self.has_withdrawn
        return still_runs(definition, tick, cursor=seen, now=now, only_newest=only_newest)

    def waits(self, step: Step) -> bool:
        """Return whether a tick waits for an unfinished run in place of being skipped.

        Ticks that are caught up wait. So does the first tick after them while it is on time,
        because the run before it has only just begun.
        """
        if step.is_made_up:
            self.is_behind = True
            return step.to != self.fresh
        if self.plan.definition.catch_up == "all" and self.is_behind:
            self.fresh = step.to
            return True
        return False

    def _log_change(self, *, yields: bool) -> None:
        if yields and not self.yields:
            log.warning(
                "%s %r does not tick here: another definition of it rules, and was declared within "
                "the last minute. It takes over a minute after the last process with that one left",
                self.plan.definition.kind,
                self.plan.name,
                extra={"timer": self.plan.name},
            )
        elif self.yields and not yields:
            kind, name = self.plan.definition.kind, self.plan.name
            log.info("%s %r ticks here from now on", kind, name, extra={"timer": name})
        self.yields = yields

    def moved(self, answer: Advanced) -> None:
        """Take over the store's answer."""
        if self.is_shared:
            self.cursor = answer.cursor
        self.last_run = answer.last_run
