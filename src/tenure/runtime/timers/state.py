"""One timer or schedule as a ticker knows it: the plan, and what the store has told about it."""

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
    """How one schedule stands, as far as it is known here."""

    plan: Plan
    ruler: str = ""
    """The digest of its definition while that rules; empty until then."""
    revision: int = 0
    cursor: int = 0
    last_run: int = 0
    wake_up: asyncio.Event = field(default_factory=asyncio.Event)
    pending: str = ""
    """The run that was asked for, until there is an answer."""
    outage: Outage | None = None
    """What has run without the store, until that is recorded."""
    yields: bool = False
    """Whether another definition rules, as far as it was told."""
    has_withdrawn: bool = False
    """Whether the run of its last tick was withdrawn, because the store answered too late."""
    is_behind: bool = True
    """Whether a tick was due at every look up to now: it may be catching up."""
    fresh: int = 0
    """The last tick that has waited although it was on time; see `waits`."""

    @property
    def runs_here(self) -> bool:
        """Whether its ticks run here; those of a schedule only enqueue."""
        return self.plan.definition.kind == "timer"

    @property
    def is_shared(self) -> bool:
        """Whether its cursor is the store's; a replica's own ticks are its own business."""
        return self.plan.definition.each == "cluster"

    def registered(self, answer: Registered) -> None:
        self._log_change(yields=not answer.ruler)
        self.ruler, self.revision = answer.ruler, answer.revision
        is_known_better = self.outage is not None and self.last_run > answer.last_run
        self.last_run = self.last_run if is_known_better else answer.last_run
        if self.is_shared:
            # An older answer does not set it back, only an operator who resets one that is ahead.
            is_ahead = seconds_ahead(self.cursor, answer.now) > 0
            self.cursor = answer.cursor if is_ahead else max(self.cursor, answer.cursor)
        elif not self.cursor:
            self.cursor = answer.now
        self.wake_up.set()

    def still_runs(self, tick: int, *, seen: int, now: int) -> bool:
        """Return whether a tick that was asked for after `seen` still runs, as the answer comes.

        Of two ticks in a row only one is refused because a newer one is due: a store that is
        always slow must not stop the timer.
        """
        definition, only_newest = self.plan.definition, not self.has_withdrawn
        return still_runs(definition, tick, cursor=seen, now=now, only_newest=only_newest)

    def waits(self, step: Step) -> bool:
        """Return whether a tick waits for a run that is unfinished, instead of being skipped.

        So does each tick that is made up for. The one after them waits while it is on time: the
        run in its way has only just begun.
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
            )
        elif self.yields and not yields:
            log.info("%s %r ticks here from now on", self.plan.definition.kind, self.plan.name)
        self.yields = yields

    def moved(self, answer: Advanced) -> None:
        """Take over what the store says."""
        if self.is_shared:
            self.cursor = answer.cursor
        self.last_run = answer.last_run
