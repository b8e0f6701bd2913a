"""Schedules on Redis: a call is one script, or one per slice; see lua/schedules.lua."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from tenure.core.bounds import UNREADABLE
from tenure.core.schedules.records import (
    Commit,
    Committed,
    Declared,
    ScheduleList,
    ScheduleRecord,
)
from tenure.stores.redis.connection import Connection
from tenure.stores.redis.job_part import JobPart, slices
from tenure.stores.redis.records import commit_words, committed
from tenure.stores.redis.wire import Word, text

__all__ = ["Schedules"]

# The keys of the schedule scripts after those of the jobs, in the order of lua/schedules.lua.
_TIMER_KEYS = ("schedules", "definitions", "names", "declared", "decisions")

_SPARE: Final = 100  # names that are read in place of unreadable ones
_record = msgspec.msgpack.Decoder(ScheduleRecord).decode


class Schedules(JobPart):
    """The schedule part of the contract."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._keys += tuple(f"{self._tag}timer:{name}" for name in _TIMER_KEYS)

    async def read(
        self,
        names: Sequence[str] | None = None,
        *,
        after: str = "",
        limit: int = 1000,
        lines: int = 1,
    ) -> ScheduleList:
        if names is None:
            page = (f"({after}", "+", "LIMIT", 0, limit + _SPARE)
            names = await self._connection.ask("ZRANGEBYLEX", f"{self._tag}timer:names", *page)
        now, records = 0, list[ScheduleRecord]()
        for batch in slices(sorted({*names})):
            now, rows = await self._run_and_report("read", lines, *batch)
            records += sorted(map(_record, rows), key=lambda record: record.name)
            if len(records) >= limit:
                break
        return ScheduleList(now or await self._connection.now(), records[:limit])

    async def declare(self, rulers: Sequence[tuple[str, str]]) -> Declared:
        now, lost = await self._run_and_report(
            "declare", *(word for pair in rulers for word in pair)
        )
        return Declared(now, [text(name) for name in lost])

    async def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        answers: list[Committed] = []
        for batch in slices(commits):
            words: list[Word] = []
            for commit in batch:
                words += commit_words(commit)
            now, rows = await self._run_and_report("commit", *words)
            for commit, (answer, *run) in zip(batch, rows, strict=True):
                job = self._read_job(commit.id, *run) if run else None
                answers.append(committed(answer, now, job))
        return answers

    async def _run_and_report(self, script: str, *arguments: Word) -> tuple[int, list[Any]]:
        """Run a script. Returns its instant and its answers, and reports unreadable records."""
        now, schedules, lines, *rows = await self._run(script, *arguments)
        for name in schedules:
            self._damage.report("timer", text(name), UNREADABLE, f"{self._tag}timer:schedules")
        for name in lines:
            self._damage.report("decision", text(name), UNREADABLE, f"{self._tag}timer:decisions")
        return now, rows
