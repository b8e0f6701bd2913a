"""The job libraries that are compared, one module each, used as their documentation shows.

Every module has two functions. `producer(url)` is a context manager, async if the library is; it
yields a `Producer`. `work(url)` runs a worker in this process until it is killed. The handler calls
`bench.marks.started` and returns its number, so that there is a result to store.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

Arguments = tuple[int, int, str]
"""Number of the job, when its enqueue began, and some text."""


@dataclass(frozen=True)
class Producer:
    """Enqueues one job, or many in one call if the library has a bulk call."""

    enqueue: Callable[..., Any]
    enqueue_many: Callable[[list[Arguments]], Any] | None = None


def run(main: Coroutine[Any, Any, Any]) -> None:
    """Run on uvloop, which all async contestants use."""
    import uvloop  # noqa: PLC0415 - the sync contestants do without

    uvloop.run(main)
