"""What a store promises about timers and schedules.

A schedule's cursor and what its move causes change in one atomic step, so there is no leader, and a
tick has at most one run, ever: whatever is pruned, restarted, repeated or set back. Runs are jobs
and go the way of all jobs (`core.states`), with these differences:

- Only `advance` makes them. `requeue` answers "refused" for a job with a `schedule`.
- One with `rerun` false never returns to waiting: where another job would, `core.endings` lets it
  fail. So it is never run twice.

Decisions are remembered per schedule, the last DECISIONS_MAX of them. One that ran nothing and is
like the newest one - same outcome, same reason - is merged into it: `last`, `at` of the new one,
`ticks` of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tenure.core.schedules import (
    DECISIONS_MAX,
    Advance,
    Advanced,
    Decision,
    Planted,
    Planting,
    ScheduleRecord,
)

__all__ = ["ScheduleStore"]


class ScheduleStore(Protocol):
    """The schedule part of a store. At most BATCH_MAX items go into one call."""

    async def plant(self, schedules: Sequence[Planting]) -> list[Planted]:
        """Declare schedules; repeated every third of DECLARED_FOR by whoever declares them.

        A new name begins with its cursor at now: nothing is made up for.

        Where another definition was planted before, this one rules from now on if it was never
        seen here, or if nobody has declared the ruling one for DECLARED_FOR seconds: revision + 1.
        Otherwise it is an older one of a rolling deploy: 0. The cursor moves up to now if the
        `calendar` is another one; else it stays, and so do ticks that nobody has decided about.

        With `renamed_from`, it takes over from those of these names that are there and were not
        taken over by another one; a new name from their heirs then, the last of each chain of
        successors as far as they are known. Those are left with `successor` set and revision + 1,
        so that whoever still moves their cursors learns of it. It goes on at their latest cursor;
        other calendars do not count, and if a new name finds no other it begins at now. The latest
        run and fence go along, and of all their freezes and its own the one that lasts longest.

        A name that was taken over answers 0 while its heir is declared, and is not itself among
        its `renamed_from`. After that it takes over from the heir, as a new name would; the freeze
        that it had is gone. If the heir was forgotten meanwhile, it goes on at now.
        """
        ...

    async def advance(self, move: Advance) -> Advanced:
        """Move a cursor and make the run, in one step; see `Advanced` for the answers.

        Checked in this order: a repeat (a job with the id of the run is there; or it was the last
        move of this schedule) answers as before and changes nothing; "unknown"; "passed", also if
        `to` is before `seen`; "early"; "gone" or, if the replica has expired, "held"; `rest`:
        "held" while the last run is unfinished, "early" too soon after it; frozen, by itself or
        with EVERYTHING, and not `forced`: "skipped", reason "paused"; `limit`, then `own`. Without
        a `run` only a repeat, "unknown", "passed" and "early" are looked at.

        Then the cursor moves to `to` (unless `seen` is None), `passed` joins the decisions, and
        the run is stored: running on `replica`, attempt 1, its deadline its timeout from now, under
        a fence above those of all runs of this schedule that were born running; or waiting, due at
        once. A skip is remembered as a decision as well. Whatever
        was done or skipped counts as a declaration, unless it was `forced`: who triggers a schedule
        need not have it.
        """
        ...

    async def schedules(
        self, names: Sequence[str] | None = None, *, limit: int = 1000
    ) -> list[ScheduleRecord]:
        """Return these schedules, or all, by name. Those that are not there are left out.

        EVERYTHING is only among them if it was asked for and frozen once: with its freeze alone,
        and revision, cursor and the like 0.
        """
        ...

    async def decisions(self, name: str, *, limit: int = DECISIONS_MAX) -> list[Decision]:
        """Return what became of its ticks, newest first."""
        ...

    async def freeze(self, name: str, *, until: int | None = None, reason: str = "") -> bool:
        """Let ticks before `until` be skipped; False if there is no such schedule.

        EVERYTHING is always there. It replaces an earlier freeze; `since` is now.
        """
        ...

    async def thaw(self, name: str) -> bool:
        """End a freeze: its `until` becomes now, so that ticks before that stay skipped.

        False if there is none that has not ended.
        """
        ...

    async def prune_schedules(self, *, idle: float, limit: int = 1000) -> int:
        """Forget up to `limit` schedules that nobody declared for `idle` seconds; say how many.

        Not those with an unfinished run, nor EVERYTHING, nor those whose successor is there: with
        them, a roll-back would forget what was decided. Their decisions go with them.
        """
        ...
