"""Two stores under one clock that get the same calls and are compared."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import pytest

from tenure.core.clock import Clock
from tenure.core.durations import micros
from tenure.core.leases import Acquired, Busy, Lease, Mark
from tenure.stores.connect import connect
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract import calls
from tests.model.programs import Program

T = TypeVar("T")

CLOSE = 5e-6  # a few microseconds, the rounding error of stores that compute in floating point


class Pair:
    """A memory store, which is right by definition, and another one.

    Fences need not be equal, because a store may keep one mark for all keys; but they rise with
    every grant of a key, and each grant keeps its own.
    """

    def __init__(self, connect_to: Callable[[Clock], Store]) -> None:
        self._loop = asyncio.new_event_loop()
        self._noise: list[dict[str, Any]] = []
        self._loop.set_exception_handler(lambda _, context: self._noise.append(context))
        self._clock = ManualClock()
        self._spec = connect("memory://", namespace="spec", clock=self._clock)
        self._other = connect_to(self._clock)
        # Every grant ever made, as the two stores answered it, and their fences.
        self._grants: list[tuple[Lease, Lease]] = []
        self._fences: dict[tuple[str, int], int] = {}
        self._last: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        self._acquires: list[dict[str, Any]] = []
        # Instants at which a lease or a place in line ends, unless it is renewed.
        self._ends: set[int] = set()
        self._pruned = False

    def __enter__(self) -> Self:
        self._both(lambda store: store.open())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._both(lambda store: store.close())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
        assert not self._noise

    def run(self, program: Program) -> None:
        """Go through the program; raise AssertionError where the two differ."""
        for name, arguments in program:
            getattr(self, name)(**arguments)
        self.look()

    # Steps. A step that refers to something that does not exist yet does nothing.

    def acquire(self, **wishes: Any) -> None:
        spec, other = self._both(lambda store: calls.ask(store, **wishes))
        self._compare_answers(spec, other)
        self._acquires.append(wishes)
        length = wishes["waiting"] if isinstance(spec, Busy) else spec.lease.ttl
        self._ends.add(self._clock.wall() + micros(length))

    def acquire_again(self, which: int) -> None:
        if self._acquires:
            self.acquire(**self._acquires[-1 - which % len(self._acquires)])

    def come_and_go(self, key: str, holder: str, times: int) -> None:
        """Be granted more often than microseconds pass: the fence runs ahead of the clock."""
        for _ in range(times):
            self.acquire(key=key, holder=holder, limit=1, ttl=10.0, meta={}, waiting=0.0)
            self.release_by_holder(key, holder)

    def renew(self, which: Sequence[int]) -> None:
        ours, theirs = self._recent(which)
        spec = self._run(calls.renew(self._spec, *ours))
        assert self._run(calls.renew(self._other, *theirs)) == spec

    def release(self, which: Sequence[int]) -> None:
        ours, theirs = self._recent(which)
        spec = self._run(self._spec.leases.release(ours))
        assert self._run(self._other.leases.release(theirs)) == spec

    def release_by_holder(self, key: str, holder: str) -> None:
        spec, other = self._both(
            lambda store: store.leases.release([Lease(key=key, holder=holder)])
        )
        assert other == spec

    def mark(self, which: int, value: str) -> None:
        for ours, theirs in zip(*self._recent([which]), strict=True):
            # Under the lease's own key, because fences of two keys do not compare.
            spec = self._run(self._spec.leases.mark(ours.key, ours, value))
            assert self._run(self._other.leases.mark(theirs.key, theirs, value)) == spec
            self._compare_marks(ours.key)

    def look(self, prefix: str = "", limit: int = 1000) -> None:
        spec, other = self._both(lambda store: store.leases.find(prefix, limit=limit))
        for ours, theirs in zip(spec, other, strict=False):
            self._compare(ours, theirs)
        assert len(other) == len(spec)
        # An invariant of its own: never more than the smallest limit allows.
        live = [lease for lease in other if not lease.waiting]
        for key in {lease.key for lease in live}:
            limits = [lease.limit for lease in live if lease.key == key]
            assert len(limits) <= min(limits)
            self._compare_marks(key)

    def prune(self, idle: float, limit: int) -> None:
        self._pruned = True
        # The number and order of forgotten keys differ between stores.
        for pruned in self._both(lambda store: store.prune(idle=idle, limit=limit)):
            assert 0 <= pruned.leases <= limit
            assert pruned.jobs == 0

    def pass_time(self, seconds: float) -> None:
        self._clock.shift(seconds)

    def pass_time_until_an_end(self, which: int, before: int) -> None:
        """Advance to the end of a lease or place, or to `before` microseconds earlier."""
        now = self._clock.wall()
        if ahead := sorted(end for end in self._ends if end > now):
            self._clock.shift((ahead[which % len(ahead)] - before - now) / 1e6)

    # Calls on both stores, and comparisons.

    def _compare_answers(self, ours: Acquired, theirs: Acquired) -> None:
        assert type(theirs) is type(ours)
        assert theirs.other_limit == ours.other_limit
        if isinstance(ours, Busy) or isinstance(theirs, Busy):
            assert theirs.retry_in == pytest.approx(ours.retry_in, abs=CLOSE)
            assert theirs.ahead == ours.ahead
            return
        if (ours.lease.key, ours.lease.fence) not in self._fences:
            self._note(ours.lease, theirs.lease)
        self._compare(ours.lease, theirs.lease)
        # Stores forget different keys when they are pruned.
        assert self._pruned or theirs.took_over == ours.took_over

    def _note(self, ours: Lease, theirs: Lease) -> None:
        """Remember a new grant; its fence is above all before it of the same key."""
        last_of_ours, last_of_theirs = self._last[ours.key]
        assert ours.fence > last_of_ours
        assert theirs.fence > last_of_theirs
        assert theirs.fence >= self._clock.wall()
        self._last[ours.key] = (ours.fence, theirs.fence)
        self._fences[ours.key, ours.fence] = theirs.fence
        self._grants.append((ours, theirs))

    def _compare(self, ours: Lease, theirs: Lease) -> None:
        for field in ("key", "holder", "limit", "meta", "waiting"):
            assert getattr(theirs, field) == getattr(ours, field), field
        for field in ("ttl", "expires_in", "held_for"):
            assert getattr(theirs, field) == pytest.approx(getattr(ours, field), abs=CLOSE), field
        assert theirs.fence == (0 if ours.waiting else self._fences[ours.key, ours.fence])

    def _compare_marks(self, key: str) -> None:
        (ours,), (theirs,) = self._both(lambda store: store.leases.marked([key]))
        assert theirs == (ours and Mark(key, ours.value, self._fences[key, ours.fence]))

    def _recent(self, which: Sequence[int]) -> tuple[list[Lease], list[Lease]]:
        """Return grants, counted from the last one, as the two stores made them."""
        chosen = [self._grants[-1 - number % len(self._grants)] for number in which if self._grants]
        return [ours for ours, _ in chosen], [theirs for _, theirs in chosen]

    def _both(self, call: Callable[[Store], Awaitable[T]]) -> tuple[T, T]:
        return self._run(call(self._spec)), self._run(call(self._other))

    def _run(self, call: Awaitable[T]) -> T:
        async def run() -> T:
            return await call

        return self._loop.run_until_complete(run())
