"""The same schedule calls on the memory store and on another one, in random order.

As in `test_jobs_model`: the memory store is the specification, and after every step all that can be
seen is compared. `test_scheduling_model` does the same with all that Tenure builds on these calls.
"""

import random
from collections.abc import Sequence
from itertools import count

import pytest
from msgspec.structs import replace

from tenure.core.clock import Clock
from tenure.core.schedules.records import Commit, Committed, Expected
from tenure.stores.connect import connect
from tenure.stores.contract import Store
from tenure.stores.memory import MemoryStore
from tenure.stores.memory.schedules import Schedules
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


class Blind(Schedules):
    """A store that ignores the expected version."""

    async def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        answers = []
        for commit in commits:
            records = (await self.read([expected.name for expected in commit.expects])).records
            versions = {record.name: record.version for record in records}
            expects = tuple(
                Expected(expected.name, versions.get(expected.name, ""), expected.silent_for)
                for expected in commit.expects
            )
            answers += await super().commit([replace(commit, expects=expects)])
        return answers


def test_a_store_that_differs_is_shown_in_few_steps():
    def connect_to(clock: Clock) -> Store:
        store = MemoryStore("memory://", namespace="app", clock=clock)
        store.schedules = Blind(store, store.jobs)
        return store

    with pytest.raises(AssertionError, match=r"^seed \d+; .*") as caught:
        check(connect_to, seeds=SEEDS, draw=draw, kind=SchedulePair)
    steps = [line for line in str(caught.value).splitlines() if line.startswith("    (")]
    assert 1 <= len(steps) <= 4
    assert "('commit" in steps[-1]


@pytest.mark.proof("a test of the generator")
def test_programs_reach_every_call_and_answer():
    """Programs that reach nothing would compare nothing."""

    def connect_to(clock: Clock) -> Store:
        return connect("memory://", namespace="other", clock=clock)

    seen: set[str] = set()
    for seed in range(60):
        with SchedulePair(connect_to) as pair:
            for step in draw(random.Random(seed), length=2 * SIZE.steps):
                pair.run([step])
                runs = [job for job, _ in pair._seen.values() if job.schedule]
                seen |= {f"{job.state} {job.reason}".strip() for job in runs}
                seen |= {"claimed"} if any(job.attempt > 1 for job in runs) else set()
                for record in pair._run(pair._spec.schedules.read()).records:
                    seen |= {"merged"} if record.latest and record.latest.ticks > 3 else set()
                    seen |= {"several runs"} if record.live > 1 else set()
            seen |= {answer.outcome for answer in pair.answers}
            seen |= {"blocked"} if any(answer.blocking for answer in pair.answers) else set()
            seen |= _kinds_of(pair._commits, pair.answers)
    assert seen >= {"done", "instead", "stale", "early", "gone", "expired", "full", "blocked"}
    assert seen >= {"waiting", "running", "succeeded", "failed", "failed lost", "cancelled enough"}
    assert seen >= {"claimed", "merged", "several runs", "deleted", "continued", "repeated"}
    assert seen >= {"too loud", "a second room"}


def _kinds_of(commits: list[Commit], answers: list[Committed]) -> set[str]:
    """Return the outcomes of some commits in words."""
    kinds: set[str] = set()
    for commit, answer in zip(commits, answers, strict=True):
        versions = {expected.name: expected.version for expected in commit.expects}
        if answer.outcome == "stale":
            is_loud = any(
                head.version and head.version == versions[head.name] for head in answer.heads
            )
            kinds |= {"too loud"} if is_loud else set()
        elif answer.outcome in ("done", "instead", "full"):
            is_deleted = any(write.standing is None for write in commit.writes)
            kinds |= {"deleted"} if is_deleted and answer.outcome == "done" else set()
            kinds |= {"continued"} if any(write.above for write in commit.writes) else set()
            kinds |= {"a second room"} if answer.room else set()
    ids = [answer.run.id for answer in answers if answer.run is not None]
    return kinds | ({"repeated"} if len({*ids}) < len(ids) else set())
