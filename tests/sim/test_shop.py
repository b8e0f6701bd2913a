"""An hour of the shop with default settings: nothing lost, nothing doubled, no tenant starved."""

import pytest

from tests.rig.sizes import SIZE
from tests.sim.batches import Batch, below_minimums
from tests.sim.checks.shop import check_shop
from tests.sim.history import Entry, read_lines, write_lines
from tests.sim.runner import Outcome, planned, run
from tests.sim.scenarios.shop_plan import flood_of, outage
from tests.sim.shorten import Replay

# An hour takes 5 s of a core, and half a minute with 10,000 jobs of one tenant.
SEEDS = [2] if SIZE.name == "short" else [*range(40), 49, 99]


@pytest.fixture(scope="module", params=SEEDS)
def hour(request: pytest.FixtureRequest) -> Outcome:
    return run(planned(request.param, "shop"))


@pytest.mark.timeout(300)
def test_an_hour_of_the_shop_keeps_all_promises_while_enough_goes_wrong(hour: Outcome):
    assert not hour.wrong, (Replay(scenario="shop", seed=hour.plan.seed).command, *hour.wrong[:5])
    batch = Batch("shop", runs=1)
    batch.counts.update(hour.counts)
    assert not below_minimums({"shop": batch})
    start, stop = outage(hour.plan.seed)
    failed = [entry.at for entry in hour.history if entry.detail == "ConnectionRefusedError"]
    assert stop - start == 600
    assert min(failed) < start + 60
    assert max(failed) > stop - 60


@pytest.mark.proof("each test in a process of its own simulates the hour anew")
@pytest.mark.timeout(300)
def test_an_hour_of_the_shop_survives_being_written_down(hour: Outcome):
    assert read_lines(write_lines(hour.history)) == hour.history


def test_one_of_fifty_floods_has_ten_thousand_jobs():
    assert [seed for seed in range(100) if flood_of(seed) == 10_000] == [49, 99]


# What the checker takes for wrong.

MAIL, SMALL, PAYMENT = 1_000_001, 2_000_000, 5_000_000


def entry(at: float, what: str, by: str = "store", **facts: object) -> Entry:
    return Entry(at=at, by=by, what=what, **facts)


def job(
    number: int, *, delivered: int = 1, outcome: str = "succeeded", losses: int = 0, took: float = 1
) -> list[Entry]:
    """Return the history of a job."""
    deliveries = [entry(2, "delivered", "m1.1", job="a", number=number) for _ in range(delivered)]
    return [
        entry(1, "inserted", job="a", number=number, answer="created"),
        entry(1, "accepted", "m0.1", job="a", number=number),
        *deliveries,
        entry(1 + took, "settled", job="a", outcome="succeeded"),
        entry(100, "final", job="a", number=number, outcome=outcome, losses=losses),
    ]


@pytest.mark.parametrize(
    "history",
    [
        job(MAIL),
        job(MAIL, delivered=2, losses=1),
        job(SMALL, took=15),
        job(SMALL, took=35, losses=1),
        [entry(0.5, "restart", "world", seconds=30.0), *job(SMALL, took=40)],
        [*job(MAIL), entry(1, "sampled", "m0.1", number=600), entry(2, "sampled", number=20)],
    ],
)
def test_right_histories_pass(history: list[Entry]):
    assert check_shop(history) == []


@pytest.mark.parametrize(
    ("history", "blame"),
    [
        (job(MAIL, outcome="failed"), "was accepted and is failed"),
        ([*job(MAIL), entry(1, "accepted", "m0.1", job="b", number=5)], "is gone"),
        (job(MAIL, delivered=2), "was delivered 2 times and lost 0 times"),
        (
            [*job(MAIL), entry(3, "delivered", "m0.1", job="b", number=MAIL)],
            "was delivered by b and by a",
        ),
        (job(SMALL, took=15.1), "the small tenant's a took 15.1 s"),
        (job(PAYMENT, took=15.1), "payment a took 15.1 s"),
        (
            [*job(MAIL), entry(1, "inserted", job="b", number=SMALL, answer="created")],
            "the small tenant's b has no end",
        ),
        ([*job(MAIL), entry(1, "sampled", "m0.1", number=601)], "it has 601 tasks"),
        ([*job(MAIL), entry(1, "sampled", number=21)], "21 records are left"),
    ],
)
def test_wrong_histories_are_reported(history: list[Entry], blame: str):
    [wrong] = check_shop(history)
    assert blame in wrong
