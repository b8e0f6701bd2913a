"""The same calls on the memory store and on another one, in random order: equal answers.

The memory store is the specification. Time only passes; steps of the clock, at which stores may
differ within their promise, have tests of their own in the contract.

A program is drawn from its seed alone, so a failure happens again. Before it is reported, all steps
are left out that it does not need.
"""

import os
import random
from collections.abc import Callable
from itertools import count

import pytest

from tenure.core.clock import Clock
from tenure.core.leases import Lease
from tenure.stores.connect import connect
from tenure.stores.contract import Store
from tenure.stores.memory import MemoryStore
from tenure.stores.memory.leases import Leases
from tests.model.pair import Pair
from tests.model.programs import Program, draw, shorten
from tests.rig.sizes import SIZE

SHORT = os.environ.get("TENURE_TEST_SIZE", "short") == "short"
# Every ordinary run uses the same seeds, so that a failure can be repeated.
FIRST_SEED = 0 if SHORT else random.SystemRandom().randrange(10**9)
SEEDS = range(FIRST_SEED, FIRST_SEED + 2 * SIZE.examples)


@pytest.mark.timeout(600 if SHORT else 14_400)
def test_answers_are_those_of_the_specification(world_url: str, namespace: str):
    numbers = count()

    def connect_to(clock: Clock) -> Store:
        return connect(world_url, namespace=f"{namespace}-{next(numbers)}", clock=clock)

    check(connect_to)


class Forgetful(Leases):
    """A store that accepts every mark."""

    async def mark(self, key: str, lease: Lease, value: str) -> bool:
        await super().mark(key, lease, value)
        return True


def test_a_store_that_differs_is_shown_in_few_steps():
    def connect_to(clock: Clock) -> Store:
        store = MemoryStore("memory://", namespace="app", clock=clock)
        store.leases = Forgetful(store)
        return store

    with pytest.raises(AssertionError, match=r"^seed \d+; .*") as caught:
        check(connect_to)
    steps = [line for line in str(caught.value).splitlines() if line.startswith("    (")]
    assert 2 <= len(steps) <= 4
    assert "'mark'" in steps[-1]


def check(connect_to: Callable[[Clock], Store]) -> None:
    """Run all programs; report the first that shows a difference, without its idle steps."""
    for seed in SEEDS:
        program = draw(random.Random(seed), length=2 * SIZE.steps)
        if difference(program, connect_to):
            short = shorten(program, lambda part: difference(part, connect_to) is not None)
            report = "\n".join(f"    {step!r}," for step in short)
            raise AssertionError(
                f"seed {seed}; the shortest program that shows it:\n{report}"
            ) from difference(short, connect_to)


def difference(program: Program, connect_to: Callable[[Clock], Store]) -> Exception | None:
    """Run a program on a fresh pair of stores; return where they differed, if they did."""
    with Pair(connect_to) as pair:
        try:
            pair.run(program)
        except Exception as error:  # noqa: BLE001 - an error is a difference, too
            return error
    return None
