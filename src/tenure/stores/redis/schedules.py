"""Schedules on Redis: a call is one script, or one per slice. What is stored: lua/schedules.lua."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final, TypeVar

import msgspec

from tenure.core.durations import micros
from tenure.core.schedules import (
    DECISIONS_MAX,
    Advance,
    Advanced,
    Bound,
    Decision,
    Freeze,
    Moved,
    Planted,
    Planting,
    ScheduleRecord,
)
from tenure.core.soundness import UNREADABLE, sound
from tenure.stores.redis.job_words import run_words
from tenure.stores.redis.jobs import JobScripts, slices
from tenure.stores.redis.scripts import (
    ADVANCE,
    DECISIONS,
    FREEZE,
    LOOK,
    PLANT,
    PRUNE_SCHEDULES,
    THAW,
    Script,
)
from tenure.stores.redis.wire import Word, text

__all__ = ["Schedules"]

T = TypeVar("T")

# What the schedule scripts take after the keys of the jobs, in the order of lua/schedules.lua.
_KEYS: Final = ("schedules", "definitions", "names", "declared", "decisions", "freezes")

_MOVED: Final[tuple[Moved, ...]] = (
    *("done", "skipped", "held", "passed", "early", "gone", "unknown"),
)
_DECIDED: Final = ("ran", "skipped", "missed")

# Forgetting a schedule may mean a hundred decisions.
_FORGOTTEN_AT_ONCE: Final = 50

# The headers of arrays of as many values as a schedule, a freeze and a decision have.
_SCHEDULE: Final = b"\x9a"
_FREEZE: Final = b"\x93"
_DECISION: Final = b"\x98"

_decode = msgspec.msgpack.Decoder(list[Any]).decode


class Schedules(JobScripts):
    """The schedule part of the contract."""

    @cached_property
    def _schedule_keys(self) -> tuple[str, ...]:
        return (*self._job_keys, *(f"{self._tag}timer:{name}" for name in _KEYS))

    async def plant(self, schedules: Sequence[Planting]) -> list[Planted]:
        planted: list[Planted] = []
        for some in slices(schedules):
            words: list[Word] = []
            for one in some:
                former = one.renamed_from
                words += (one.name, one.digest, one.calendar, one.definition)
                words += (len(former), *former)
            now, *rows = await self._schedule_script(PLANT, *words)
            for one, (revision, cursor, last_run, anew) in zip(some, rows, strict=True):
                planted.append(
                    Planted(revision=revision, cursor=cursor, last_run=last_run, now=now)
                )
                if anew:
                    why = f"{UNREADABLE}; it begins anew"
                    self.damage.report("timer", one.name, why, self._schedule_keys[-6])
        return planted

    async def advance(self, move: Advance) -> Advanced:
        reply = await self._schedule_script(ADVANCE, *_move_words(move))
        outcome, cursor, revision, last_run, now, reason, ready_in, *run = reply
        return Advanced(
            outcome=_MOVED[outcome],
            cursor=cursor,
            revision=revision,
            last_run=last_run,
            now=now,
            reason=text(reason),
            ready_in=ready_in / 1e6,
            run=self._read_job(move.id, *run) if run else None,
        )

    async def schedules(
        self, names: Sequence[str] | None = None, *, limit: int = 1000
    ) -> list[ScheduleRecord]:
        if names is None:
            known = await self._ask("ZRANGE", f"{self._tag}timer:names", 0, limit - 1)
            read = [self._read_timer(name, name.decode) for name in known] if limit > 0 else []
            names = [name for name in read if name is not None]
        found: list[ScheduleRecord] = []
        for some in slices(sorted({*names})):
            rows = await self._schedule_script(LOOK, *some)
            schedules = (self._read_schedule(*row) for row in rows)
            found += [schedule for schedule in schedules if schedule is not None]
            if len(found) >= limit:
                break
        return found[:limit]

    async def decisions(self, name: str, *, limit: int = DECISIONS_MAX) -> list[Decision]:
        rows = await self._schedule_script(DECISIONS, name, limit)
        found = [self._read_decision(name, row) for row in rows]
        return [decision for decision in found if decision is not None]

    def _read_timer(self, name: bytes, read: Callable[..., T], *stored: Any) -> T | None:
        return self.damage.read("timer", self._schedule_keys[-6], text(name), read, *stored)

    def _read_decision(self, name: str, row: bytes | None) -> Decision | None:
        where = self._schedule_keys[-2]
        return self.damage.read("decision", where, name, _decision, row or b"")

    def _read_schedule(self, name: bytes, *stored: Any) -> ScheduleRecord | None:
        if not stored:
            self.damage.report("timer", text(name), UNREADABLE, self._schedule_keys[-6])
            return None
        latest = self._read_decision(text(name), stored[-1]) if stored[-1] else None
        return self._read_timer(name, _schedule, name, *stored[:-1], latest)

    async def freeze(self, name: str, *, until: int | None = None, reason: str = "") -> bool:
        end = "" if until is None else until
        (frozen,) = await self._schedule_script(FREEZE, name, end, reason)
        return bool(frozen)

    async def thaw(self, name: str) -> bool:
        (thawed,) = await self._schedule_script(THAW, name)
        return bool(thawed)

    async def prune_schedules(self, *, idle: float, limit: int = 1000) -> int:
        forgotten: list[Word] = []
        left = 0
        while len(forgotten) < limit:
            most = min(_FORGOTTEN_AT_ONCE, limit - len(forgotten))
            words = (micros(idle), left, most, *forgotten)
            looked, names = await self._schedule_script(PRUNE_SCHEDULES, *words)
            forgotten += names
            left += looked - len(names)
            if looked < most:
                break
        return len(forgotten)

    async def _schedule_script(self, script: Script, *arguments: Word) -> list[Any]:
        """Run a script on the keys of jobs and schedules; its reply is a list."""
        return await self._job_script(script, *arguments, keys=self._schedule_keys)


def _move_words(move: Advance) -> list[Word]:
    """Return the arguments of advance.lua after the first two."""
    words: list[Word] = [
        move.id,
        move.name,
        move.revision,
        "" if move.seen is None else move.seen,
        move.to,
        move.due,
        move.replica,
        micros(move.rest),
        int(move.forced),
        *(("", "") if move.run is None else run_words(move.run)),
        *_bound_words(move.limit),
        *_bound_words(move.own),
    ]
    for one in move.passed:
        outcome = _DECIDED.index(one.outcome)
        words += (outcome, one.reason, one.first, one.last, one.ticks, one.job, one.replica)
    return words


def _bound_words(bound: Bound | None) -> tuple[Word, ...]:
    return ("", "", "") if bound is None else (bound.most, bound.reason, bound.full)


def _schedule(  # noqa: PLR0917 - the values of a row, in its order
    name: bytes,
    record: bytes,
    planted: int,
    definition: bytes,
    declared: int,
    live: int,
    freeze: bytes,
    latest: Decision | None,
) -> ScheduleRecord:
    # EVERYTHING has no record, only a freeze.
    values = _decode(_SCHEDULE + record) if record else (0, 0, 0, "", 0, "")
    revision, cursor, last_run, last_job, _, successor, *_ = values
    return sound(
        ScheduleRecord,
        {
            "name": name.decode(),
            "revision": revision,
            "definition": definition,
            "cursor": cursor,
            "last_run": last_run,
            "last_job": last_job,
            "live": live,
            "planted": planted,
            "declared": declared,
            "successor": successor,
            "freeze": _freeze(*_decode(_FREEZE + freeze)) if freeze else None,
            "latest": latest,
        },
    )


def _freeze(since: int, until: int | None, reason: str) -> Freeze:
    return sound(Freeze, {"since": since, "until": until, "reason": reason})


def _decision(record: bytes) -> Decision:
    outcome, reason, first, last, ticks, at, job, replica = _decode(_DECISION + record)
    if outcome not in (0, 1, 2):
        msg = f"its outcome is {outcome!r}"
        raise ValueError(msg)
    return sound(
        Decision,
        {
            "outcome": _DECIDED[outcome],
            "reason": reason,
            "first": first,
            "last": last,
            "ticks": ticks,
            "at": at,
            "job": job,
            "replica": replica,
        },
    )
