"""Schedules between the contract's values and what the functions in sql/ take and return."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from tenure.core.durations import micros
from tenure.core.records import JobRecord, NewJob
from tenure.core.schedules import (
    Advance,
    Advanced,
    Bound,
    Decision,
    Planting,
    ScheduleRecord,
)
from tenure.core.soundness import sound
from tenure.stores.postgres.job_rows import as_record
from tenure.stores.postgres.pool import Row

__all__ = ["as_advanced", "as_decision", "as_schedule", "move_argument", "plantings_argument"]


def plantings_argument(schedules: Sequence[Planting]) -> str:
    """Return schedules in the form of tenure.planting_v1[]."""
    return _json(
        [
            {
                "name": one.name,
                "digest": one.digest,
                "calendar": one.calendar,
                "definition": one.definition.hex(),
                "renamed_from": one.renamed_from,
            }
            for one in schedules
        ]
    )


def move_argument(move: Advance) -> str:
    """Return a move in the form of tenure.advance_v1."""
    return _json(
        {
            "id": move.id,
            "name": move.name,
            "revision": move.revision,
            "seen": move.seen,
            "tick": move.to,
            "due": move.due,
            "run": None if move.run is None else _run(move.run),
            "replica": move.replica,
            "rest": micros(move.rest),
            "total": _bound(move.limit),
            "own": _bound(move.own),
            "passed": move.passed,
            "forced": move.forced,
        }
    )


def _run(run: NewJob) -> dict[str, Any]:
    return {
        "task": run.task,
        "queue": run.queue,
        "priority": run.priority,
        "payload": run.payload.hex(),
        "tags": run.tags,
        "timeout": run.timeout,
        "retention": run.retention,
        "retention_failed": run.retention_failed,
        "retry": run.retry,
        "rerun": run.rerun,
    }


def _bound(bound: Bound | None) -> dict[str, Any] | None:
    if bound is None:
        return None
    return {"most": bound.most, "reason": bound.reason, "otherwise": bound.full}


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def as_advanced(row: Row) -> Advanced:
    """Return the answer in a row of tenure.advanced_v1, with that of its run behind it."""
    outcome, cursor, revision, last_run, now, reason, ready_in, has_run, _, _, *run = row
    return Advanced(
        outcome=outcome,
        cursor=cursor,
        revision=revision,
        last_run=last_run,
        now=now,
        reason=reason,
        ready_in=ready_in / 1e6,
        run=_run_in(run) if has_run else None,
    )


def _run_in(row: Sequence[Any]) -> JobRecord | None:
    """Return the run of a move; None if it was there before and cannot be read."""
    with suppress(ValueError):
        return as_record(row)
    return None


def as_decision(row: Row) -> Decision:
    """Return the decision in a row that has its columns. Raises ValueError if it is none."""
    return sound(Decision, {name: row[name] for name in Decision.__struct_fields__})


def as_schedule(row: Row, latest: Decision | None) -> ScheduleRecord:
    """Return the schedule in a row of schedule_list_v1. Raises ValueError if it is none."""
    freeze = None
    if row["since"] is not None:
        freeze = {"since": row["since"], "until": row["until"], "reason": row["why"]}
    names = {*ScheduleRecord.__struct_fields__} - {"freeze", "latest"}
    values = {name: row[name] for name in names}
    return sound(ScheduleRecord, {**values, "freeze": freeze, "latest": latest})
