"""The synchronous facade: the same promises for threads, on every store."""

import gc
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from functools import partial

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
from tenure.app import engine_of
from tenure.blocking import portal
from tenure.observe import Event, LockAcquired
from tenure.testing import Faults, FaultyStore
from tests.rig.wait import wait_until


@pytest.fixture
def app(world_url: str, namespace: str) -> Iterator[blocking.Tenure]:
    with blocking.Tenure(world_url, namespace=namespace) as app:
        yield app


@pytest.fixture
def rival(app: blocking.Tenure, world_url: str, namespace: str) -> Iterator[blocking.Tenure]:
    with blocking.Tenure(tenure.Tenure(world_url, namespace=namespace)) as rival:
        yield rival


def in_thread(function) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)  # a hanging one must not hang the run
    thread.start()
    return thread


def take_away(app: blocking.Tenure, name: str) -> None:
    """Remove a lease behind its holder's back."""
    [lease] = app.locks(name)
    app._portal().call(engine_of(app._app).store.leases.release([lease]))


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

    def work(user: blocking.Tenure) -> None:
        nonlocal inside
        lock = user.lock("counter")
        for _ in range(5):
            with lock as hold:
                inside += 1
                assert inside == 1
                fences.append(hold.fence)
                inside -= 1

    threads = [in_thread(lambda user=user: work(user)) for user in (app, rival) * 3]
    for thread in threads:
        thread.join()
    assert len(fences) == 30
    assert fences == sorted(set(fences))


def test_a_thread_that_would_wait_for_itself_gets_an_error(app):
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
    lost: list[blocking.Hold] = []
    with app.lock("lost", ttl=1, on_lost=lost.append) as hold:
        take_away(rival, "lost")
        wait_until(lambda: lost, timeout=10)
    assert lost == [hold]


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
    outcome = app.with_lock("job", threading.get_ident, ttl=10)
    assert outcome
    assert outcome.value == threading.get_ident()
    with rival.lock("job"):
        assert app.with_lock("job", threading.get_ident, ttl=10).skipped
    with pytest.raises(KeyError):
        app.with_lock("job", {}.__getitem__, "x", ttl=10)


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


def test_an_election_sits_out_an_outage():
    faults = Faults()
    with blocking.Tenure(tenure.Tenure(FaultyStore("memory://", faults))) as app:
        faults.lose_request("acquire", times=14)  # more than an acquisition tries
        for term in app.election("chief").terms():
            assert term.is_held
            break


def test_an_app_says_so_when_threads_do_not_run(monkeypatch):
    monkeypatch.setattr(portal, "_START_SECONDS", 0.05)
    monkeypatch.setattr(threading.Thread, "start", lambda _: None)
    with pytest.raises(StoreError, match=r"gevent.*uWSGI.*--enable-threads"):
        blocking.Tenure("memory://").open()


def test_an_app_refuses_to_open_without_a_thread_of_its_own(monkeypatch):
    """As with gevent, whose threads are greenlets of one thread."""
    native = threading.get_native_id()
    monkeypatch.setattr(threading, "get_native_id", lambda: native)
    with pytest.raises(StoreError, match="got no thread of its own"):
        blocking.Tenure("memory://").open()


def test_renew_and_release_by_hand(app):
    hold = app.lock("x").acquire()
    hold.renew()
    assert hold.expires_in() > 25
    assert hold.release()
    assert not hold.release()


def test_a_thread_that_waits_is_freed_when_the_app_is_closed():
    app = blocking.Tenure("memory://")
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            app.lock("taken").acquire()
        except StoreError as error:
            errors.append(error)

    app.open()
    held = app.lock("taken").acquire()
    thread = in_thread(wait)
    wait_until(lambda: any(lease.waiting for lease in app.locks()))
    app.close()
    thread.join(10)
    assert not thread.is_alive()
    assert len(errors) == 1
    assert not held.release()


def test_deadlocks_are_seen_through_with_lock_and_once(app):
    with app.lock("x"), pytest.raises(WouldDeadlock):
        app.with_lock("x", print, ttl=10, wait=None)
    with pytest.raises(WouldDeadlock):
        app.with_lock("y", lambda: app.lock("y").acquire(), ttl=10)
    with pytest.raises(OnceFailed, match="WouldDeadlock"):
        app.once("z", lambda: app.once("z", print))


def test_on_lost_may_use_the_hold(app, rival):
    released: list[bool] = []
    with app.lock("lost", ttl=1, on_lost=lambda hold: released.append(hold.release())):
        take_away(rival, "lost")
        wait_until(lambda: released, timeout=10)
    assert released == [False]


def test_an_error_of_the_body_is_raised_also_after_a_loss(app, rival):
    def body() -> None:
        take_away(rival, "lost")
        wait_until(lambda: not app.locks("lost"), timeout=10)
        time.sleep(1)  # until the next renewal has seen it
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        app.with_lock("lost", body, ttl=1)


FORKED = """
import os, sys
from tenure import StoreError, blocking
app = blocking.Tenure("memory://")
app.open()
hold = app.lock("x").acquire()
if os.fork() == 0:
    codes = 0
    for number, use in enumerate((app.locks, app.lock("y").acquire, app.lock("x").try_acquire)):
        try:
            use()
        except StoreError:
            codes += 1
    assert hold.is_lost and hold.release() is False
    app.close()
    os._exit(codes)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 3
assert hold.is_held and hold.release()
app.close()
"""


def test_a_forked_child_hangs_nowhere():
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=30)


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


def test_calls_that_have_ended_are_forgotten():
    with blocking.Tenure("memory://") as app:
        for _ in range(3):
            with app.lock("x") as hold:
                hold.renew()
        assert not app._portal()._calls


def test_an_app_keeps_no_function_that_has_run_under_a_lock():
    class Connection:
        """Anything that a function has at hand."""

    with blocking.Tenure("memory://") as app:
        used = [Connection(), Connection()]
        app.with_lock("x", partial(id, used[0]), ttl=5)
        app.once("x", partial(id, used[1]))
        kept = [weakref.ref(connection) for connection in used]
        del used
        gc.collect()
        assert [reference() for reference in kept] == [None, None]


HANGS_AT_A_LOSS = """
import threading
from tenure import blocking

told = threading.Event()

def hang(hold):
    told.set()
    threading.Event().wait()

with blocking.Tenure("memory://") as app:
    hold = app.lock("x", ttl=1, max_hold=0.05, on_lost=hang).acquire()
    assert told.wait(20)
print("the end")
"""


def test_an_on_lost_function_that_hangs_does_not_keep_the_process_alive():
    ended = subprocess.run(
        [sys.executable, "-c", HANGS_AT_A_LOSS],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "the end\n"), ended.stderr


def test_a_look_at_the_health_ends_in_time_while_the_loop_hangs():
    app, hangs, goes_on = blocking.Tenure("memory://"), threading.Event(), threading.Event()

    def hang(event: Event) -> None:
        if isinstance(event, LockAcquired) and event.name == "slow":
            hangs.set()
            goes_on.wait(20)

    app.on_event(hang)
    with app:
        holder = threading.Thread(target=lambda: app.with_lock("slow", int), daemon=True)
        holder.start()
        assert hangs.wait(20)
        began = time.monotonic()
        health = app.health(timeout=0.2)
        assert time.monotonic() - began < 5
        goes_on.set()
        assert health.status == "unhealthy"
        assert "event loop of tenure.blocking has not answered" in health.checks[0].detail
        holder.join(20)
        assert app.health().status == "healthy"
