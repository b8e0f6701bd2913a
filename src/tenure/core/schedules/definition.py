"""The definition of a timer or schedule: its rule, its options, and what its runs look like.

Replicas compare definitions by `digest`. They continue each other's ticks if `calendar` is equal.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from tenure.core.calendar.blackouts import Blackout
from tenure.core.calendar.rules import Every, Rule

__all__ = [
    "TASK_PREFIX",
    "CatchUp",
    "Definition",
    "Each",
    "OnUnavailable",
    "Overlap",
    "Plan",
    "RunOptions",
    "TickArguments",
]

Each: TypeAlias = Literal["cluster", "replica"]
Overlap: TypeAlias = Literal["skip", "allow", "queue_one", "cancel_previous"]
CatchUp: TypeAlias = Literal["latest", "none", "all"]
OnUnavailable: TypeAlias = Literal["wait", "run"]

TASK_PREFIX: Final = "@"
"""What the task of a timer's runs begins with; the rest is its name."""


class RunOptions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options of a schedule's runs: what is the same for every tick."""

    task: str
    queue: str
    priority: int = 5
    payload: bytes = b""
    """The arguments of a schedule's runs. Runs of a timer get a `TickArguments` instead."""
    tags: tuple[str, ...] = ()
    timeout: float | None = None
    retention: float = 0.0
    retention_failed: float = 0.0
    options: str = ""
    """As `core.jobs.options` writes them."""


class TickArguments(Struct, frozen=True, kw_only=True):
    """The arguments of a timer's run: instants of the store's clock."""

    nominal: int
    scheduled: int
    """When it is to begin: the due instant plus the jitter."""
    previous: int = 0
    """The nominal instant of the run before this one; 0 if there was none."""


class Definition(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A timer or schedule as it was declared. The store keeps it for operators to see."""

    kind: Literal["timer", "schedule"]
    rule: Rule
    run: RunOptions
    each: Each = "cluster"
    limit: int | None = None
    per_replica: int | None = None
    overlap: Overlap = "skip"
    catch_up: CatchUp = "latest"
    within: float | None = None
    """Seconds after which a tick is too late to run."""
    offset: int = 0
    """Microseconds from a nominal instant to the due one."""
    blackouts: tuple[Blackout, ...] = ()
    jitter: float = 0.0
    """The longest random delay before a run begins, in seconds."""
    on_unavailable: OnUnavailable | None = None
    """What a tick does while the store is down. None: ticks with each="replica" run, unless they
    have a limit; all others wait."""
    rests: bool = False
    """Whether the period counts from the end of the last run."""

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @property
    def digest(self) -> str:
        return _digest(self.encode())

    @property
    def calendar(self) -> str:
        """The digest of all options that decide at which instants there are ticks."""
        return _digest(msgspec.json.encode((self.rule, self.rests, self.each)))

    @property
    def rest(self) -> float:
        """Seconds from the end of one run to the next."""
        return self.rule.period_us / 1e6 if self.rests and isinstance(self.rule, Every) else 0.0


def _digest(text: bytes) -> str:
    return sha256(text).hexdigest()[:32]


class Plan(Struct, frozen=True, kw_only=True):
    """A schedule under its name."""

    name: str
    definition: Definition
    renamed_from: tuple[str, ...] = ()

    @property
    def own_tasks(self) -> tuple[str, ...]:
        """The tasks of a timer's runs, former names included; empty for a schedule."""
        if self.definition.kind != "timer":
            return ()
        return tuple(f"{TASK_PREFIX}{name}" for name in (self.name, *self.renamed_from))
