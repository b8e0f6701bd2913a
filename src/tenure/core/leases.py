"""The values that travel between a store and the rest, and the rules for names.

Durations are seconds as `float`; instants are whole microseconds of the store's clock. A lease
carries only durations, because a reader cannot compare the store's instants with its own.
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
LIMIT_MAX = 1_000_000

Meta: TypeAlias = Mapping[str, str]

Topic: TypeAlias = tuple[Literal["lease", "queue", "job", "replica", "schedule"], str]
"""What a wake-up is about. A waiter's topic is ("lease", its own holder id)."""


class Lease(Struct, frozen=True, kw_only=True):
    """A time-limited right on a key, or (with `waiting`) a place in the line for one.

    (key, holder, fence) is its identity. A fence of 0 means "not known": `release` then goes by
    the holder alone, which is enough because holder ids are random and never used twice.
    """

    key: str
    holder: str
    fence: Fence = 0
    ttl: Length = 0.0
    limit: Annotated[int, Bounds(ge=1, le=LIMIT_MAX)] = 1
    meta: Meta = {}
    waiting: bool = False
    expires_in: Span = 0.0
    """Seconds it had left when the store answered."""
    held_for: Span = 0.0
    """Seconds since it was granted (or, waiting, since it joined the line)."""


class Granted(Struct, frozen=True):
    """`acquire` succeeded."""

    lease: Lease
    other_limit: int | None = None
    """The smallest limit among the other live holders, if any of them differs from ours."""


class Busy(Struct, frozen=True):
    """`acquire` was refused."""

    retry_in: float
    """Seconds until it can succeed, if nobody renews or releases meanwhile. Only a hint."""
    ahead: int = 0
    """Live waiters ahead of the caller."""
    other_limit: int | None = None


Acquired: TypeAlias = Granted | Busy


class Mark(Struct, frozen=True):
    """A durable value that was stored under the protection of a lease."""

    key: str
    value: str
    fence: Fence


class Grade(Enum):
    """What an acknowledged write survives. Better grades compare as smaller: A < B."""

    A = "strict: process, system and power loss"
    B = "crash-safe: a crash of the store's process; power loss may cost the last second"
    C = "failover: a crash or fail-over can lose an acknowledged tail; fences still grow"
    D = "volatile: gone with the store's process"

    def __lt__(self, other: Grade) -> bool:
        return self.name < other.name


class Finding(Struct, frozen=True):
    """One thing that `Store.examine` found: a plain fact, or what is wrong and what to do."""

    level: Literal["ok", "note", "warning", "error"]
    """A note is worth knowing, a warning can cost leases some day, an error keeps it from working.
    """
    subject: str
    """What it is about, in a word or two: the same word on every store that has it."""
    detail: str
    advice: str = ""
    """What to do about it; never empty unless the level is "ok"."""

    def __post_init__(self) -> None:
        assert self.advice or self.level == "ok", f"nothing is advised about {self.subject!r}"

    @classmethod
    def of_clock(cls, ahead: float, error: float) -> Finding:
        """Judge how far a server's clock is ahead of this host's, known up to `error` seconds."""
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
    """The random id of its data; empty if the store is too full to make one."""


class Traits(Struct, frozen=True, kw_only=True):
    """How stores differ, as data: no store has methods that another lacks."""

    grade: Grade
    scope: Literal["process", "host", "fleet"]
    """How far the same store reaches: threads, processes of one host, or many machines."""
    push: bool
    """Whether wake-ups are pushed; otherwise they are noticed by a cheap poll."""
    transactional: bool
    """Whether it can take part in the user's own database transaction."""


def check_name(name: object, what: str) -> str:
    """Return `name` if a store can keep it unchanged; raise ConfigError otherwise."""
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
    """Whether a text has a lone surrogate, for which UTF-8 has no form, and so no store either."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def storable(text: str, most: int) -> str:
    """Return free text as every store can keep it: not too long, no NUL, no lone surrogate."""
    kept = str(text)[:most].replace("\0", "\N{REPLACEMENT CHARACTER}")
    return kept.encode("utf-8", "backslashreplace").decode("utf-8")[:most]


def check_namespace(namespace: object) -> str:
    """Return `namespace` if it can be part of a Redis hash tag; raise ConfigError otherwise."""
    if not isinstance(namespace, str) or not re.fullmatch(r"[A-Za-z0-9_.:-]{1,60}", namespace):
        msg = (
            f"namespace {namespace!r} must have 1 to 60 characters out of letters, digits, "
            "'_', '.', ':' and '-'."
        )
        raise ConfigError(msg)
    return namespace


def check_limit(limit: object) -> int:
    """Return `limit` if it is a whole number of at least 1; raise ConfigError otherwise."""
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= LIMIT_MAX:
        msg = f"limit must be a whole number from 1 to {LIMIT_MAX:,}, not {limit!r}."
        raise ConfigError(msg)
    return limit


def check_meta(meta: object) -> Meta:
    """Return `meta` if it is a small mapping of text to text; raise ConfigError otherwise."""
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
