"""The messages between a worker and its child processes, over a pair of sockets.

Both ends run the same version, so the format needs no compatibility. Values of users pass through
as the JSON that the store has. Nothing is pickled.
"""

from __future__ import annotations

import asyncio
from typing import Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from tenure.core.jobs.records import Inserted, JobRecord, NewJob, Note
from tenure.runtime.attempts.processes.preparation import Preparation
from tenure.runtime.attempts.reports import ErrorReport

__all__ = [
    "Begun",
    "Ended",
    "Enqueue",
    "FromChild",
    "Noted",
    "Run",
    "StoreNote",
    "Stored",
    "ToChild",
    "packed",
    "receive",
    "send",
]

M = TypeVar("M")

_LENGTH = 4


class Run(Struct, frozen=True, tag=True):
    """Run an attempt of this job, with the function of that name."""

    module: str
    qualname: str
    record: JobRecord
    limit: int
    """The most bytes of a result or a checkpoint."""
    claimed: float = 0.0
    """When the attempt was claimed, by the boot clock of this machine."""
    home: tuple[str, str] = ("", "")
    """The store of the worker: its URL and namespace."""
    preparation: Preparation | None = None
    """What to call around the import of the module."""


class Noted(Struct, frozen=True, tag=True):
    """The answer to the `StoreNote` of that number."""

    number: int
    stored: bool
    problem: str = ""


class Stored(Struct, frozen=True, tag=True):
    """The answer to the `Enqueue` of that number."""

    number: int
    answers: list[Inserted] = []
    existing: list[JobRecord] = []
    """The jobs that existed before, except for records that cannot be read."""
    error: str = ""
    """The kind of error; empty if they are stored."""
    problem: str = ""


class Begun(Struct, frozen=True, tag=True):
    """The function is imported, and its handler is called next. Its time-out begins."""


class StoreNote(Struct, frozen=True, tag=True):
    """Store a note of the attempt. `Noted` answers."""

    number: int
    note: Note


class Enqueue(Struct, frozen=True, tag=True):
    """Store these jobs for the attempt of this id and fence. `Stored` answers."""

    number: int
    id: str
    fence: int
    news: list[NewJob]


class Ended(Struct, frozen=True, tag=True, kw_only=True):
    """The attempt is over."""

    how: Literal["returned", "unreadable", "raised", "retry", "rejected", "cancelled"]
    """"unreadable": its arguments do not fit."""
    result: bytes = b""
    """As the store keeps it."""
    problem: str = ""
    """Why callers cannot get the result; empty if they can."""
    report: ErrorReport | None = None
    after: float | None = None
    """For "retry"."""


ToChild: TypeAlias = Run | Noted | Stored
FromChild: TypeAlias = Begun | StoreNote | Enqueue | Ended


def packed(message: ToChild | FromChild) -> bytes:
    """Return a message in its wire format: the length, then MessagePack."""
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(_LENGTH, "big") + body


def send(writer: asyncio.StreamWriter, message: ToChild | FromChild) -> None:
    """Send a message. Does nothing if the other side is gone."""
    if not writer.is_closing():
        writer.write(packed(message))


async def receive(reader: asyncio.StreamReader, decoder: msgspec.msgpack.Decoder[M]) -> M:
    """Read the next message. Raises EOFError or OSError when the other side is gone."""
    length = await reader.readexactly(_LENGTH)
    return decoder.decode(await reader.readexactly(int.from_bytes(length, "big")))
