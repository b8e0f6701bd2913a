"""The same work of two replicas on the memory store and on another one, in random order.

As in `test_schedules_model`, but through `Scheduling`: registrations, renames, ticks, freezes and
removals, with lost replies and repeats. The whole stack gives the same answers on each store.
"""

import random
from collections.abc import Sequence
from itertools import count

import pytest
from msgspec.structs import replace

from tenure.core.clock import Clock
from tenure.core.schedules.documents import decision_in, read_standing
from tenure.core.schedules.records import Commit, Committed
from tenure.stores.connect import connect
from tenure.stores.contract import Store
from tenure.stores.memory import MemoryStore
from tenure.stores.memory.schedules import Schedules
from tests.model.scheduling_pair import SchedulingPair
from tests.model.scheduling_programs import draw
from tests.model.test_jobs_model import check
from tests.model.test_leases_model import FIRST_SEED, SHORT
from tests.rig.sizes import SIZE

SEEDS = range(FIRST_SEED, FIRST_SEED + SIZE.examples // 5)  # these programs look at a lot


@pytest.mark.timeout(600 if SHORT else 14_400)
def test_answers_are_those_of_the_specification(world_url: str, namespace: str):
    numbers = count()

    def connect_to(clock: Clock) -> Store:
        return connect(world_url, namespace=f"{namespace}-{next(numbers)}", clock=clock)

    check(connect_to, seeds=SEEDS, draw=draw, kind=SchedulingPair)


class Crowded(Schedules):
    """A store with room for every run."""

    async def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        return await super().commit([replace(commit, rooms=()) for commit in commits])


def test_a_store_that_differs_is_shown_in_few_steps():
    def connect_to(clock: Clock) -> Store:
        store = MemoryStore("memory://", namespace="app", clock=clock)
        store.schedules = Crowded(store, store.jobs)
        return store

    with pytest.raises(AssertionError, match=r"^seed \d+; .*") as caught:
        check(connect_to, seeds=SEEDS, draw=draw, kind=SchedulingPair)
    steps = [line for line in str(caught.value).splitlines() if line.startswith("    (")]
    assert 3 <= len(steps) <= 8
    assert "('advance" in steps[-1]


@pytest.mark.proof("a test of the generator")
def test_programs_reach_every_call_and_answer():
    """Programs that reach nothing would compare nothing."""

    def connect_to(clock: Clock) -> Store:
        return connect("memory://", namespace="other", clock=clock)

    seen: set[str] = set()
    lost = 0
    for seed in range(60):
        with SchedulingPair(connect_to) as pair:
            for step in draw(random.Random(seed), length=2 * SIZE.steps):
                pair.run([step])
                runs = [job for job, _ in pair._seen.values() if job.schedule]
                seen |= {f"{job.state} {job.reason}".strip() for job in runs}
                seen |= {"claimed"} if any(job.attempt > 1 for job in runs) else set()
                for record in pair._run(pair._spec.schedules.read()).records:
                    standing = read_standing(record.standing)
                    assert standing is not None
                    seen |= {"renamed"} if standing.successor else set()
                    seen |= {"several runs"} if record.live > 1 else set()
                    seen |= {"merged"} if record.latest and record.latest.ticks > 3 else set()
                    decision = record.latest and decision_in(record.latest)
                    seen |= {f"line: {decision.outcome} {decision.reason}"} if decision else set()
            seen |= {f"{answer.outcome} {answer.reason}".strip() for answer in pair.answers}
            lost += pair.lost
    assert seen >= {"done", "passed", "early", "gone", "unknown"}
    assert seen >= {f"skipped {reason}" for reason in ("paused", "limit", "overlap")}
    assert seen >= {f"held {reason}" for reason in ("expired", "running", "limit", "overlap")}
    assert seen >= {"waiting", "running", "succeeded", "failed lost", "failed interrupted"}
    assert seen >= {"cancelled limit", "claimed", "renamed", "merged", "several runs"}
    assert seen >= {"line: ran triggered", "line: skipped paused", "line: missed late"}
    assert lost > 60
