"""Encodes jobs and commits as arguments of scripts, and decodes their MessagePack replies.

A record is in two hashes; lua/record.lua has the table of its values. Joined, with the header of an
array in front, both parts are decoded in one call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import astuple, replace

from tenure.core.bounds import Counter, Fence, Instant, Priority, Span, complaint
from tenure.core.durations import micros
from tenure.core.jobs.records import JobRecord, NewJob, Note, Settlement
from tenure.core.jobs.states import STATES
from tenure.core.schedules.records import Commit, Committed, ScheduleHead
from tenure.stores.redis.wire import Word

__all__ = [
    "commit_words",
    "committed",
    "insert_words",
    "note_words",
    "read_job",
    "read_orphan",
    "run_words",
    "settle_words",
]

_NIL: Final = b"\xc0"
_SIZE_SIZE: Final = 3
_CREATED_SIZE: Final = 9


class _Stored(Struct, frozen=True, array_like=True):
    """The values of a record in their order. Other types are unreadable."""

    size: int
    timeout: Instant
    retention: Fence
    retention_failed: Fence
    queue: str
    priority: Priority
    tag_count: int
    key: str | None
    schedule: str
    created: Instant
    state: Literal[0, 1, 2, 3, 4]
    fence: Fence
    attempt: Counter
    started: Instant
    revision: Fence
    cancelling: int
    due: Instant
    replica: str
    finished: Instant
    reason: str
    failures: Counter
    losses: Counter
    settled_fence: int
    settled_as: str
    progress: Span | None
    message: str
    checkpoint: bytes | None
    result: bytes | None
    error: bytes | None
    history: bytes | None
    task: str
    tags: tuple[str, ...]
    unique: tuple[str, int, int] | None
    id: str
    options: str
    payload: bytes


# The header of an array of this many values.
_ARRAY: Final = b"\xdc" + len(_Stored.__struct_fields__).to_bytes(2)
_decode = msgspec.msgpack.Decoder(_Stored).decode
_decode_answer: Callable[[bytes], list[Any]] = msgspec.msgpack.Decoder(
    list[tuple[Any, ...] | str | int]
).decode
_encode = msgspec.msgpack.Encoder().encode


def read_job(record: bytes, fixed: bytes) -> JobRecord:
    """Return the job in the two parts of its record. Raises ValueError if they are damaged."""
    try:
        stored = _decode(_ARRAY + record + fixed)
    except msgspec.ValidationError as error:
        raise ValueError(complaint(error, _Stored.__struct_fields__)) from error
    # Written out, because other ways to pass thirty values take three times as long, and this is
    # most of the cost of a claim in this process.
    return JobRecord(
        id=stored.id,
        task=stored.task,
        queue=stored.queue,
        priority=stored.priority,
        state=STATES[stored.state],
        payload=stored.payload,
        tags=stored.tags,
        timeout=None if stored.timeout < 0 else stored.timeout / 1e6,
        retention=stored.retention / 1e6,
        retention_failed=stored.retention_failed / 1e6,
        options=stored.options,
        created=stored.created,
        due=stored.due,
        attempt=stored.attempt,
        failures=stored.failures,
        losses=stored.losses,
        fence=stored.fence,
        revision=stored.revision,
        replica=stored.replica,
        started=stored.started,
        progress=stored.progress,
        message=stored.message,
        checkpoint=stored.checkpoint,
        cancelling=stored.cancelling == 1,
        reason=stored.reason,
        finished=stored.finished,
        result=stored.result,
        error=stored.error,
        history=stored.history or b"",
        schedule=stored.schedule,
    )


def read_orphan(record: bytes, fixed: bytes) -> JobRecord:
    """Return a job as `read_job` does, without large values that recovery does not need."""
    job = read_job(record, fixed)
    return replace(job, payload=b"", checkpoint=None, result=None, error=None)


@lru_cache(maxsize=1000)
def _head(  # noqa: PLR0917 - keywords would cost more than this cache saves
    timeout: float | None,
    retention: float,
    retention_failed: float,
    queue: str,
    priority: int,
    tag_count: int,
    key: str | None,
    schedule: str,
) -> bytes:
    """Return the part of a record that scripts read and never change, without its last value.

    Its first value is its own length, including the instant that the script appends.
    """
    lengths = (
        -1 if timeout is None else micros(timeout),
        micros(retention),
        micros(retention_failed),
    )
    rest = _values(*lengths, queue, priority, tag_count, key, schedule)
    size = _SIZE_SIZE + len(rest) + _CREATED_SIZE
    return b"\xcd" + size.to_bytes(2) + rest


def run_words(job: NewJob) -> tuple[bytes, bytes]:
    """Return the head and the fixed part of a job."""
    key, demands = None, None
    if (unique := job.unique) is not None:
        stays = int(unique.with_job and unique.keep > 0)
        key, demands = unique.key, (unique.digest, micros(unique.keep), stays)
    lengths = job.timeout, job.retention, job.retention_failed
    head = _head(*lengths, job.queue, job.priority, len(job.tags), key, job.schedule)
    return head, _values(job.task, job.tags, demands, job.id, job.options, job.payload)


def insert_words(jobs: Sequence[NewJob]) -> list[Word]:
    """Return the arguments of insert.lua after the first two."""
    words: list[Word] = [len(jobs)]
    for job in jobs:
        words += (job.id, f"{job.queue}\0{job.priority}", _when(job), *run_words(job))
    words += (number for number, job in enumerate(jobs, 1) if job.unique is not None)
    words.append(0)
    words += (number for number, job in enumerate(jobs, 1) if job.tags)
    return words


def _when(job: NewJob) -> Word:
    if job.at is not None:
        return f"@{job.at}"
    return micros(job.delay) if job.delay else ""


def settle_words(settlements: Sequence[Settlement]) -> Iterator[Word]:
    """Yield the arguments of settle.lua after the first two."""
    for end in settlements:
        values = _values(
            end.fence,
            STATES.index(end.state),
            end.yields_to_cancel,
            end.failures,
            end.losses,
            end.mark,
            micros(end.delay),
            end.reason,
        )
        yield end.id
        yield values + _bin(end.result) + _bin(end.error) + _bin(end.history)


def note_words(notes: Sequence[Note]) -> Iterator[Word]:
    """Yield the arguments of note.lua after the first two."""
    for note in notes:
        yield note.id
        yield _values(note.fence, note.progress, note.message) + _bin(note.checkpoint)


def _values(*values: Any) -> bytes:
    """Return up to 15 values in sequence: an array without its header."""
    return _encode(values)[1:]


def _bin(value: bytes | None) -> bytes:
    """Return bytes as a record has them: always with a length of four bytes."""
    return _NIL if value is None else b"\xc6" + len(value).to_bytes(4) + value


def commit_words(commit: Commit) -> tuple[Word, Word, Word]:
    """Return the arguments of commit.lua for one commit."""
    run = ("", "") if commit.run is None else run_words(commit.run)
    return _encode(_lists(replace(commit, run=None)))[1:], *run


def committed(packed: bytes, now: int, run: JobRecord | None) -> Committed:
    """Return the answer of commit.lua for one commit."""
    values = _decode_answer(packed)
    answer = dict(zip(("outcome", "room", "blocking", "found"), values, strict=False))
    heads = tuple(ScheduleHead(*schedule) for schedule in answer.pop("found", ()))
    return Committed(**answer, now=now, run=run, heads=heads)


def _lists(value: Any) -> Any:
    """Return a struct and its parts as lists of values, because field names would cost bytes."""
    values = astuple(value) if isinstance(value, Struct) else value
    return [_lists(part) for part in values] if isinstance(values, tuple) else value
