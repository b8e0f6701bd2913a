"""What a supervisor passes to a child on its command line."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

from tenure.runtime.attempts.lent_slots import LENT_MAX
from tenure.runtime.supervised.messages import HandOver

__all__ = ["ChildSpec", "decode_spec", "encode_spec"]


class ChildSpec(Struct, frozen=True, kw_only=True):
    """How a child works, and the descriptors it has inherited."""

    app: str
    queues: tuple[str, ...] | dict[str, int] | None
    concurrency: int
    timers: bool | Literal["only"] = True
    timer_concurrency: int = 20
    grace: float
    log_level: str | None
    line: int = -1
    board: int = -1
    resumed: HandOver | None = None

    @property
    def places(self) -> int:
        """How many jobs and runs of timers there are at a time."""
        return 2 * self.concurrency + LENT_MAX + self.timer_concurrency


def encode_spec(spec: ChildSpec) -> str:
    """Return it as an argument of a command."""
    return msgspec.json.encode(spec).decode()


def decode_spec(text: str) -> ChildSpec:
    """Return what `encode_spec` has written."""
    return msgspec.json.decode(text, type=ChildSpec)
