"""The same job calls on the memory store and on another one, in random order.

The memory store is the specification, and after every step all that can be seen is compared. Time
only passes; steps of the clock have tests of their own in the contract. A program is drawn from its
seed alone; before a failure is reported, all steps are left out that it does not need.
"""

import random
from collections.abc import Callable, Sequence
from itertools import count

import pytest
from msgspec.structs import replace

from tenure.core.clock import Clock
from tenure.core.jobs.records import Settled, Settlement
from tenure.stores.connect import connect
from tenure.stores.contract import Store
from tenure.stores.memory import MemoryStore
from tenure.stores.memory.jobs import Jobs
from tests.model.job_pair import JobPair
from tests.model.job_programs import draw
from tests.model.programs import Program, shortest
from tests.model.test_leases_model import FIRST_SEED, SHORT
from tests.rig.sizes import SIZE

SEEDS = range(FIRST_SEED, FIRST_SEED + SIZE.examples // 2)  # job programs are long


@pytest.mark.timeout(600 if SHORT else 14_400)
def test_answers_are_those_of_the_specification(world_url: str, namespace: str):
    numbers = count()

    def connect_to(clock: Clock) -> Store:
        return connect(world_url, namespace=f"{namespace}-{next(numbers)}", clock=clock)

    check(connect_to)


class Generous(Jobs):
    """A store in which every lost job waits again."""

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        again = [
            replace(end, state="waiting") if end.outcome == "lost" else end for end in settlements
        ]
        return await super().settle(again)


def test_a_store_that_differs_is_shown_in_few_steps():
    def connect_to(clock: Clock) -> Store:
        store = MemoryStore("memory://", namespace="app", clock=clock)
        store.jobs = Generous(store)
        return store

    with pytest.raises(AssertionError, match=r"^seed \d+; .*") as caught:
        check(connect_to)
    steps = [line for line in str(caught.value).splitlines() if line.startswith("    (")]
    assert 4 <= len(steps) <= 6
    assert "'recover'" in steps[-1]


@pytest.mark.proof("a test of the generator")
def test_programs_reach_every_call_and_answer():
    """Programs that reach nothing would compare nothing."""

    def connect_to(clock: Clock) -> Store:
        return connect("memory://", namespace="other", clock=clock)

    seen: set[str] = set()
    for seed in range(90):
        with JobPair(connect_to) as pair:
            for step in draw(random.Random(seed), length=2 * SIZE.steps):
                pair.run([step])
                for job, _ in pair._seen.values():
                    seen |= {job.state, job.reason}
                    seen |= {"retried"} if job.failures and job.state == "running" else set()
                    seen |= {"recovered"} if job.losses and job.state == "running" else set()
                    seen |= {"cancelling"} if job.cancelling else set()
                    seen |= {"requeued"} if job.attempt and not job.failures else set()
    assert seen >= {"waiting", "running", "succeeded", "failed", "cancelled", "lost"}
    assert seen >= {"retried", "recovered", "cancelling", "requeued"}


def check(
    connect_to: Callable[[Clock], Store],
    *,
    seeds: Sequence[int] = SEEDS,
    draw: Callable[..., Program] = draw,
    kind: type[JobPair] = JobPair,
) -> None:
    """Run all programs; report the first that shows a difference, without its idle steps."""

    def differs(program: Program) -> Exception | None:
        return difference(program, connect_to, kind)

    for seed in seeds:
        program = draw(random.Random(seed), length=2 * SIZE.steps)
        if differs(program):
            short = shortest(program, lambda part: differs(part) is not None)
            report = "\n".join(f"    {step!r}," for step in short)
            shortest_difference = differs(short)
            raise AssertionError(
                f"seed {seed}; the shortest program that shows it:\n{report}\n{shortest_difference}"
            ) from shortest_difference


def difference(
    program: Program, connect_to: Callable[[Clock], Store], kind: type[JobPair]
) -> Exception | None:
    """Run a program on a fresh pair of stores; return where they differed, if they did."""
    with kind(connect_to) as pair:
        try:
            pair.run(program)
        except Exception as error:  # noqa: BLE001 - an error is a difference, too
            return error
    return None
