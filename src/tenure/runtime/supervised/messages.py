"""What a supervisor and its workers say to each other: JSON, one line each, over a socket."""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from msgspec import Struct

__all__ = [
    "BeatFailed",
    "HandOver",
    "IsolationJoined",
    "IsolationLeft",
    "IsolationOver",
    "Joined",
    "Order",
    "RecordRenewed",
    "Report",
    "Retire",
    "Stop",
    "TakenOver",
    "decode_order",
    "decode_report",
    "encode_message",
]


class RecordRenewed(Struct, frozen=True, tag=True):
    """The supervisor has renewed the replica's record."""

    replica: str
    cancels: list[str]
    held: int | None
    revived: bool
    """It may have expired for a while."""


class BeatFailed(Struct, frozen=True, tag=True):
    """The store does not answer; the supervisor goes on trying."""


class TakenOver(Struct, frozen=True, tag=True):
    """The replica was taken for dead: what it ran runs elsewhere."""

    replica: str


class Stop(Struct, frozen=True, tag=True):
    """Finish within the grace period and leave, or leave at once."""

    now: bool = False


class Retire(Struct, frozen=True, tag=True):
    """Claim nothing more, finish however long it takes, and leave."""


class IsolationOver(Struct, frozen=True, tag=True):
    """The process of the job that was handed over last has ended, or could not be started."""


Order: TypeAlias = RecordRenewed | BeatFailed | TakenOver | Stop | Retire | IsolationOver


class Joined(Struct, frozen=True, tag=True):
    """The worker is known to the store under this id; beat for it."""

    replica: str


class IsolationJoined(Struct, frozen=True, tag=True):
    """The worker joins as a second replica, for a job that gets its own process; beat for it."""

    replica: str


class IsolationLeft(Struct, frozen=True, tag=True):
    """It has left again, without a job."""

    replica: str


class HandOver(Struct, frozen=True, tag=True):
    """A process of their own must run these jobs, one at a time, as the worker's second replica."""

    replica: str
    jobs: list[str]


Report: TypeAlias = Joined | IsolationJoined | IsolationLeft | HandOver

encode_message = msgspec.json.Encoder().encode
decode_order = msgspec.json.Decoder(Order).decode
decode_report = msgspec.json.Decoder(Report).decode
