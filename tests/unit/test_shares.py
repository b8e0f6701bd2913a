"""Shares: which queue is asked first, and for how many jobs."""

import random

import pytest

from tenure.core.jobs.queue_shares import Shares


def claim(shares: Shares, waiting: dict[str, int], want: int) -> list[str]:
    """Claim as a store does: from the first queue until it is empty or the claim is full."""
    turn = shares.turn(want)
    claimed: list[str] = []
    for queue in turn.queues:
        count = min(waiting.get(queue, 0), turn.limit - len(claimed))
        if count:
            waiting[queue] -= count
        claimed += [queue] * count
    shares.took(turn, claimed, is_full=len(claimed) == turn.limit)
    return claimed


def test_one_job_at_a_time_the_queues_alternate():
    shares, waiting = Shares("ab", (1, 1)), {"a": 10, "b": 10}
    assert "".join(claim(shares, waiting, 1)[0] for _ in range(6)) == "ababab"


def test_weights_are_smooth():
    shares, waiting = Shares("ab", (3, 1)), {"a": 100, "b": 100}
    order = "".join(claim(shares, waiting, 1)[0] for _ in range(12))
    assert order == "abaaabaaabaa"


def test_chances_decide_who_is_first():
    shares = Shares("ab", (1, 1), [0.9, 0.1])
    assert shares.turn(1).queues == ("b", "a")


def test_without_weights_the_order_is_strict():
    shares, waiting = Shares("ab"), {"a": 3, "b": 3}
    assert [*claim(shares, waiting, 2), *claim(shares, waiting, 2), *claim(shares, waiting, 2)] == [
        *"aaabbb"
    ]


def test_a_large_claim_is_split_while_several_queues_have_jobs():
    shares, waiting = Shares("ab", (1, 1)), {"a": 1000, "b": 3}
    assert claim(shares, waiting, 100) == ["a"] * 50
    assert claim(shares, waiting, 50) == ["b"] * 3 + ["a"] * 22


def test_the_only_busy_queue_gets_all_with_one_claim():
    shares, waiting = Shares("abc", (1, 1, 1)), {"a": 1000}
    claim(shares, waiting, 100)
    claim(shares, waiting, 100)
    assert len(claim(shares, waiting, 100)) == 100


def test_an_empty_queue_saves_nothing_up():
    shares, waiting = Shares("ab", (1, 1)), {"a": 10_000}
    for _ in range(100):
        claim(shares, waiting, 10)
    waiting["b"] = 1000
    claimed = [queue for _ in range(20) for queue in claim(shares, waiting, 1)]
    assert 9 <= claimed.count("b") <= 11


def test_a_queue_that_is_emptied_by_each_claim_gets_no_more_than_its_share():
    shares, waiting = Shares("ab", (1, 1)), {"a": 100_000}
    claimed: list[str] = []
    for _ in range(200):
        waiting["b"] = 60
        claimed += claim(shares, waiting, 100)
    assert claimed.count("a") >= 0.45 * len(claimed)


@pytest.mark.parametrize("seed", range(20))
def test_each_queue_gets_its_share_within_a_bounded_number_of_jobs(seed):
    """All queues have jobs all the time; however large the claims are, none is left behind."""
    dice = random.Random(seed)
    names = [f"q{number}" for number in range(dice.randint(2, 30))]
    weights = tuple(dice.choice((1, 1, 2, 5)) for _ in names)
    shares = Shares(names, weights, [dice.random() for _ in names])
    waiting = dict.fromkeys(names, 10**9)
    claimed: list[str] = []
    while len(claimed) < 20_000:
        claimed += claim(shares, waiting, dice.choice((1, 3, 100, 200)))
    total = sum(weights)
    for name, weight in zip(names, weights, strict=True):
        fair = len(claimed) * weight / total
        # A claim is at most 200 jobs, of which a queue takes its part or a slice.
        assert abs(claimed.count(name) - fair) <= 200 * weight / total + 10 * len(names)
