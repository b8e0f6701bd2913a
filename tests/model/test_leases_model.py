"""The same calls to the memory store and to another one, in random order: the answers are equal.

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
from tenure.stores.connect import connect
from tenure.stores.contract import Store
from tests.model.pair import Pair
from tests.model.programs import Program, draw, shorten
from tests.rig.sizes import SIZE

SHORT = os.environ.get("TENURE_TEST_SIZE", "short") == "short"
# Every ordinary run does the same, so that a red one is red for the next person too.
FIRST_SEED = 0 if SHORT else random.SystemRandom().randrange(10**9)
SEEDS = range(FIRST_SEED, FIRST_SEED + 2 * SIZE.examples)


@pytest.mark.timeout(600 if SHORT else 14_400)
def test_answers_are_those_of_the_specification(world_url: str, namespace: str):
    numbers = count()

    def connect_to(clock: Clock) -> Store:
        return connect(world_url, namespace=f"{namespace}-{next(numbers)}", clock=clock)

    for seed in SEEDS:
        program = draw(random.Random(seed), length=2 * SIZE.steps)
        if difference(program, connect_to):
            short = shorten(program, lambda part: difference(part, connect_to) is not None)
            report = "\n".join(f"    {step!r}," for step in short)
            raise AssertionError(
                f"seed {seed}; the shortest program that shows it:\n{report}"
            ) from difference(short, connect_to)


def difference(program: Program, connect_to: Callable[[Clock], Store]) -> AssertionError | None:
    """Run a program on a fresh pair of stores; return where they differed, if they did."""
    with Pair(connect_to) as pair:
        try:
            pair.run(program)
        except AssertionError as error:
            return error
    return None
