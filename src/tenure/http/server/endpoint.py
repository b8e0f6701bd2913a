"""One endpoint: a handler that runs as a job, with the rules for accepting requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from tenure.core.durations import Duration, seconds
from tenure.core.jobs.records import COUNT_MAX
from tenure.core.sizes import size
from tenure.errors import ConfigError
from tenure.http.job_resource import Pace
from tenure.http.server.parameters import Parameters
from tenure.jobs import StoredTask, Task

__all__ = [
    "SECRETS",
    "BeforeEnqueue",
    "Endpoint",
    "Entry",
    "Idempotency",
    "Limits",
    "Submission",
    "entry",
    "kept_headers",
]

Idempotency: TypeAlias = Literal["optional", "required", "off"]
SECRETS: Final = frozenset({"authorization", "cookie", "proxy-authorization", "set-cookie"})
"""Headers that contain secrets of clients: no job stores them."""
_WAIT_MAX = 300.0
_LIMIT_MAX = 200


class Submission(Struct, frozen=True, kw_only=True):
    """A request that is about to become a job."""

    owner: str
    method: str
    path: str
    """The declared path below the router's prefix, such as "/{year}"."""
    arguments: Mapping[str, Any]
    """The handler's arguments, decoded as in the worker."""
    headers: Mapping[str, str]
    """The headers that the job stores."""


BeforeEnqueue: TypeAlias = Callable[[Submission], Awaitable[None] | None]
"""A hook that gets each submission of a new job, and raises a `Problem` to reject it."""


class Limits(Struct, frozen=True, kw_only=True):
    """Limits on the number of jobs. Concurrent requests may exceed them slightly.

    The store counts before it inserts, so a burst of requests may all see the same count.

    Args:
        running: the most unfinished jobs of one owner (429).
        per_minute: the most jobs of one owner in any minute (429).
        waiting: the most waiting jobs of the queue, of all owners (503); up to 10,000.
    """

    running: int | None = None
    per_minute: int | None = None
    waiting: int | None = None

    def __post_init__(self) -> None:
        for name, countable in (
            ("running", _LIMIT_MAX),
            ("per_minute", _LIMIT_MAX),
            ("waiting", COUNT_MAX),
        ):
            most = getattr(self, name)
            if most is not None and (type(most) is not int or not 1 <= most <= countable):
                msg = (
                    f"{name} must be a whole number from 1 to {countable:,}, not {most!r}. One "
                    "query of the store counts no further."
                )
                raise ConfigError(msg)


class Entry(Struct, frozen=True, kw_only=True):
    """The rules for accepting requests of one endpoint."""

    max_wait: float
    idempotency: Idempotency
    body_limit: int
    headers: frozenset[str]
    media_type: str
    limits: Limits | None
    before_enqueue: BeforeEnqueue | None


def entry(  # noqa: D103 - every option is described where users give it
    *,
    max_wait: Duration,
    idempotency: Idempotency,
    body_limit: int | str,
    headers: Sequence[str],
    media_type: str,
    limits: Limits | None,
    before_enqueue: BeforeEnqueue | None,
) -> Entry:
    if idempotency not in ("optional", "required", "off"):
        msg = f"idempotency must be 'optional', 'required' or 'off', not {idempotency!r}."
        raise ConfigError(msg)
    return Entry(
        max_wait=seconds(max_wait, "max_wait", maximum=_WAIT_MAX),
        idempotency=idempotency,
        body_limit=size(body_limit, "body_limit"),
        headers=kept_headers(headers),
        media_type=media_type,
        limits=limits,
        before_enqueue=before_enqueue,
    )


def kept_headers(names: Sequence[str]) -> frozenset[str]:
    """Return the names of headers that are kept for handlers; raise ConfigError for secrets."""
    kept = frozenset(name.lower() for name in names)
    if kept & SECRETS:
        msg = (
            f"headers={min(kept & SECRETS)!r}: this header contains a secret of the client, so "
            "jobs do not store it. Use owner= to identify the caller."
        )
        raise ConfigError(msg)
    return kept


class Endpoint(Struct, frozen=True, kw_only=True):
    """A handler under a method and a path."""

    method: str
    path: str
    """Below the router's prefix."""
    task: Task[..., Any]
    stored: StoredTask
    parameters: Parameters
    entry: Entry
    pace: Pace

    def outer_parameters(self, path: Mapping[str, Any]) -> dict[str, str]:
        """Return the path parameters that come before the router's prefix."""
        own = {parameter.name for parameter in self.parameters.of("path")}
        return {name: str(value) for name, value in path.items() if name not in own}

    def unwrap(self, stored: bytes) -> bytes:
        """Return the bytes of a result that is not JSON. The store keeps it as a JSON string."""
        value = self.stored.result(stored)
        return value if isinstance(value, bytes) else str(value).encode()
