"""Trouble in the renewal thread: a loss is still reported, and other holds go on."""

import asyncio
import gc
import logging
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tenure import LeaseLost, Tenure, blocking
from tenure.app import engine_of
from tenure.observe import Event, HoldLost
from tenure.runtime.leases.keeper import Keeper
from tenure.stores.connect import connect
from tenure.testing import Faults, FaultyStore, ManualClock
from tests.rig.interrupts import INTERRUPTS
from tests.rig.wait import wait_until, wait_until_async


@pytest.fixture
async def app(faults: Faults) -> AsyncIterator[Tenure]:
    async with Tenure(FaultyStore("memory://", faults)) as app:
        yield app


async def renewals(app: Tenure, number: int = 3) -> None:
    """Wait for renewals that are sent from now on."""
    calls = engine_of(app).store.faults.calls
    before = calls["renew"]
    await wait_until_async(lambda: calls["renew"] >= before + number, timeout=20)


async def take_away(app: Tenure, name: str) -> None:
    """Remove a lease behind its holder's back: the next renewal tells, in the host's thread."""
    await engine_of(app).store.leases.release(await app.locks(name))


def hear_losses(heard: list[Event]) -> Callable[[Event], None]:
    """Return a subscriber that keeps events of losses only."""
    return lambda event: heard.append(event) if isinstance(event, HoldLost) else None


@pytest.mark.parametrize("kind", INTERRUPTS)
async def test_a_subscriber_may_raise_anything(app: Tenure, kind: str, caplog):
    called: list[str] = []

    def fail(event: Event) -> None:
        if not isinstance(event, HoldLost):
            return
        called.append(threading.current_thread().name)
        raise INTERRUPTS[kind]()  # noqa: RSE102 - a function

    heard: list[Event] = []
    app.on_event(fail)
    app.on_event(hear_losses(heard))
    async with app.lock("b", ttl=1) as other:
        hold = await app.lock("a", ttl=1).acquire()
        await take_away(app, "a")
        async with asyncio.timeout(20):
            await hold.lost.wait()
        await wait_until_async(lambda: heard, timeout=20)
        assert called == ["tenure-host"]
        await renewals(app)
        assert other.is_held
    [record] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.getMessage().startswith("an event subscriber failed on lock 'a', fence")
    assert record.exc_info


def test_ctrl_c_in_a_subscriber_of_the_main_thread_is_not_lost():
    def fail(_: Event) -> None:
        raise KeyboardInterrupt

    app = Tenure("memory://")
    app.on_event(fail)
    with pytest.raises(KeyboardInterrupt):
        engine_of(app).events.emit(HoldLost("x", 1, "why"))


async def test_a_filter_of_the_programs_own_logging_may_raise(app: Tenure):
    def fail(record: logging.LogRecord) -> bool:
        raise KeyError(record.getMessage())

    logger = logging.getLogger("tenure")
    heard: list[Event] = []
    app.on_event(hear_losses(heard))
    logger.addFilter(fail)
    try:
        async with app.lock("b", ttl=1) as other:
            hold = await app.lock("a", ttl=1).acquire()
            await take_away(app, "a")
            async with asyncio.timeout(20):
                await hold.lost.wait()
            await wait_until_async(lambda: heard, timeout=20)
            await renewals(app)
            assert other.is_held
    finally:
        logger.removeFilter(fail)


async def test_a_subscriber_that_hangs_keeps_no_loss_from_its_block(app: Tenure):
    go_on, lost = threading.Event(), []
    app.on_event(lambda event: isinstance(event, HoldLost) and go_on.wait(30) and None)
    try:
        hold = await app.lock("a", ttl=1).acquire()
        with pytest.raises(LeaseLost, match="renewed in time"):
            async with app.lock("b", ttl=4):
                await take_away(app, "a")
                await hold.lost.wait()  # although its event is being told
                lost.append(hold)
                await asyncio.Event().wait()
        assert lost == [hold]
    finally:
        go_on.set()


async def test_a_block_is_cancelled_at_the_deadline_if_the_host_is_stuck(app: Tenure):
    go_on = threading.Event()
    try:
        with pytest.raises(LeaseLost, match="renewed in time"):
            async with app.lock("a", ttl=1) as hold, asyncio.timeout(20):
                await renewals(app, 5)  # so that the first deadline is over
                host_loop(app).call_soon_threadsafe(go_on.wait, 30)
                await asyncio.Event().wait()
        assert hold.lost.is_set()
    finally:
        go_on.set()


def test_a_thread_sees_its_loss_at_the_deadline_if_the_host_is_stuck():
    go_on = threading.Event()
    with blocking.Tenure("memory://") as app:
        try:
            with pytest.raises(LeaseLost), app.lock("a", ttl=1) as hold:
                host_loop(app._app).call_soon_threadsafe(go_on.wait, 30)
                assert hold.lost.wait(20)
        finally:
            go_on.set()


async def test_a_renewed_hold_is_not_lost_at_its_first_deadline(app: Tenure):
    async with app.lock("a", ttl=1, on_lost="raise") as hold:
        await renewals(app, 5)
        assert hold.is_held


@pytest.mark.parametrize("kind", ["SystemExit", "KeyboardInterrupt"])
async def test_an_interrupt_in_the_host_does_not_end_it(app: Tenure, kind: str, caplog):
    def fail() -> None:
        raise INTERRUPTS[kind]()  # noqa: RSE102 - a function

    async with app.lock("a", ttl=1, on_lost="raise") as hold:
        host_loop(app).call_soon_threadsafe(fail)
        await renewals(app)
        assert hold.is_held
    [record] = [record for record in caplog.records if record.levelno >= logging.CRITICAL]
    assert "was interrupted; it goes on" in record.getMessage()


async def lose_the_host(app: Tenure) -> None:
    """End the thread of the host, and the hold that depends on it."""

    def fail(*_: object) -> None:
        raise OSError("the selector is gone")

    with pytest.raises(LeaseLost):
        async with app.lock("a", ttl=1), asyncio.timeout(20):
            await wait_until_async(lambda: engine_of(app).holds()._keeper._loop, timeout=20)
            loop = host_loop(app)
            loop.call_soon_threadsafe(setattr, loop, "_run_once", fail)
            await asyncio.Event().wait()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # tasks it had
async def test_an_app_without_its_host_can_be_closed(faults: Faults, caplog):
    async with Tenure(FaultyStore("memory://", faults)) as app:
        await lose_the_host(app)
    assert not app.is_open
    del app
    gc.collect()
    [_] = [record for record in caplog.records if record.levelno >= logging.CRITICAL]


async def test_the_end_of_the_host_is_reported_and_holds_are_told(app: Tenure, caplog):
    await lose_the_host(app)
    [record] = [record for record in caplog.records if record.levelno >= logging.CRITICAL]
    assert "the thread that renews leases has ended" in record.getMessage()
    async with app.lock("a", ttl=1, on_lost="raise") as hold:  # in a new thread
        await renewals(app)
        assert hold.is_held


async def test_after_the_end_of_the_host_a_loss_is_reported_and_the_next_hold_is_kept(
    faults: Faults, tmp_path: Path
):
    """The next thread needs a connection of its own."""

    def fail(*_: object) -> None:
        raise OSError("the selector is gone")

    heard: list[Event] = []
    async with Tenure(FaultyStore(f"sqlite:///{tmp_path / 'tenure.db'}", faults)) as app:
        app.on_event(hear_losses(heard))
        lost = await app.lock("a", ttl=1).acquire()
        await renewals(app, 1)
        loop = host_loop(app)
        loop.call_soon_threadsafe(setattr, loop, "_run_once", fail)
        async with asyncio.timeout(20):
            await lost.lost.wait()
        await wait_until_async(lambda: heard, timeout=20)
        assert heard == [HoldLost("a", lost.fence, "it could not be renewed in time")]
        async with app.lock("b", ttl=2, on_lost="raise") as hold:
            first = hold._kept.deadline
            await wait_until_async(lambda: hold._kept.deadline > first, timeout=20)
            assert hold.is_held


async def test_the_keeper_survives_an_error_of_ours(app: Tenure, monkeypatch, caplog):
    failed: list[float] = []
    start_prune = Keeper._start_prune

    def fail_at_first(keeper: Keeper, now: float) -> None:
        if len(failed) < 3:
            failed.append(now)
            raise KeyError("ours")
        start_prune(keeper, now)

    monkeypatch.setattr(Keeper, "_start_prune", fail_at_first)
    async with app.lock("a", ttl=1, on_lost="raise") as hold:
        await renewals(app)
        assert hold.is_held
    assert len(failed) == 3
    assert "the keeper failed in an unexpected way; it goes on" in caplog.text


def host_loop(app: Tenure) -> asyncio.AbstractEventLoop:
    loop = engine_of(app)._services.host._loop  # also from other threads
    assert loop is not None
    return loop


# Events of clones.


def test_events_of_a_synchronous_app_reach_the_subscribers_of_its_origin():
    app, heard, own = Tenure("memory://"), [], []
    app.on_event(hear_losses(heard))
    with blocking.Tenure(app) as sync:
        sync.on_event(hear_losses(own))
        app.on_event(hear_losses(heard))  # later ones, too
        hold = sync.lock("x", ttl=1, max_hold=0.05).acquire()
        assert hold.lost.wait(20)
        wait_until(lambda: len(heard) == 2)
        assert heard == [*own, *own]
    engine_of(app).events.emit(HoldLost("y", 1, "of its own"))
    assert len(heard) == 4
    assert len(own) == 1


async def test_lost_holds_that_are_dropped_leave_nothing_in_the_app(app: Tenure):
    for number in range(50):
        hold = await app.lock(f"k{number}").acquire()
        hold._kept.lose("said so")
        del hold
        await asyncio.sleep(0)  # the loss is told
    async with app.lock("last"):
        gc.collect()  # on Python 3.13 a hold may be part of a cycle
        await wait_until_async(lambda: list(engine_of(app).holds()._filed) == ["last"])


def test_a_host_whose_thread_cannot_start_can_be_tried_again(monkeypatch):
    """A process at its limit of threads."""
    loops: list[asyncio.AbstractEventLoop] = []
    new_loop, start = asyncio.new_event_loop, threading.Thread.start

    def kept_loop() -> asyncio.AbstractEventLoop:
        loops.append(new_loop())
        return loops[-1]

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "tenure-host":
            raise RuntimeError("can't start new thread")
        start(thread)

    async def use() -> None:
        async with Tenure("memory://") as app:
            with monkeypatch.context() as limited:
                limited.setattr(threading.Thread, "start", refuse)
                limited.setattr(asyncio, "new_event_loop", kept_loop)
                with pytest.raises(RuntimeError, match="can't start new thread"):
                    engine_of(app).services().host.start(asyncio.Event().wait)
            assert [loop.is_closed() for loop in loops] == [True]
            async with app.lock("y") as hold:
                assert hold.is_held

    asyncio.run(use())


async def test_try_acquire_waits_for_a_slow_store(clock: ManualClock):
    """There, only the time-outs of the store count."""
    faults = Faults()
    store = connect("memory://", namespace="test", clock=clock)
    async with Tenure(FaultyStore(store, faults)) as app:
        faults.delay("acquire", 3)
        trying = asyncio.create_task(app.lock("x").try_acquire())
        await asyncio.wait([trying], timeout=1.3)
        assert not trying.done()
        await clock.advance(4)
        hold = await trying
        assert hold is not None
        assert faults.calls["acquire"] == 1
        faults.heal()
        await hold.release()
