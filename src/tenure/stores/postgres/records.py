"""Converts jobs between the contract's values and the arguments and rows of functions in sql/.

Batches are sent as one list of text for each field, bytes as hexadecimal digits; see sql/jobs.sql.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import asdict, astuple

from tenure.core.bounds import sound
from tenure.core.durations import micros
from tenure.core.jobs.records import (
    Inserted,
    InsertOutcome,
    JobRecord,
    NewJob,
    Note,
    Settled,
    Settlement,
)
from tenure.core.schedules.records import (
    Commit,
    Committed,
    Expected,
    ScheduleHead,
    TickLine,
    Write,
)

__all__ = [
    "commit_text",
    "committed",
    "insert_columns",
    "inserted",
    "note_columns",
    "settle_columns",
    "settled",
]

Column: TypeAlias = Sequence[str | None] | None

_encode = msgspec.json.encode

_INSERTED: Final[dict[str, InsertOutcome]] = {
    "c": "created",
    "d": "created",
    "e": "existing",
    "m": "mismatch",
    "b": "busy",
}
# The arguments of an insert that are not in the record.
_PLANS: Final = {"delay", "at", "unique"}

_SETTLED: Final[dict[str, Settled]] = {
    "s": "settled",
    "c": "cancelled",
    "r": "repeated",
    "l": "lost",
}


def insert_columns(jobs: Sequence[NewJob]) -> tuple[Column, ...]:
    """Return the arguments of job_insert; None for a field that no job has."""
    uniques = [job.unique for job in jobs]
    # Without keys no id may occur twice.
    keyed = any(uniques) or len({job.id for job in jobs}) < len(jobs)
    tagged = any(job.tags for job in jobs)
    return (
        [job.id for job in jobs],
        [job.task for job in jobs],
        [job.queue for job in jobs],
        [str(job.priority) for job in jobs],
        [job.payload.hex() for job in jobs],
        [_encode(job.tags).decode() if job.tags else None for job in jobs] if tagged else None,
        [str(micros(job.delay)) for job in jobs],
        [None if job.at is None else str(job.at) for job in jobs],
        [None if job.timeout is None else repr(job.timeout) for job in jobs],
        [repr(job.retention) for job in jobs],
        [repr(job.retention_failed) for job in jobs],
        [job.options for job in jobs] if any(job.options for job in jobs) else None,
        [None if unique is None else unique.key for unique in uniques] if keyed else None,
        [None if unique is None else unique.digest for unique in uniques] if keyed else None,
        [None if unique is None else str(micros(unique.written_keep)) for unique in uniques]
        if keyed
        else None,
    )


def inserted(
    jobs: Sequence[NewJob], at: int, letters: str | None, holders: list[str]
) -> list[Inserted]:
    """Return the answers of job_insert."""
    if letters is None:
        return [Inserted("created", job.id, at) for job in jobs]
    holder = iter(holders)
    return [
        Inserted(_INSERTED[letter], next(holder) if letter in "em" else job.id, at)
        for job, letter in zip(jobs, letters, strict=True)
    ]


def settle_columns(settlements: Sequence[Settlement]) -> tuple[Column, ...]:
    """Return the arguments of job_settle."""
    return (
        [settlement.id for settlement in settlements],
        [str(settlement.fence) for settlement in settlements],
        [settlement.move for settlement in settlements],
        [str(micros(settlement.delay)) for settlement in settlements],
        [_hex(settlement.result) for settlement in settlements],
        [_hex(settlement.error) for settlement in settlements],
        [settlement.reason for settlement in settlements],
        [_hex(settlement.history) for settlement in settlements],
    )


def settled(letters: str) -> list[Settled]:
    """Return the answers of job_settle."""
    return [_SETTLED[letter] for letter in letters]


def note_columns(notes: Sequence[Note]) -> tuple[Column, ...]:
    """Return the arguments of job_note."""
    return (
        [note.id for note in notes],
        [str(note.fence) for note in notes],
        [None if note.progress is None else repr(note.progress) for note in notes],
        [note.message for note in notes],
        [_hex(note.checkpoint) for note in notes],
    )


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def commit_text(commit: Commit) -> str:
    """Return a commit for schedule_commit, as lists, because field names would cost bytes."""
    return _commit_encoder.encode(commit)


def _values(part: Any) -> Sequence[Any]:
    """Return a commit or a part of it as a list, without fields that others imply."""
    match part:
        case NewJob():  # its id and schedule are those of its commit
            payload = b64encode(part.payload).decode()
            rare = (part.timeout, part.tags) if part.timeout is not None or part.tags else ()
            kept = (part.retention, part.retention_failed, part.options)
            return (part.task, part.queue, part.priority, payload, *kept, *rare)
        case TickLine():
            return (part.like, part.first, part.last, part.ticks, part.body)
        case Expected(silent_for=None):
            return (part.name, part.version)
        case Write(definition=None, above=()):
            return (part.name, part.standing, part.ruler)
    return astuple(part)


_commit_encoder: Final = json.JSONEncoder(
    default=_values, ensure_ascii=False, separators=(",", ":")
)


def committed(commit: Commit, *answer: Any) -> Committed:
    """Return the answer of schedule_commit, with the run if that is readable."""
    outcome, now, room, blocking, stored, fence, repeated = answer
    run: JobRecord | None = None
    with suppress(ValueError):
        if repeated is not None:
            run = _record_in(repeated)
        elif commit.run is not None and fence is not None:
            run = _born(commit, commit.run, now, fence)
    return Committed(
        outcome=outcome,
        now=now,
        run=run,
        room=room or 0,
        blocking=tuple(blocking or ()),
        heads=tuple(ScheduleHead(*values) for values in msgspec.json.decode(stored or "[]")),
    )


def _record_in(text: str) -> JobRecord:
    """Return the job in a tenure.job_record as JSON. Raises ValueError if it is damaged."""
    values = msgspec.json.decode(text)
    for field in ("payload", "checkpoint", "result", "error", "history"):
        if values[field] is not None:
            values[field] = bytes.fromhex(values[field].removeprefix("\\x"))
    return sound(JobRecord, values)


def _born(commit: Commit, run: NewJob, now: int, fence: int) -> JobRecord:
    """Return the run of a commit as it was just stored."""
    is_running = bool(commit.start_on)
    made = {
        "state": "running" if is_running else "waiting",
        "created": now,
        "due": commit.not_before if is_running else now,
        "attempt": int(is_running),
        "fence": fence,
        "revision": 1 + is_running,
        "replica": commit.start_on,
        "started": now if is_running else 0,
    }
    inserted = {
        name: value for name, value in asdict(run).items() if name in JobRecord.__struct_fields__
    }
    return sound(JobRecord, {**inserted, **made})
