"""The synchronous facade: the same promises for threads, on every store."""

import threading
import time
from collections.abc import Iterator

import pytest

import tenure
from tenure import (
    AcquireTimeout,
    ConfigError,
    LeaseLost,
    OnceFailed,
    StoreError,
    WouldDeadlock,
    blocking,
)
from tests.rig.waiting import wait_until


@pytest.fixture
def app(world_url: str, namespace: str) -> Iterator[blocking.Tenure]:
    with blocking.Tenure(world_url, namespace=namespace) as app:
        yield app


@pytest.fixture
def rival(app: blocking.Tenure, world_url: str, namespace: str) -> Iterator[blocking.Tenure]:
    with blocking.Tenure(tenure.Tenure(world_url, namespace=namespace)) as rival:
        yield rival


def in_thread(function) -> threading.Thread:
    thread = threading.Thread(target=function)
    thread.start()
    return thread


def take_away(app: blocking.Tenure, name: str) -> None:
    """Remove a lease behind its holder's back."""
    [lease] = app.locks(name)
    app._portal().call(app._app._store.release([lease]))


def test_a_lock_is_held_inside_its_block_only(app, rival):
    with app.lock("x") as hold:
        assert hold.is_held
        assert hold.expires_in() > 0
        assert rival.lock("x").try_acquire() is None
        assert [lease.fence for lease in rival.locks()] == [hold.fence]
    assert rival.locks() == []


def test_many_threads_never_hold_it_together(app, rival):
    inside = 0
    fences: list[int] = []

    def work(one: blocking.Tenure) -> None:
        nonlocal inside
        lock = one.lock("counter")
        for _ in range(5):
            with lock as hold:
                inside += 1
                assert inside == 1
                fences.append(hold.fence)
                inside -= 1

    threads = [in_thread(lambda one=one: work(one)) for one in (app, rival) * 3]
    for thread in threads:
        thread.join()
    assert len(fences) == 30
    assert fences == sorted(set(fences))


def test_a_thread_that_would_wait_for_itself_is_told(app):
    with app.lock("mine"):
        with pytest.raises(WouldDeadlock):
            app.lock("mine").acquire()
        assert app.lock("mine").try_acquire() is None
        errors: list[BaseException] = []

        def other() -> None:
            try:
                app.lock("mine").acquire(wait=0.05)
            except AcquireTimeout as error:
                errors.append(error)

        in_thread(other).join()
        assert len(errors) == 1


def test_a_loss_is_set_checked_and_raised(app, rival):
    with pytest.raises(LeaseLost), app.lock("lost", ttl=1) as hold:
        take_away(rival, "lost")
        assert hold.lost.wait(10)
        assert hold.is_lost
        with pytest.raises(LeaseLost):
            hold.check()


def test_a_loss_does_not_hide_the_error_of_the_block(app, rival):
    with pytest.raises(KeyError) as caught, app.lock("lost", ttl=1) as hold:
        take_away(rival, "lost")
        hold.lost.wait(10)
        raise KeyError("mine")
    assert any("lost" in note for note in caught.value.__notes__)


def test_on_lost_function_gets_the_hold(app, rival):
    told: list[blocking.Hold] = []
    with app.lock("lost", ttl=1, on_lost=told.append) as hold:
        take_away(rival, "lost")
        wait_until(lambda: told, timeout=10)
    assert told == [hold]


def test_a_busy_thread_loses_nothing(app, rival):
    with app.lock("busy", ttl=1) as hold:
        end = time.monotonic() + 2
        while time.monotonic() < end:
            pass
        assert hold.is_held
        assert rival.lock("busy").try_acquire() is None


def test_a_semaphore(app, rival):
    semaphore = app.semaphore("gpu", 2)
    with semaphore, semaphore:
        assert rival.semaphore("gpu", 2).try_acquire() is None
    with pytest.raises(ConfigError):
        app.semaphore("gpu", 0)


def test_with_lock_runs_in_the_calling_thread(app, rival):
    outcome = app.with_lock("job", 10, threading.get_ident)
    assert outcome
    assert outcome.value == threading.get_ident()
    with rival.lock("job"):
        assert app.with_lock("job", 10, threading.get_ident).skipped
    with pytest.raises(KeyError):
        app.with_lock("job", 10, {}.__getitem__, "x")


def test_once(app, rival):
    ran: list[int] = []

    def body() -> None:
        ran.append(threading.get_ident())

    assert app.once("it", body)
    assert not rival.once("it", body)
    assert ran == [threading.get_ident()]
    with pytest.raises(OnceFailed, match="KeyError"):
        app.once("fails", lambda: {}["x"])


def test_an_election(app, rival):
    for term in app.election("chief", meta={"who": "me"}).terms():
        leader = rival.election("chief").leader()
        assert leader is not None
        assert (leader.fence, leader.meta["who"]) == (term.fence, "me")
        assert next(rival.election("chief").observe()).fence == term.fence
        break
    wait_until(lambda: rival.election("chief").leader() is None)


def test_renew_and_release_by_hand(app):
    hold = app.lock("x").acquire()
    hold.renew(ttl=60)
    assert hold.expires_in() > 50
    assert hold.release()
    assert not hold.release()


def test_use_before_open_and_after_close_is_an_error():
    app = blocking.Tenure("memory://")
    lock = app.lock("x")
    with pytest.raises(StoreError, match="is not open"):
        lock.acquire()
    with app, pytest.raises(ConfigError, match="open already"):
        app.open()
    with pytest.raises(StoreError, match="is not open"):
        lock.acquire()
    app.close()


def test_bad_options_are_refused_at_once():
    app = blocking.Tenure("memory://")
    with pytest.raises(ConfigError, match="on_lost"):
        app.lock("x", on_lost="cancel")
    with pytest.raises(ConfigError, match="ttl"):
        app.lock("x", ttl=0)


def test_closing_leaves_no_thread():
    before = threading.active_count()
    with blocking.Tenure("memory://") as app, app.lock("x", ttl=1):
        pass
    wait_until(lambda: threading.active_count() == before)
