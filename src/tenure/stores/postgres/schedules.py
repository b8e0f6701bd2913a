"""Schedules in PostgreSQL: one statement for each call, which runs a function in schedules.sql."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tenure.core.bounds import UNREADABLE, sound
from tenure.core.durations import micros
from tenure.core.jobs.records import COUNT_MAX
from tenure.core.schedules.records import (
    BLOCKING_MAX,
    DECISIONS_MAX,
    DECLARED_ANEW_AFTER,
    Commit,
    Committed,
    Declared,
    ScheduleList,
    ScheduleRecord,
    TickLine,
)
from tenure.stores.postgres.connection import Part
from tenure.stores.postgres.records import commit_text, committed

__all__ = ["Schedules"]

_READ = """
SELECT * FROM tenure.now($7) AS now
LEFT JOIN tenure.schedule_read($1, $2, $3, $4, $5, $6) AS schedule ON true
"""
_DECLARE = "SELECT * FROM tenure.schedule_declare($1, $2, $3, $4, $5)"
_COMMIT = """
SELECT c.damaged, c.outcome, c.now, c.room, c.blocking, c.stored, c.fence,
       (SELECT to_json(r) FROM tenure.job_get($1, c.known) AS r)
FROM tenure.schedule_commit($1, $2, $3, $4, $5, $6) AS c
"""


class Schedules(Part):
    """The schedule part of the contract."""

    async def read(
        self,
        names: Sequence[str] | None = None,
        *,
        after: str = "",
        limit: int = 1000,
        lines: int = 1,
    ) -> ScheduleList:
        listed = None if names is None else list(names)
        about = [("schedule", listed or ())]
        rows = await self._decide(_READ, listed, after, limit, lines, COUNT_MAX, about=about)
        records = [self._schedule_in(dict(row)) for row in rows if row["name"] is not None]
        return ScheduleList(rows[0]["now"], [record for record in records if record is not None])

    def _schedule_in(self, values: dict[str, Any]) -> ScheduleRecord | None:
        name, stored = values["name"], msgspec.json.decode(values["lines"] or "[]")
        where = "tenure.schedule_decision"
        lines = [
            self._damage.read("decision", where, name, sound, TickLine, line) for line in stored
        ]
        values["lines"] = [line for line in lines if line is not None]
        return self._damage.read("timer", "tenure.schedule", name, sound, ScheduleRecord, values)

    async def declare(self, rulers: Sequence[tuple[str, str]]) -> Declared:
        names = [name for name, _ in rulers]
        rulers_of = [ruler for _, ruler in rulers]
        anew, about = micros(DECLARED_ANEW_AFTER), [("schedule", names)]
        [row] = await self._decide(_DECLARE, names, rulers_of, anew, about=about)
        self._report(row["damaged"])
        return Declared(row["now"], row["lost"])

    async def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        names = dict.fromkeys(commit.name for commit in commits)
        names |= dict.fromkeys(write.name for commit in commits for write in commit.writes)
        texts = [commit_text(commit) for commit in commits]
        about = [("schedule", names), ("job", [commit.id for commit in commits])]
        about += [("replica", [commit.start_on for commit in commits])]
        arguments = ([*names], texts, DECISIONS_MAX, BLOCKING_MAX)
        rows = await self._decide(_COMMIT, *arguments, about=about)
        self._report(rows[0]["damaged"] if rows else None)
        answers = [committed(commit, *row[1:]) for commit, row in zip(commits, rows, strict=True)]
        runs = [answer.run for answer in answers if answer.run is not None]
        self._tell([("queue", run.queue) for run in runs if run.state == "waiting"])
        return answers

    def _report(self, damaged: Sequence[str] | None) -> None:
        for name in damaged or ():
            self._damage.report("timer", name, UNREADABLE, "tenure.schedule")
