"""Jobs as the scripts take and give them: words of a command, and MessagePack pieces of a record.

A record is a sequence of MessagePack values in two hashes, described in lua/jobs.lua. Joined and
with the header of an array in front, it is decoded in one go.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Literal

import msgspec
from msgspec import Struct

from tenure.core.durations import micros
from tenure.core.records import JobRecord, NewJob, Settlement
from tenure.core.soundness import (
    Counter,
    Fence,
    Instant,
    Length,
    Priority,
    Span,
    complaint,
)
from tenure.core.states import STATES
from tenure.stores.redis.wire import Word

__all__ = [
    "insert_words",
    "is_plain",
    "other_words",
    "packed_bytes",
    "plain_words",
    "read_job",
    "run_words",
]

# An array of as many values as `_Stored` has.
_ARRAY: Final = b"\xdc\x00\x25"
_NIL: Final = b"\xc0"
_CREATED_SIZE: Final = 9


class _Stored(Struct, frozen=True, array_like=True):
    """The values of a record in their order. What has other types cannot be read."""

    size: int
    life: int
    kept: Fence
    kept_failed: Fence
    queue: str
    priority: Priority
    tagged: int
    key: str | None
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
    digest: str
    keep: int
    id: str
    timeout: Length | None
    options: str
    payload: bytes


_decode = msgspec.msgpack.Decoder(_Stored).decode
_encode = msgspec.msgpack.Encoder().encode


def packed_bytes(value: bytes | None) -> bytes:
    """Return bytes as they stand in a record: always with a length of four bytes."""
    return _NIL if value is None else b"\xc6" + len(value).to_bytes(4) + value


@lru_cache(maxsize=1000)
def _head(  # noqa: PLR0917 - a cache by keywords would take longer than it saves
    queue: str,
    priority: int,
    timeout: float | None,
    retention: float,
    retention_failed: float,
    tags: int,
    key: str | None,
) -> bytes:
    """Return the part of a record that scripts read and never change.

    Its first value is its own length, together with the instant that the script adds to it.
    """
    life = -1 if timeout is None else micros(timeout)
    kept = micros(retention), micros(retention_failed)
    rest = _encode((life, *kept, queue, priority, tags, key))[1:]
    size = 3 + len(rest) + _CREATED_SIZE
    return b"\xcd" + size.to_bytes(2) + rest


def _head_of(job: NewJob, key: str | None) -> bytes:
    kept = job.retention, job.retention_failed
    return _head(job.queue, job.priority, job.timeout, *kept, len(job.tags), key)


def run_words(job: NewJob) -> tuple[bytes, bytes]:
    """Return the head and what is fixed of a run, as commit.lua takes them."""
    return _head_of(job, f"\0{job.schedule}"), _fixed(job, "", 0)


def _fixed(job: NewJob, digest: str, keep: int) -> bytes:
    """Return the part of a record that is written once."""
    rest = job.id, job.timeout, job.options, job.payload
    return _encode((job.task, job.tags, digest, keep, *rest))[1:]


def insert_words(jobs: Sequence[NewJob]) -> list[Word]:
    """Return the arguments of insert.lua after the first two."""
    words: list[Word] = [len(jobs)]
    uniques: list[Word] = []
    tags: list[Word] = []
    for number, job in enumerate(jobs, 1):
        key, digest, keep = None, "", 0
        if job.unique is not None:
            key, digest = job.unique.key, job.unique.digest
            keep = micros(job.unique.written_keep)
            uniques += (number, key, digest, keep)
        for tag in job.tags:
            tags += (number, tag)
        fixed = _fixed(job, digest, keep)
        head = _head_of(job, key)
        words += (job.id, f"{job.queue}\0{job.priority}", _when(job), head, fixed)
    return [*words, *uniques, 0, *tags]


def _when(job: NewJob) -> Word:
    if job.at is not None:
        return f"@{job.at}"
    return micros(job.delay) if job.delay else ""


def is_plain(one: Settlement) -> bool:
    """Say whether a settlement can be told in few words."""
    return one.state == "succeeded"


def plain_words(one: Settlement) -> tuple[Word, ...]:
    """Return the arguments of settle.lua for a success."""
    return one.id, one.fence, packed_bytes(one.result) + _NIL + packed_bytes(one.history)


def other_words(one: Settlement) -> tuple[Word, ...]:
    """Return the arguments of settle.lua for any settlement."""
    parts = packed_bytes(one.result), packed_bytes(one.error), packed_bytes(one.history)
    delay = micros(one.delay)
    return one.id, one.fence, b"".join(parts), one.move, delay, one.reason


def read_job(record: bytes, fixed: bytes) -> JobRecord:
    """Return a job out of the two parts of its record. Raises ValueError if it is none.

    Field by field, because this is most of what a claim costs here.
    """
    try:
        one = _decode(_ARRAY + record + fixed)
    except msgspec.ValidationError as error:
        raise ValueError(complaint(error, _Stored.__struct_fields__)) from error
    schedule = ""
    if one.key is not None and one.key.startswith("\0"):  # see `is_run` in lua/jobs.lua
        schedule = one.key[1:]
    return JobRecord(
        id=one.id,
        task=one.task,
        queue=one.queue,
        priority=one.priority,
        state=STATES[one.state],
        payload=one.payload,
        tags=one.tags,
        timeout=one.timeout,
        retention=one.kept / 1e6,
        retention_failed=one.kept_failed / 1e6,
        options=one.options,
        created=one.created,
        due=one.due,
        attempt=one.attempt,
        failures=one.failures,
        losses=one.losses,
        fence=one.fence,
        revision=one.revision,
        replica=one.replica,
        started=one.started,
        progress=one.progress,
        message=one.message,
        checkpoint=one.checkpoint,
        cancelling=one.cancelling == 1,
        reason=one.reason,
        finished=one.finished,
        result=one.result,
        error=one.error,
        history=one.history or b"",
        schedule=schedule,
    )
