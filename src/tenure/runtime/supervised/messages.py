"""The messages between a supervisor and its workers: JSON, one per line, over a socket."""

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
    """Whether the record may have expired for a while."""


class BeatFailed(Struct, frozen=True, tag=True):
    """The store does not answer. The supervisor keeps trying."""


class TakenOver(Struct, frozen=True, tag=True):
    """The replica was declared dead: its jobs run elsewhere."""

    replica: str


class Stop(Struct, frozen=True, tag=True):
    """Order: finish within the grace period and stop, or stop at once."""

    now: bool = False


class Retire(Struct, frozen=True, tag=True):
    """Order: claim nothing more, finish without a time limit, and stop."""


class IsolationOver(Struct, frozen=True, tag=True):
    """The process of the last isolated job has ended, or could not be started."""


Order: TypeAlias = RecordRenewed | BeatFailed | TakenOver | Stop | Retire | IsolationOver


class Joined(Struct, frozen=True, tag=True):
    """The worker has joined under this id. The supervisor must beat for it."""

    replica: str


class IsolationJoined(Struct, frozen=True, tag=True):
    """The worker joins as a second replica, for a job in its own process. Beat for it as well."""

    replica: str


class IsolationLeft(Struct, frozen=True, tag=True):
    """The second replica has left again, without a job."""

    replica: str


class HandOver(Struct, frozen=True, tag=True):
    """Start a process that runs these jobs, one at a time, as the worker's second replica."""

    replica: str
    jobs: list[str]


Report: TypeAlias = Joined | IsolationJoined | IsolationLeft | HandOver

encode_message = msgspec.json.Encoder().encode
decode_order = msgspec.json.Decoder(Order).decode
decode_report = msgspec.json.Decoder(Report).decode
