"""What a supervisor tells a child on its command line."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from tenure.runtime.words import HandOver

__all__ = ["ChildSpec", "decode_spec", "encode_spec"]


class ChildSpec(Struct, frozen=True, kw_only=True):
    """How a child works, and the descriptors it has inherited."""

    app: str
    queues: tuple[str, ...] | dict[str, int] | None
    concurrency: int
    grace: float
    log_level: str | None
    line: int = -1
    board: int = -1
    resumed: HandOver | None = None


def encode_spec(spec: ChildSpec) -> str:
    """Return it as an argument of a command."""
    return msgspec.json.encode(spec).decode()


def decode_spec(text: str) -> ChildSpec:
    """Return what `encode_spec` has written."""
    return msgspec.json.decode(text, type=ChildSpec)
