from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.core.jobs.hand_backs import unknown_task_delay
from tenure.core.jobs.loss_policy import loss_delays
from tenure.core.jobs.retry_policy import Backoff, parse_retry, read_backoff, write_backoff
from tenure.core.lease_policy import (
    TTL_MIN,
    WAITER_LIFE,
    margin,
    next_fence,
    renew_after,
    retry_when_busy,
    trust_until,
)
from tenure.core.recovery_policy import Reading, clock_jump, first_recovery_after, recovery_pause
from tenure.core.store_policy import may_insert_again, retry_after_error
from tenure.errors import ConfigError

FENCES = st.integers(min_value=0, max_value=2**53 - 1)
TTLS = st.floats(min_value=TTL_MIN, max_value=1e6)
CHANCES = st.floats(min_value=0, max_value=1, exclude_max=True)

# The same examples in every run, and no clock beside the one that is calculated with.
steady = settings(derandomize=True, database=None, deadline=None)


@pytest.mark.parametrize(
    ("last", "floor", "now", "fence"),
    [
        (0, 0, 1000, 1000),  # a first grant
        (900, 0, 1000, 1000),  # time has passed since the last one
        (1000, 0, 1000, 1001),  # no time has passed
        (5000, 0, 1000, 5001),  # the clock was stepped back
        (0, 5000, 1000, 5001),  # the same, and the key was forgotten meanwhile
        (4000, 5000, 1000, 5001),
        (5000, 4000, 1000, 5001),
    ],
)
def test_the_next_fence(last: int, floor: int, now: int, fence: int):
    assert next_fence(last, floor, now) == fence


@steady
@given(last=FENCES, floor=FENCES, now=FENCES)
def test_a_fence_is_above_all_that_was_and_not_behind_the_clock(last: int, floor: int, now: int):
    fence = next_fence(last, floor, now)
    assert fence > last
    assert fence > floor
    assert fence >= now


def test_the_margin_is_a_percent_but_at_least_a_tenth_of_a_second():
    assert margin(1) == margin(5) == margin(10) == 0.1
    assert margin(30) == pytest.approx(0.3)
    assert margin(3600) == pytest.approx(36)


@steady
@given(sent=st.floats(min_value=0, max_value=1e9), ttl=TTLS)
def test_trust_ends_before_the_lease_does_counted_from_the_send(sent: float, ttl: float):
    assert sent < trust_until(sent, ttl) < sent + ttl
    # Even for a store whose clock runs one percent faster than ours.
    assert trust_until(sent, ttl) <= sent + ttl * 0.99 + 1e-6


@steady
@given(ttl=TTLS, chance=CHANCES)
def test_three_renewals_in_a_row_may_fail(ttl: float, chance: float):
    pause = renew_after(ttl, chance)
    assert 0 < pause <= renew_after(ttl, 0.0)
    assert 3 * pause <= trust_until(0, ttl) + 1e-9


@steady
@given(failures=st.integers(min_value=1, max_value=10_000), chance=CHANCES)
def test_pauses_after_errors_are_bounded_and_half_random(failures: int, chance: float):
    pause = retry_after_error(failures, chance)
    longest = retry_after_error(failures, 1.0)
    assert longest / 2 <= pause <= longest <= 1.0


def test_pauses_after_errors_double_up_to_a_second():
    pauses = [retry_after_error(failures, 1.0) for failures in range(1, 8)]
    assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


@steady
@given(retry_in=st.floats(min_value=-10, max_value=1e6), chance=CHANCES)
def test_a_waiter_looks_again_before_its_place_is_lost(retry_in: float, chance: float):
    pause = retry_when_busy(retry_in, chance)
    assert 0 < pause <= WAITER_LIFE / 3


def test_a_waiter_looks_again_just_after_the_lease_ends():
    assert 0.5 < retry_when_busy(0.5, 0.0) <= retry_when_busy(0.5, 0.999) <= 0.521
    assert retry_when_busy(-3.0, 0.0) > 0


def test_a_backoff_widens_up_to_its_cap():
    backoff = Backoff(max_attempts=8, base="2s", factor=3, cap="1m")
    assert [backoff.delay(n, 1.0) for n in range(1, 6)] == [2, 6, 18, 54, 60]
    assert [backoff.delay(n, 0.0) for n in range(1, 6)] == [1, 3, 9, 27, 30]


def test_the_default_backoff_lasts_from_four_to_eight_hours():
    backoff = Backoff()
    assert backoff.max_attempts == 20
    pauses = [backoff.delay(failures, 1.0) for failures in range(1, 20)]
    assert pauses == [min(2.0**n, 3600.0) for n in range(19)]
    assert backoff.total(1.0) == sum(pauses) == 29_295  # 8 h 8 min
    assert backoff.total(0.0) == sum(pauses) / 2  # 4 h 4 min
    assert Backoff(max_attempts=1).total(1.0) == 0


@pytest.mark.parametrize("none", [0, None])
def test_no_retry_is_a_single_attempt(none: int | None):
    assert parse_retry(none, Backoff()).max_attempts == 1


def test_a_number_counts_the_attempts_after_the_first():
    assert parse_retry(3, Backoff()) == Backoff(max_attempts=4)
    assert parse_retry(1, Backoff(cap=60)) == Backoff(max_attempts=2, cap=60)


def test_a_backoff_is_taken_as_it_is():
    backoff = Backoff(max_attempts=2, base="5s")
    assert parse_retry(backoff, Backoff(cap=60)) is backoff


@pytest.mark.parametrize("wrong", [True, False, -1, 1.0, "3", [3], Backoff])
def test_an_invalid_number_of_retries_is_refused(wrong: object):
    with pytest.raises(ConfigError, match=r"retry must be how often .*, not ") as caught:
        parse_retry(wrong, Backoff())
    assert repr(wrong) in str(caught.value)


@pytest.mark.parametrize(
    "backoff",
    [
        Backoff(),
        Backoff(max_attempts=1),
        Backoff(max_attempts=7, base="250ms", factor=1.5, cap=timedelta(minutes=3)),
    ],
)
def test_a_backoff_is_read_as_it_was_written(backoff: Backoff):
    read = read_backoff(write_backoff(backoff))
    assert read is not None
    assert read.max_attempts == backoff.max_attempts
    assert [read.delay(n, 0.3) for n in range(1, 9)] == [backoff.delay(n, 0.3) for n in range(1, 9)]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"max_attempts":0}', '{"max_attempts":"3"}', '{"base":"soon"}']
)
def test_an_unreadable_backoff_is_ignored(text: str):
    assert read_backoff(text) is None


@steady
@given(failures=st.integers(min_value=1, max_value=10**6), chance=CHANCES)
def test_a_backoff_never_passes_its_cap(failures: int, chance: float):
    assert 0.5 <= Backoff().delay(failures, chance) <= 3600
    assert 0 <= Backoff(factor=100, base=3600).delay(failures, chance) <= 3600


@pytest.mark.parametrize("most", [1, 5])
def test_a_backoff_allows_as_many_tries_as_it_says(most: int):
    backoff = Backoff(max_attempts=most)
    assert [backoff.allows(n) for n in range(1, most + 1)] == [True] * (most - 1) + [False]


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_attempts": 0},
        {"max_attempts": 1.5},
        {"max_attempts": True},
        {"factor": 0.5},
        {"factor": 101},
        {"factor": float("nan")},
        {"base": -1},
        {"base": "soon"},
        {"cap": float("inf")},
    ],
)
def test_an_impossible_backoff_is_refused(wrong: dict[str, object]):
    with pytest.raises(ConfigError):
        Backoff(**wrong)


def test_the_first_loss_is_due_at_once_and_the_later_ones_ever_later():
    assert loss_delays(6, 1.0) == [0, 2, 6, 18, 54, 162]
    assert loss_delays(9, 1.0)[-3:] == [300, 300, 300]
    assert loss_delays(3, 0.0) == [0, 1, 3]
    assert loss_delays(1, 0.5) == [0]
    assert loss_delays(1000, 1.0)[-1] == 300
    assert loss_delays(0, 0.5) == []


@steady
@given(attempt=st.integers(min_value=1, max_value=10**6), chance=CHANCES)
def test_an_unknown_task_is_offered_again_soon_and_then_rarely(attempt: int, chance: float):
    pause = unknown_task_delay(attempt, chance)
    assert 0.5 <= pause <= 300
    assert unknown_task_delay(1, chance) <= 1
    assert unknown_task_delay(20, chance) >= 150


@pytest.mark.parametrize(
    ("passed", "shown", "jump"),
    [
        (3.0, 3.0, 0.0),
        (3.0, 33.0, 30.0),  # set ahead
        (3.0, -3597.0, -3600.0),  # set back
        (60.0, 60.0, 0.0),  # an outage is no jump
        (3.0, 3.03, 0.03),  # 1 % fast
    ],
)
def test_a_jump_is_what_the_stores_clock_shows_beyond_the_local_time(
    passed: float, shown: float, jump: float
):
    before = Reading(sent=1000.0, at=1_800_000_000_000_000)
    after = Reading(sent=1000.0 + passed, at=before.at + round(shown * 1e6))
    assert clock_jump(before, after) == pytest.approx(jump)


@pytest.mark.parametrize(
    ("gap", "jump", "pause"),
    [
        (3.0, 0.0, 0.0),
        (5.0, 2.5, 0.0),
        (5.1, 0.0, 10.0),  # the store was away
        (3.0, 2.6, 10.0),  # its clock was set ahead
        (3.0, -3600.0, 0.0),  # its clock was set back: records only live longer
    ],
)
def test_after_a_gap_or_a_jump_recovery_waits_one_ttl(gap: float, jump: float, pause: float):
    assert recovery_pause(10.0, gap=gap, jump=jump) == pause


@steady
@given(ttl=TTLS, chance=CHANCES)
def test_no_jump_that_is_overlooked_expires_a_healthy_replica(ttl: float, chance: float):
    """Also if both of two beats have one, and a request was on its way for a fifth of a ttl."""
    overlooked = 0.249 * ttl
    assert recovery_pause(ttl, gap=ttl / 2, jump=overlooked) == 0
    assert renew_after(ttl, chance) + 2 * overlooked + 0.2 * ttl < ttl


@steady
@given(ttl=TTLS, chance=CHANCES)
def test_a_newcomer_lets_every_healthy_replica_beat_first(ttl: float, chance: float):
    assert first_recovery_after(ttl, is_alone=True) == ttl
    assert first_recovery_after(ttl, is_alone=False) > 1.3 * renew_after(ttl, chance)


@pytest.mark.parametrize(
    ("rule", "arguments", "seconds"),
    [
        (margin, (30,), 0.3),
        (margin, (10,), 0.1),
        (margin, (5,), 0.1),
        (trust_until, (100, 30), 129.7),
        (renew_after, (30, 0), 9),
        (renew_after, (30, 1), 8.1),
        (renew_after, (10, 0.5), 2.85),
        (retry_after_error, (1, 0), 0.025),
        (retry_after_error, (1, 1), 0.05),
        (retry_after_error, (2, 1), 0.1),
        (retry_after_error, (5, 1), 0.8),
        (retry_after_error, (6, 0), 0.5),
        (retry_after_error, (1000, 1), 1),
        (retry_when_busy, (0, 0), 0.001),
        (retry_when_busy, (-3, 0), 0.001),
        (retry_when_busy, (0.5, 1), 0.521),
        (retry_when_busy, (5, 0), 1),
        (unknown_task_delay, (1, 0), 0.5),
        (unknown_task_delay, (1, 1), 1),
        (unknown_task_delay, (5, 1), 16),
        (unknown_task_delay, (9, 1), 256),
        (unknown_task_delay, (10, 0), 150),
        (unknown_task_delay, (5000, 1), 300),
    ],
)
def test_how_long(rule, arguments: tuple[float, ...], seconds: float):
    assert rule(*arguments) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("budget", "chance", "delays"),
    [
        (0, 0.5, []),
        (1, 0.5, [0]),
        (4, 0, [0, 1, 3, 9]),
        (4, 1, [0, 2, 6, 18]),
        (8, 1, [0, 2, 6, 18, 54, 162, 300, 300]),
    ],
)
def test_when_a_lost_job_is_due_again(budget: int, chance: float, delays: list[float]):
    assert loss_delays(budget, chance) == delays
    assert len(loss_delays(1000, chance)) == 1000


@pytest.mark.parametrize(
    ("failures", "passed", "is_repeated"),
    [(1, 0, True), (2, 19.9, True), (2, 20, False), (3, 0, False), (1, 20, False)],
)
def test_an_insert_is_repeated_twice_within_20_seconds(
    failures: int, passed: float, is_repeated: bool
):
    assert may_insert_again(failures, passed) is is_repeated


@pytest.mark.parametrize(
    "text",
    [
        '{"max_attempts":0,"base":1,"factor":2,"cap":9}',
        '{"max_attempts":3,"base":-1,"factor":2,"cap":9}',
        '{"max_attempts":3,"base":1,"factor":1e9,"cap":9}',
    ],
)
def test_a_stored_backoff_of_senseless_numbers_is_ignored(text: str):
    assert read_backoff(text) is None
