"""The same calls to the memory store and to another one, in random order: the answers are equal.

The memory store is the specification. Time only passes; steps of the clock, at which stores may
differ within their promise, have tests of their own in the contract.
"""

import asyncio
import os
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tenure.core.clock import Clock
from tenure.core.durations import micros
from tenure.core.model import Acquired, Busy, Lease, Mark
from tenure.stores.connect import connect
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract import calls
from tests.rig.sizes import SIZE, Size

T = TypeVar("T")

# Mostly one key and long times, so that holders and waiters meet.
KEYS = st.sampled_from(["a", "a", "a", "ab", "b"])
HOLDERS = st.sampled_from(["p", "q", "r", "s"])
LIMITS = st.sampled_from([1, 1, 2, 3])
TTLS = st.sampled_from([1.1, 2.5, 10.0, 10.0, 30.0])
LIVES = st.sampled_from([1.0, 3.0, 10.0, 30.0])
METAS = st.sampled_from([{}, {"host": "one"}, {"host": "two", "läuft": "🌍"}])
PICK = st.integers(min_value=0, max_value=20)
PICKS = st.lists(PICK, min_size=1, max_size=4)

SHORT = os.environ.get("TENURE_TEST_SIZE", "short") == "short"

CLOSE = 5e-6  # a few microseconds: what is lost when a store computes in floating point


class Stores(RuleBasedStateMachine):
    """A memory store and another store under one clock."""

    def __init__(self, connect_to: Callable[[Clock], Store]) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.noise: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, context: self.noise.append(context))
        self.clock = ManualClock()
        self.spec = connect("memory://", namespace="spec", clock=self.clock)
        self.other = connect_to(self.clock)
        # Every grant ever made, as the two stores answered it.
        self.grants: list[tuple[Lease, Lease]] = []
        self.fences: dict[tuple[str, int], int] = {}
        self.last: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        # Instants at which a lease or a place in line ends, unless it is renewed.
        self.ends: set[int] = set()
        self.both(lambda store: store.open())

    def teardown(self) -> None:
        self.both(lambda store: store.close())
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        assert not self.noise

    # What the two are asked.

    @rule(key=KEYS, holder=HOLDERS, limit=LIMITS, ttl=TTLS, meta=METAS)
    def acquire(self, key: str, holder: str, limit: int, ttl: float, meta: dict[str, str]) -> None:
        self.ask(key, holder, limit=limit, ttl=ttl, meta=meta)

    @rule(key=KEYS, holder=HOLDERS, limit=LIMITS, ttl=TTLS, meta=METAS, life=LIVES)
    def acquire_or_wait(
        self, key: str, holder: str, limit: int, ttl: float, meta: dict[str, str], life: float
    ) -> None:
        self.ask(key, holder, limit=limit, ttl=ttl, meta=meta, waiting=life)

    @rule(key=KEYS, holder=HOLDERS, limit=LIMITS, life=LIVES)
    def wait_in_line(self, key: str, holder: str, limit: int, life: float) -> None:
        self.ask(key, holder, limit=limit, waiting=life)

    @rule(key=KEYS, holder=HOLDERS)
    def come_and_go(self, key: str, holder: str) -> None:
        # More grants than microseconds: the fence runs ahead of the clock.
        for _ in range(3):
            self.ask(key, holder)
            self.release_by_holder_alone(key, holder)

    @precondition(lambda self: self.asked)
    @rule(pick=PICK)
    def ask_again(self, pick: int) -> None:
        key, holder, details = self.asked[-1 - pick % len(self.asked)]
        self.ask(key, holder, **details)

    @precondition(lambda self: self.grants)
    @rule(picks=PICKS)
    def renew(self, picks: list[int]) -> None:
        ours, theirs = self.pick(picks)
        spec, other = self.each(
            lambda: calls.renew(self.spec, *ours), lambda: calls.renew(self.other, *theirs)
        )
        assert other == spec

    @precondition(lambda self: self.grants)
    @rule(picks=PICKS)
    def release(self, picks: list[int]) -> None:
        ours, theirs = self.pick(picks)
        spec, other = self.each(lambda: self.spec.release(ours), lambda: self.other.release(theirs))
        assert other == spec

    @rule(key=KEYS, holder=HOLDERS)
    def release_by_holder_alone(self, key: str, holder: str) -> None:
        spec, other = self.both(lambda store: store.release([Lease(key=key, holder=holder)]))
        assert other == spec

    @precondition(lambda self: self.grants)
    @rule(pick=PICK, value=st.sampled_from(["v", "w"]))
    def mark(self, pick: int, value: str) -> None:
        (ours,), (theirs,) = self.pick([pick])
        # One mark per lease key, because fences of two keys do not compare.
        key = f"done {ours.key}"
        spec, other = self.each(
            lambda: self.spec.mark(key, ours, value), lambda: self.other.mark(key, theirs, value)
        )
        assert other == spec
        (mark,), (same,) = self.both(lambda store: store.marked([key]))
        assert same == (mark and Mark(key, mark.value, self.fences[ours.key, mark.fence]))

    @rule()
    def look(self) -> None:
        self.look_at("", 1000)

    @rule(prefix=st.sampled_from(["", "a", "ab", "b", "c"]), limit=st.sampled_from([1, 3, 1000]))
    def look_at(self, prefix: str, limit: int) -> None:
        spec, other = self.both(lambda store: store.leases(prefix, limit=limit))
        assert len(other) == len(spec)
        for ours, theirs in zip(spec, other, strict=True):
            self.compare(ours, theirs)
        # True whatever the specification says: never more than the smallest limit allows.
        live = [lease for lease in other if not lease.waiting]
        for key in {lease.key for lease in live}:
            limits = [lease.limit for lease in live if lease.key == key]
            assert len(limits) <= min(limits)

    @rule(idle=st.sampled_from([0.0, 1.0, 5.0]), limit=st.sampled_from([1, 1000]))
    def prune(self, idle: float, limit: int) -> None:
        # How much there was to forget, and what came first, is each store's own matter.
        for pruned in self.both(lambda store: store.prune(idle=idle, limit=limit)):
            assert 0 <= pruned <= limit

    @rule(seconds=st.sampled_from([0.000_001, 0.1, 1.0, 2.5]))
    def let_time_pass(self, seconds: float) -> None:
        self.clock.shift(seconds)

    @precondition(lambda self: self.ends)
    @rule(pick=PICK, just_before=st.booleans())
    def let_time_pass_until_something_ends(self, pick: int, just_before: bool) -> None:
        end = sorted(self.ends)[pick % len(self.ends)]
        self.ends.discard(end)
        moments = end - self.clock.wall() - just_before
        self.clock.shift(max(moments, 0) / 1e6)

    # How they are asked and compared.

    def ask(self, key: str, holder: str, **details: Any) -> None:
        spec, other = self.both(lambda store: calls.ask(store, key, holder, **details))
        self.compare_answers(spec, other)
        self.asked.append((key, holder, details))
        length = details.get("waiting", 0.0) if isinstance(spec, Busy) else spec.lease.ttl
        self.ends.add(self.clock.wall() + micros(length))

    def compare_answers(self, ours: Acquired, theirs: Acquired) -> None:
        assert type(theirs) is type(ours)
        assert theirs.other_limit == ours.other_limit
        if isinstance(ours, Busy):
            assert isinstance(theirs, Busy)
            assert theirs.retry_in == pytest.approx(ours.retry_in, abs=CLOSE)
            assert theirs.ahead == ours.ahead
            return
        assert not isinstance(theirs, Busy)
        known = (ours.lease.key, ours.lease.fence) in self.fences
        if not known:
            self.note(ours.lease, theirs.lease)
        self.compare(ours.lease, theirs.lease)

    def note(self, ours: Lease, theirs: Lease) -> None:
        """Remember a new grant; its fence is above all before it of the same key."""
        key = ours.key
        last_of_ours, last_of_theirs = self.last[key]
        assert ours.fence > last_of_ours
        assert theirs.fence > last_of_theirs
        assert theirs.fence >= self.clock.wall()
        self.last[key] = (ours.fence, theirs.fence)
        self.fences[key, ours.fence] = theirs.fence
        self.grants.append((ours, theirs))

    def compare(self, ours: Lease, theirs: Lease) -> None:
        fence = 0 if ours.waiting else self.fences[ours.key, ours.fence]
        assert theirs.fence == fence
        for field in ("key", "holder", "limit", "meta", "waiting"):
            assert getattr(theirs, field) == getattr(ours, field), field
        for field in ("ttl", "expires_in", "held_for"):
            assert getattr(theirs, field) == pytest.approx(getattr(ours, field), abs=CLOSE), field

    def pick(self, picks: Sequence[int]) -> tuple[list[Lease], list[Lease]]:
        """Return grants as the two stores made them; small numbers mean recent ones."""
        chosen = [self.grants[-1 - pick % len(self.grants)] for pick in picks]
        return [ours for ours, _ in chosen], [theirs for _, theirs in chosen]

    def both(self, call: Callable[[Store], Awaitable[T]]) -> tuple[T, T]:
        return self.each(lambda: call(self.spec), lambda: call(self.other))

    def each(
        self, spec: Callable[[], Awaitable[T]], other: Callable[[], Awaitable[T]]
    ) -> tuple[T, T]:
        return self.run(spec()), self.run(other())

    def run(self, call: Awaitable[T]) -> T:
        async def run() -> T:
            return await call

        return self.loop.run_until_complete(run())


@pytest.mark.timeout(600 if SHORT else 14_400)  # a failure takes long to shrink
def test_answers_are_those_of_the_specification(world_url: str, namespace: str):
    numbers = count()

    def connect_to(clock: Clock) -> Store:
        return connect(world_url, namespace=f"{namespace}-{next(numbers)}", clock=clock)

    run_state_machine_as_test(lambda: Stores(connect_to), settings=_settings(SIZE))


def _settings(size: Size) -> settings:
    return settings(
        max_examples=3 * size.examples,
        stateful_step_count=size.steps,
        deadline=None,
        # Every ordinary run does the same, so that a red one is red for the next person too.
        derandomize=SHORT,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
