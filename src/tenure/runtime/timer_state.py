"""One timer or schedule as a ticker knows it: the plan, and what the store has told about it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

from tenure.core.schedules.advancing import Advanced
from tenure.core.schedules.definition import Plan
from tenure.core.schedules.freezing import seconds_ahead
from tenure.core.schedules.planting import Planted
from tenure.runtime.unlocked_runs import Outage

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
    poked: asyncio.Event = field(default_factory=asyncio.Event)
    pending: str = ""
    """The run that was asked for, until there is an answer."""
    outage: Outage | None = None
    """What has run without the store, until that is recorded."""
    yields: bool = False
    """Whether another definition rules, as far as it was told."""

    @property
    def runs_here(self) -> bool:
        """Whether its ticks run here; those of a schedule only enqueue."""
        return self.plan.definition.kind == "timer"

    @property
    def is_shared(self) -> bool:
        """Whether its cursor is the store's; a replica's own ticks are its own business."""
        return self.plan.definition.each == "cluster"

    def planted(self, answer: Planted) -> None:
        self._tell(yields=not answer.ruler)
        self.ruler, self.revision = answer.ruler, answer.revision
        self.last_run = answer.last_run
        if self.is_shared:
            # An older answer does not set it back, only an operator who resets one that is ahead.
            is_ahead = seconds_ahead(self.cursor, answer.now) > 0
            self.cursor = answer.cursor if is_ahead else max(self.cursor, answer.cursor)
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
