"""What a supervisor and its workers say to each other: JSON, one line each, over a socket."""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from msgspec import Struct

__all__ = [
    "Beaten",
    "HandOver",
    "InDoubt",
    "Joined",
    "Order",
    "Report",
    "Retire",
    "Stop",
    "TakenOver",
    "decode_order",
    "decode_report",
    "encode_word",
]


class Beaten(Struct, frozen=True, tag=True):
    """The supervisor has renewed the replica's record."""

    replica: str
    cancels: list[str]
    held: int | None
    revived: bool
    """It may have expired for a while."""


class InDoubt(Struct, frozen=True, tag=True):
    """The store does not answer; the supervisor goes on trying."""


class TakenOver(Struct, frozen=True, tag=True):
    """The replica was taken for dead: what it ran runs elsewhere."""

    replica: str


class Stop(Struct, frozen=True, tag=True):
    """Finish within the grace period and leave, or leave at once."""

    hurry: bool = False


class Retire(Struct, frozen=True, tag=True):
    """Claim nothing more, finish however long it takes, and leave."""


Order: TypeAlias = Beaten | InDoubt | TakenOver | Stop | Retire


class Joined(Struct, frozen=True, tag=True):
    """The worker is known to the store under this id; beat for it."""

    replica: str


class HandOver(Struct, frozen=True, tag=True):
    """The worker ends for the sake of this job, which a fresh process must run, as this replica."""

    replica: str
    job: str
    claim_no: int


Report: TypeAlias = Joined | HandOver

encode_word = msgspec.json.Encoder().encode
decode_order = msgspec.json.Decoder(Order).decode
decode_report = msgspec.json.Decoder(Report).decode
