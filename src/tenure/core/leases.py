"""Leases and other values that stores take and return, and the rules for names.

Durations are seconds as `float`; instants are whole microseconds of the store's clock. A lease has
durations only, because a reader cannot compare the store's instants with its own clock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta as Bounds
from msgspec import Struct

from tenure.core.bounds import Fence, Length, Span
from tenure.errors import ConfigError

__all__ = [
    "EXPIRED_MAX",
    "Acquired",
    "Busy",
    "Finding",
    "Grade",
    "Granted",
    "Lease",
    "Mark",
    "Meta",
    "Pong",
    "Topic",
    "Traits",
    "check_limit",
    "check_meta",
    "check_name",
    "check_namespace",
    "has_surrogate",
    "storable",
]

NAME_LENGTH_MAX = 200
META_SIZE_MAX = 1024
EXPIRED_MAX = 100
"""How many expired leases of a key a store remembers, for `Granted.took_over`."""
LIMIT_MAX = 1_000_000

Meta: TypeAlias = Mapping[str, str]

Topic: TypeAlias = tuple[Literal["lease", "queue", "job", "replica", "schedule"], str]
"""The subject of a wake-up. A waiter's topic is ("lease", its own holder id)."""


class Lease(Struct, frozen=True, kw_only=True):
    """A time-limited right on a key, or (with `waiting`) a place in the queue for one.

    (key, holder, fence) is its identity. A fence of 0 means "unknown": `release` then compares the
    holder alone, which is enough because holder ids are random and never reused.
    """

    key: str
    holder: str
    fence: Fence = 0
    ttl: Length = 0.0
    limit: Annotated[int, Bounds(ge=1, le=LIMIT_MAX)] = 1
    meta: Meta = {}
    waiting: bool = False
    kept: bool = False
    """Its holder has released it, and it stays until its ttl is over (`min_hold`). A `renew` tells
    the store so; no answer of a store has it."""
    expires_in: Span = 0.0
    """Seconds it had left when the store answered."""
    held_for: Span = 0.0
    """Seconds since it was granted (or, waiting, since it joined the queue)."""


class Granted(Struct, frozen=True):
    """`acquire` succeeded."""

    lease: Lease
    other_limit: int | None = None
    """The smallest limit of the other live holders that differs from the one asked for."""
    took_over: bool = False
    """Whether it takes the place of a lease that has expired: its holder never released it."""


class Busy(Struct, frozen=True):
    """`acquire` was refused."""

    retry_in: float
    """Seconds until the next lease ends, if it is neither renewed nor released. Only a hint."""
    ahead: int = 0
    """Live waiters ahead of the caller."""
    other_limit: int | None = None
    """As in `Granted`. The limits of waiters do not count."""


Acquired: TypeAlias = Granted | Busy


class Mark(Struct, frozen=True):
    """A durable value that was stored under a lease."""

    key: str
    value: str
    fence: Fence


class Grade(Enum):
    """The failures that an acknowledged write survives. Better grades are smaller: A < B."""

    A = "strict: process, system and power loss"
    B = "crash-safe: a crash of the store's process; power loss may cost the last second"
    C = "failover: a crash or fail-over can lose an acknowledged tail; fences still grow"
    D = "volatile: gone with the store's process"

    def __lt__(self, other: Grade) -> bool:
        return self.name < other.name


class Finding(Struct, frozen=True):
    """A finding of `Store.examine`: a fact, or a problem with advice."""

    level: Literal["ok", "note", "warning", "error"]
    """A note is informative, a warning may cost leases one day, an error keeps it from working."""
    subject: str
    """The subject in a word or two, the same on every store that has it."""
    detail: str
    advice: str = ""
    """What to do; empty only if the level is "ok"."""

    def __post_init__(self) -> None:
        assert self.advice or self.level == "ok", f"nothing is advised about {self.subject!r}"

    @classmethod
    def of_clock(cls, ahead: float, error: float) -> Finding:
        """Judge how far a server's clock is ahead of this host's, give or take `error` seconds."""
        if abs(ahead) - error <= 1:
            most = max(0.1, (abs(ahead) + error) * 1000)
            return cls("ok", "clock", f"within {most:.1f} ms of this host's")
        direction = "ahead of" if ahead > 0 else "behind"
        return cls(
            "warning",
            "clock",
            f"{abs(ahead):.1f} s (give or take {error:.3f} s) {direction} this host's",
            "Let both machines follow a time server. Leases count by the server's clock alone, but "
            "times in logs do not compare.",
        )


class Pong(Struct, frozen=True):
    """The answer to a ping."""

    now: int
    """The store's time, in microseconds."""
    incarnation: str
    """The random id of its data; empty if the store is too full to create one."""


class Traits(Struct, frozen=True, kw_only=True):
    """The differences between stores, as data: all stores have the same methods."""

    grade: Grade
    scope: Literal["process", "host", "fleet"]
    """What can share the store: threads, processes of one host, or many hosts."""
    push: bool
    """Whether the store pushes wake-ups; otherwise a cheap poll detects them."""
    transactional: bool
    """Whether it can join the user's own database transaction."""


def check_name(name: object, what: str) -> str:
    """Return `name` if a store can keep it unchanged. Raises ConfigError otherwise."""
    if not isinstance(name, str):
        msg = f"{what} must be text, not {type(name).__name__}."
        raise ConfigError(msg)
    if not name:
        msg = f"{what} must not be empty."
        raise ConfigError(msg)
    if len(name) > NAME_LENGTH_MAX:
        msg = f"{what} has {len(name)} characters; at most {NAME_LENGTH_MAX} are kept. Shorten it."
        raise ConfigError(msg)
    if "\0" in name or has_surrogate(name):  # PostgreSQL cannot store NUL
        msg = f"{what} {name!r} contains a NUL or a lone surrogate, which stores cannot keep."
        raise ConfigError(msg)
    return name


def has_surrogate(text: str) -> bool:
    """Return whether a text has a lone surrogate, which UTF-8 cannot encode."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def storable(text: str, most: int) -> str:
    """Return free text that every store can keep: cut, without NUL and lone surrogates."""
    kept = str(text)[:most].replace("\0", "\N{REPLACEMENT CHARACTER}")
    return kept.encode("utf-8", "backslashreplace").decode("utf-8")[:most]


def check_namespace(namespace: object) -> str:
    """Return `namespace` if it can be part of a Redis hash tag. Raises ConfigError otherwise."""
    if not isinstance(namespace, str) or not re.fullmatch(r"[A-Za-z0-9_.:-]{1,60}", namespace):
        msg = (
            f"namespace {namespace!r} must have 1 to 60 characters out of letters, digits, "
            "'_', '.', ':' and '-'."
        )
        raise ConfigError(msg)
    return namespace


def check_limit(limit: object) -> int:
    """Return `limit` if it is a whole number of at least 1. Raises ConfigError otherwise."""
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= LIMIT_MAX:
        msg = f"limit must be a whole number from 1 to {LIMIT_MAX:,}, not {limit!r}."
        raise ConfigError(msg)
    return limit


def check_meta(meta: object) -> Meta:
    """Return `meta` if it is a small mapping of text to text. Raises ConfigError otherwise."""
    if not isinstance(meta, Mapping) or not all(
        isinstance(part, str) for pair in meta.items() for part in pair
    ):
        msg = f"meta must map text to text, not {meta!r}."
        raise ConfigError(msg)
    if any(has_surrogate(part) for pair in meta.items() for part in pair):
        msg = f"meta {dict(meta)!r} contains a lone surrogate, which stores cannot keep."
        raise ConfigError(msg)
    size = sum(len(name) + len(value) for name, value in meta.items())
    if size > META_SIZE_MAX:
        msg = f"meta has {size} characters; at most {META_SIZE_MAX} are kept with a lease."
        raise ConfigError(msg)
    return meta
