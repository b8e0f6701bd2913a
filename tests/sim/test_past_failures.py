"""Past failures of the simulation, in checkers and in the library, without randomness."""

import logging
from copy import deepcopy

import pytest

from tenure import Tenure
from tenure.stores.connect import connect
from tenure.stores.memory import MemoryStore
from tenure.testing import Faults, FaultyStore, ManualClock
from tests.sim.checks.leases import check_leases
from tests.sim.checks.notifications import check_refused_ends_reported
from tests.sim.entry_builders import entry, granted, of_holder, settled


async def test_a_worker_that_is_stopped_during_its_audit_leaves(caplog):
    clock, faults = ManualClock(), Faults()
    store = connect("memory://", namespace="test", clock=clock)
    assert isinstance(store, MemoryStore)
    await store.open()
    async with Tenure(FaultyStore(store.clone(), faults), grace=0) as app:

        @app.task
        async def work() -> None:
            await clock.sleep(1)

        async with app.worker():
            await work.enqueue()
            await clock.advance(0.5)
            before = deepcopy(store._database.namespace("test"))
            await clock.advance(1)
            store._database._namespaces["test"] = before
            faults.lose_request("find", times=1000)
            await clock.advance(60)  # it asks which jobs it runs, and gets no answer
    assert faults.calls["find"]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    await store.close()


def test_a_repeated_mark_looks_at_no_lease():
    """Nor does it end one that a clock has overtaken for a moment only."""
    mark = {"detail": "once=1", "ok": True}
    history = [
        granted(1, "a", 1),
        of_holder(2, "marked", "a", 1, **mark),
        of_holder(30, "marked", "a", 1, **mark),
        granted(3, "a", 1),  # the store's clock was set back
    ]
    assert not check_leases(history).wrong


def test_listing_cuts_short_what_is_too_long():
    history = [granted(100, "a", 1), entry(50, "listed"), granted(61, "a", 2)]
    assert not check_leases(history).wrong
    assert len(check_leases([history[0], history[2]]).wrong) == 1


@pytest.mark.parametrize(("left", "wrong"), [(7, 0), (8, 1)])
def test_a_worker_that_leaves_waits_for_a_last_answer(left: float, wrong: int):
    history = [
        settled(2, 5, answer="lost", holder="m0.1"),
        entry(left, "ended", by="m0.1"),
    ]
    assert len(check_refused_ends_reported(history)) == wrong
