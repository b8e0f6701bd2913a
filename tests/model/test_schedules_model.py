"""The same schedule calls to the memory store and to another one, in random order.

As in `test_jobs_model`: the memory store is the specification, and after every step all that can be
seen is compared.
"""

import random
from itertools import count

import pytest
from msgspec.structs import replace

from tenure.core.clock import Clock
from tenure.core.schedules import Advance, Advanced
from tenure.stores.connect import connect
from tenure.stores.contract import Store
from tenure.stores.memory import MemoryStore
from tests.model.schedule_pair import SchedulePair
from tests.model.schedule_programs import draw
from tests.model.test_jobs_model import check
from tests.model.test_leases_model import FIRST_SEED, SHORT
from tests.rig.sizes import SIZE

SEEDS = range(FIRST_SEED, FIRST_SEED + SIZE.examples // 5)  # these programs look at a lot


@pytest.mark.timeout(600 if SHORT else 14_400)
def test_answers_are_those_of_the_specification(world_url: str, namespace: str):
    numbers = count()

    def connect_to(clock: Clock) -> Store:
        return connect(world_url, namespace=f"{namespace}-{next(numbers)}", clock=clock)

    check(connect_to, seeds=SEEDS, draw=draw, kind=SchedulePair)


class Blind(MemoryStore):
    """Does not see where the cursor is."""

    async def advance(self, move: Advance) -> Advanced:
        (now,) = await self.schedules([move.name]) or (None,)
        seen = move.seen if now is None or move.seen is None else now.cursor
        return await super().advance(replace(move, seen=seen))


def test_a_store_that_differs_is_shown_in_few_steps():
    def connect_to(clock: Clock) -> Store:
        return Blind("memory://", namespace="app", clock=clock)

    with pytest.raises(AssertionError, match=r"^seed \d+; .*") as caught:
        check(connect_to, seeds=SEEDS, draw=draw, kind=SchedulePair)
    steps = [line for line in str(caught.value).splitlines() if line.startswith("    (")]
    assert 3 <= len(steps) <= 8
    assert "('advance" in steps[-1]


def test_programs_come_through_all_that_can_happen():
    """A generator that never gets anywhere would compare nothing."""

    def connect_to(clock: Clock) -> Store:
        return connect("memory://", namespace="other", clock=clock)

    seen: set[str] = set()
    for seed in range(60):
        with SchedulePair(connect_to) as pair:
            for step in draw(random.Random(seed), length=2 * SIZE.steps):
                pair.run([step])
                seen |= {f"{one.outcome} {one.reason}".strip() for one in pair.answers}
                runs = [job for job, _ in pair._seen.values() if job.schedule]
                seen |= {f"{job.state} {job.reason}".strip() for job in runs}
                seen |= {"claimed"} if any(job.attempt > 1 for job in runs) else set()
                for one in pair._run(pair._spec.schedules()):
                    seen |= {"renamed"} if one.successor else set()
                    seen |= {"merged"} if one.latest and one.latest.ticks > 3 else set()
                    seen |= {"full"} if one.live > 1 else set()
    assert seen >= {"done", "passed", "early", "gone", "unknown"}
    assert seen >= {f"skipped {reason}" for reason in ("paused", "limit", "overlap")}
    assert seen >= {f"held {reason}" for reason in ("expired", "running", "limit", "overlap")}
    assert seen >= {"waiting", "running", "succeeded", "failed lost", "failed interrupted"}
    assert seen >= {"cancelled limit", "claimed", "renamed", "merged", "full"}
