"""What a supervisor passes to a child on its command line."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

from tenure.runtime.attempts.lent_slots import LENT_MAX
from tenure.runtime.supervised.messages import HandOver
from tenure.supervisor.log_setup import LogForm

__all__ = ["ChildSpec", "MetricsFiles", "decode_spec", "encode_spec"]


class MetricsFiles(Struct, frozen=True):
    """Where a child writes its metrics."""

    folder: str
    number: int = 0
    """The number of its files. No two processes that run at a time have the same."""


class ChildSpec(Struct, frozen=True, kw_only=True):
    """How a child works, and the descriptors it has inherited."""

    app: str
    queues: tuple[str, ...] | dict[str, int] | None
    concurrency: int
    timers: bool | Literal["only"] = True
    timer_concurrency: int = 20
    grace: float
    log_form: LogForm | None = None
    log_level: str | None
    line: int = -1
    board: int = -1
    resumed: HandOver | None = None
    metrics: MetricsFiles | None = None

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
