"""What a store promises about timers and schedules: versioned documents, and runs made with them.

A store knows nothing of ticks, rules, renames or pauses. It compares versions, counts unfinished
runs and writes, in one atomic step for each commit. The rules are in `core.schedules`.

Runs are jobs with a `schedule`, with the states of all jobs (`core.jobs.states`). Only `commit`
creates them. `requeue` answers "refused" for them.

A record that the store cannot read counts as missing: a commit that expects no such schedule
replaces it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tenure.core.schedules.records import (
    Commit,
    Committed,
    Declared,
    ScheduleList,
)

__all__ = ["Schedules"]


class Schedules(Protocol):
    """The schedule part of a store. At most BATCH_MAX items go into one call."""

    async def read(
        self,
        names: Sequence[str] | None = None,
        *,
        after: str = "",
        limit: int = 1000,
        lines: int = 1,
    ) -> ScheduleList:
        """Return these schedules, or a page of all whose names come after `after`, by name.

        Schedules that do not exist are left out. Names are ordered by their UTF-8 bytes. Each
        record carries up to `lines` lines of its history, newest first; at most DECISIONS_MAX are
        kept.
        """
        ...

    async def declare(self, rulers: Sequence[tuple[str, str]]) -> Declared:
        """Note that a replica with these rulers, (name, ruler), is alive.

        Where the ruler is the stored one, `declared` becomes now; a declaration younger than
        DECLARED_ANEW_AFTER is left as it is. The others are returned and do not change.
        """
        ...

    async def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        """Carry out commits, each as an atomic step of its own, in this order.

        Checked in this order:

        1. A job with the id of the run is there: done, as before; nothing changes.
        2. `expects`. All of them have these versions, or it is stale. With `silent_for`, it is also
           stale if the schedule was declared less than so long ago. A declaration in the store's
           future counts as one of now, and is written back so, also if the commit is refused;
           a store may leave that to the next commit if another one holds the row. A schedule that
           is expected and not written is only read, without a lock: a commit that is under way at
           this very moment may still change it.
        3. `not_before`: early.
        4. `start_on`, only with a run: gone or expired.
        5. `rooms`: the first one without room decides, by its `instead`: instead, or full. They
           count also without a run.

        Then the documents are written, under the commit's id as version. `name` is declared with
        `declares`; a new schedule is always declared. The run starts on `start_on`, as attempt 1,
        its deadline its timeout from now, due at `not_before`, under a fence above those of all
        runs of this schedule that were started at once; or it waits, due at once. It becomes the
        schedule's last run. `lines` join the history, and after them `run_line`, or the line of the
        full room. If the newest line has the same `like`, which is not empty, it gets the new
        line's `last`, the `ticks` of both, and `at` becomes now.

        `above` never takes a last run or a fence back. Unfinished runs of a deleted schedule count
        for the next one of that name.

        A write whose name is in none of `expects` is not allowed. The run, its fence, its line and
        `declares` change no version: only a write does. Two commits of the same schedule are never
        carried out at the same time.
        """
        ...
