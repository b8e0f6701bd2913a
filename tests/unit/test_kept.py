"""One lease in the keeper's care: how long it is trusted, and when it counts as lost."""

import threading
from collections.abc import Callable
from typing import Any, Self

import pytest

from tenure.core.lease_policy import trust_until
from tenure.core.leases import Lease
from tenure.runtime.data_loss import DataLossDetector
from tenure.runtime.leases.keeper import Keeper, KeptLease
from tenure.testing import ManualClock
from tests.rig.wait import wait_until

TTL = 10.0
LEASE = Lease(key="key", holder="ann", fence=1, ttl=TTL)


@pytest.fixture
def reasons() -> list[str]:
    return []


@pytest.fixture
def kept(clock: ManualClock, reasons: list[str]) -> KeptLease:
    return KeptLease(LEASE, clock.boot(), clock, reasons.append)


def test_a_lease_is_trusted_up_to_its_deadline_and_then_lost_once(
    kept: KeptLease, clock: ManualClock, reasons: list[str]
):
    assert kept.deadline == trust_until(clock.boot(), TTL)
    left = kept.trusted_for()
    assert 0 < left <= TTL
    assert clock.boot() < kept.renew_at < kept.deadline
    assert not kept.in_flight
    clock.shift(left - 0.01)
    assert not kept.is_lost
    clock.shift(0.01)
    assert kept.is_lost
    assert kept.is_lost
    assert (kept.trusted_for(), reasons) == (0, ["it could not be renewed in time"])
    assert not kept.end()


def test_a_lease_is_lost_when_max_hold_is_over(clock: ManualClock, reasons: list[str]):
    kept = KeptLease(LEASE, clock.boot(), clock, reasons.append, max_hold=3)
    assert kept.trusted_for() == 3
    kept.extend(clock.boot() + 2)
    clock.shift(2.99)
    assert not kept.is_lost
    clock.shift(0.01)
    assert kept.is_lost
    assert reasons == ["max_hold is over"]


def test_a_renewal_extends_it_and_forgets_failures(kept: KeptLease, clock: ManualClock):
    clock.shift(1)
    kept.postpone(clock.boot())
    assert kept.failures == 1
    assert clock.boot() < kept.renew_at <= clock.boot() + TTL / 10
    kept.extend(clock.boot())
    assert (kept.failures, kept.deadline) == (0, trust_until(clock.boot(), TTL))
    assert clock.boot() < kept.renew_at < kept.deadline
    kept.extend(clock.boot() - 1)  # a slower one, sent before
    assert kept.deadline == trust_until(clock.boot(), TTL)


def test_a_renewal_that_comes_too_late_extends_nothing(kept: KeptLease, clock: ManualClock):
    before = kept.deadline
    clock.shift(kept.trusted_for())
    kept.extend(clock.boot())
    assert kept.deadline == before
    assert kept.is_lost


def test_a_lost_lease_stays_lost(kept: KeptLease, clock: ManualClock, reasons: list[str]):
    kept.lose("gone")
    kept.lose("gone again")
    before = kept.deadline
    kept.extend(clock.boot() + 1)
    assert (kept.is_lost, kept.deadline, reasons) == (True, before, ["gone"])
    assert not kept.end()


def test_after_its_end_it_cannot_be_lost_except_by_its_release(
    kept: KeptLease, clock: ManualClock, reasons: list[str]
):
    assert kept.end()
    clock.shift(2 * TTL)
    kept.lose("a renewal crossed the release")
    assert (kept.is_lost, reasons) == (False, [])
    kept.was_missing("it had been gone before")
    assert (kept.is_lost, reasons) == (True, ["it had been gone before"])


class Losing:
    """A lock that another thread holds, which meanwhile declares the lease lost."""

    def __init__(self, kept: KeptLease) -> None:
        self._kept = kept

    def __enter__(self) -> Self:
        self._kept.reason = "gone meanwhile"
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_a_loss_at_the_very_end_is_seen(kept: KeptLease):
    kept._deciding = Losing(kept)
    assert not kept.end()


@pytest.mark.parametrize(
    "act", [KeptLease.end, lambda kept: kept.lose("x"), lambda kept: kept.extend(0)]
)
def test_decisions_about_one_lease_come_one_after_the_other(
    kept: KeptLease, act: Callable[[Any], Any]
):
    waits_for(kept._deciding, lambda: act(kept))


@pytest.mark.parametrize("act", [Keeper._snapshot, Keeper._plan])
def test_the_keeper_does_not_read_while_its_leases_change(
    clock: ManualClock, act: Callable[[Any], Any]
):
    class Host:
        class store:  # noqa: N801 - it stands for an attribute
            pass

        data = DataLossDetector()

    Host.store.clock = clock
    keeper = Keeper(Host, None)
    waits_for(keeper._changing, lambda: act(keeper))


def waits_for(lock: Any, act: Callable[[], Any]) -> None:
    """Check that something is done only when the lock is free."""
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(act()))
    with lock:
        thread.start()
        thread.join(0.1)
        assert not done
    thread.join(5)
    wait_until(lambda: done)
