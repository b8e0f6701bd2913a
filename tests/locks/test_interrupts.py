"""Interrupts in synchronous code: whatever ends a block or a call, nothing stays behind.

Each row of the tables is a call that runs code of the user or that waits. It is ended by each kind
of interrupt. Afterwards nothing is held, the app can be used, and closing it takes no time. All
leases have a long ttl, so that only a release ends them, and the error stays referred to, as it
does in a debugger or a notebook.
"""

import asyncio
import gc
import logging
import random
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import pytest

import tenure
from tenure import OnceFailed, StoreError, blocking
from tenure.testing import Faults, FaultyStore
from tests.rig.interrupts import INTERRUPTS, interrupted, interrupted_after
from tests.rig.sizes import SIZE
from tests.rig.waiting import wait_until

TTL = 600


class Gates(Faults):
    """Calls to the store that hang until they are let through."""

    def __init__(self) -> None:
        super().__init__()
        self.shut: set[str] = set()
        self.hanging: set[str] = set()


class GatedStore(FaultyStore):
    faults: Gates

    async def _pass(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        while name in self.faults.shut:
            self.faults.hanging.add(name)
            await asyncio.sleep(0.005)
        return await super()._pass(name, call)


@dataclass
class Bench:
    """A synchronous app on a store that can hang, and a rival that sees what is left behind."""

    app: blocking.Tenure
    rival: blocking.Tenure
    gates: Gates
    task: tenure.Task[[], int]
    taken: blocking.Hold | None = None
    """What the rival keeps from the app."""

    def take(self, name: str) -> Callable[[], bool]:
        """Let the rival hold a lock; return whether the app waits for it."""
        self.taken = self.rival.lock(name, ttl=TTL).acquire()
        return lambda: any(lease.waiting for lease in self.rival.locks(name))

    def shut(self, call: str) -> Callable[[], bool]:
        """Let a call to the store hang from now on; return whether one does."""
        self.gates.shut.add(call)
        return lambda: call in self.gates.hanging

    def let_through(self) -> None:
        self.gates.shut.clear()
        if self.taken is not None:
            self.taken.release()


@pytest.fixture
def bench(namespace: str) -> Iterator[Bench]:
    with set_up(f"memory://{namespace}", namespace) as bench:
        yield bench


@pytest.fixture
def bench_on_each_store(world_url: str, namespace: str) -> Iterator[Bench]:
    with set_up(world_url, namespace) as bench:
        yield bench


@contextmanager
def set_up(url: str, namespace: str) -> Iterator[Bench]:
    gc.collect()  # what earlier tests have left is none of ours
    gates = Gates()
    declared = tenure.Tenure(GatedStore(url, gates, namespace=namespace))

    @declared.task
    async def never() -> int:
        return 1

    @declared.timer(every="1h")
    async def hourly() -> None: ...

    with blocking.Tenure(url, namespace=namespace) as rival:
        app = blocking.Tenure(declared)
        app.open()
        bench = Bench(app, rival, gates, never)
        yield bench
        bench.let_through()
        close_at_once(app)


def close_at_once(app: blocking.Tenure) -> None:
    closing = threading.Thread(target=app.close, daemon=True)
    closing.start()
    closing.join(20)
    assert not closing.is_alive(), "close() hangs"


def check_nothing_stays(bench: Bench) -> None:
    bench.let_through()
    wait_until(lambda: not bench.rival.locks(), timeout=20, what="nothing is held or waited for")
    with bench.app.lock("usable", wait=10) as hold:
        assert hold.is_held
    assert bench.app.with_lock("usable", TTL, lambda: 7).value == 7
    close_at_once(bench.app)
    bench.app.open()
    assert bench.app.locks() == []


# Code of the user. `fail` raises the interrupt.

Fail = Callable[[], NoReturn]


def lock_block(app: blocking.Tenure, fail: Fail) -> None:
    with app.lock("x", ttl=TTL):
        fail()


def semaphore_block(app: blocking.Tenure, fail: Fail) -> None:
    shared = app.semaphore("x", 3, ttl=TTL)
    with shared, shared:
        fail()


def hold_block(app: blocking.Tenure, fail: Fail) -> None:
    with app.lock("x", ttl=TTL).acquire():
        fail()


def term_block(app: blocking.Tenure, fail: Fail) -> None:
    for term in app.election("x", ttl=TTL).terms():
        with term:
            fail()


def term_loop(app: blocking.Tenure, fail: Fail) -> None:
    for _ in app.election("x", ttl=TTL).terms():
        fail()


BODIES: dict[str, Callable[[blocking.Tenure, Fail], object]] = {
    "with_lock": lambda app, fail: app.with_lock("x", TTL, fail),
    "with_lock of with_lock": lambda app, fail: app.with_lock(
        "x", TTL, lambda: app.with_lock("y", TTL, fail)
    ),
    "once": lambda app, fail: app.once("x", fail, ttl=TTL),
    "lock block": lock_block,
    "semaphore block": semaphore_block,
    "hold block": hold_block,
    "term block": term_block,
    "term loop": term_loop,
    "enqueue_many": lambda app, fail: app.enqueue_many(fail() for _ in range(2)),
}


@pytest.mark.parametrize("kind", INTERRUPTS)
@pytest.mark.parametrize("body", BODIES)
def test_an_interrupt_in_code_of_the_user_leaves_nothing_behind(
    bench: Bench, body: str, kind: str, caplog: pytest.LogCaptureFixture
):
    error = INTERRUPTS[kind]()

    def fail() -> NoReturn:
        raise error

    if (body, kind) == ("enqueue_many", "GeneratorExit"):
        pytest.skip("a generator that raises GeneratorExit ends as any other")
    with pytest.raises(type(error)) as caught:
        BODIES[body](bench.app, fail)
    assert caught.value is error
    check_nothing_stays(bench)
    check_log(caplog)


@pytest.mark.parametrize("body", ["with_lock", "once", "lock block"])
def test_ctrl_c_in_code_of_the_user_on_each_store(bench_on_each_store: Bench, body: str):
    def fail() -> NoReturn:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        BODIES[body](bench_on_each_store.app, fail)
    check_nothing_stays(bench_on_each_store)


@pytest.mark.parametrize("row", ["acquire", "with_lock", "release"])
def test_ctrl_c_while_waiting_on_each_store(bench_on_each_store: Bench, row: str):
    when, wait = WAITS[row](bench_on_each_store)
    with pytest.raises(KeyboardInterrupt), interrupted(KeyboardInterrupt(), when):
        wait()
    check_nothing_stays(bench_on_each_store)


def test_what_once_was_interrupted_in_runs_with_the_next_call(bench: Bench):
    def fail() -> NoReturn:
        sys.exit(3)

    with pytest.raises(SystemExit):
        bench.app.once("x", fail)
    assert bench.rival.once("x", lambda: None)


def test_a_function_that_raises_stop_iteration_hangs_nobody(bench: Bench):
    with pytest.raises(RuntimeError, match="StopIteration"):
        bench.app.with_lock("x", TTL, lambda: next(iter(())))
    with pytest.raises(OnceFailed, match="StopIteration"):
        bench.app.once("x", lambda: next(iter(())))
    check_nothing_stays(bench)


# Waiting. Each returns when to interrupt it, and the call.

Waiting = tuple[Callable[[], object], Callable[[], object]]


def observe_election(bench: Bench) -> Waiting:
    changes = bench.app.election("x").observe()
    assert next(changes) is None
    return lambda: True, lambda: next(changes)


def release(bench: Bench) -> Waiting:
    hold = bench.app.lock("x", ttl=TTL).acquire()
    return bench.shut("release"), hold.release


def leave_a_block(bench: Bench) -> Waiting:
    def block() -> None:
        with bench.app.lock("x", ttl=TTL):
            bench.shut("release")

    return lambda: "release" in bench.gates.hanging, block


def leave_with_lock(bench: Bench) -> Waiting:
    return lambda: "release" in bench.gates.hanging, lambda: bench.app.with_lock(
        "x", TTL, lambda: bench.shut("release")
    )


def renew(bench: Bench) -> Waiting:
    def block() -> None:
        with bench.app.lock("x", ttl=TTL) as hold:
            hold.renew()

    return bench.shut("renew"), block


def wait_for_job(bench: Bench) -> Waiting:
    return lambda: True, bench.app.enqueue(bench.task.request()).wait


def wait_for_result(bench: Bench) -> Waiting:
    return lambda: True, bench.app.enqueue(bench.task.request()).result


WAITS: dict[str, Callable[[Bench], Waiting]] = {
    "acquire": lambda bench: (bench.take("x"), bench.app.lock("x", ttl=TTL).acquire),
    "lock block": lambda bench: (bench.take("x"), lambda: lock_block(bench.app, pytest.fail)),
    "with_lock": lambda bench: (
        bench.take("x"),
        lambda: bench.app.with_lock("x", TTL, pytest.fail, wait=None),
    ),
    "once": lambda bench: (bench.take("once:x"), lambda: bench.app.once("x", pytest.fail)),
    "terms": lambda bench: (
        bench.take("election:x"),
        lambda: next(bench.app.election("x", ttl=TTL).terms()),
    ),
    "observe": observe_election,
    "acquire, no answer": lambda bench: (bench.shut("acquire"), bench.app.lock("x").acquire),
    "try_acquire": lambda bench: (bench.shut("acquire"), bench.app.lock("x").try_acquire),
    "release": release,
    "leave a block": leave_a_block,
    "leave with_lock": leave_with_lock,
    "renew": renew,
    "locks": lambda bench: (bench.shut("leases"), bench.app.locks),
    "job.wait": wait_for_job,
    "job.result": wait_for_result,
    "enqueue": lambda bench: (
        bench.shut("insert"),
        lambda: bench.app.enqueue(bench.task.request()),
    ),
    "jobs": lambda bench: (bench.shut("find"), bench.app.jobs),
    "timer": lambda bench: (bench.shut("schedules"), bench.app.timers["hourly"].info),
}


@pytest.mark.parametrize("kind", INTERRUPTS)
@pytest.mark.parametrize("row", WAITS)
def test_an_interrupt_while_waiting_leaves_nothing_behind(
    bench: Bench, row: str, kind: str, caplog: pytest.LogCaptureFixture
):
    when, wait = WAITS[row](bench)
    error = INTERRUPTS[kind]()
    with pytest.raises(type(error)) as caught, interrupted(error, when):
        wait()
    assert caught.value is error
    check_nothing_stays(bench)
    check_log(caplog)


@pytest.mark.parametrize("kind", INTERRUPTS)
def test_an_app_whose_opening_was_interrupted_can_be_opened(bench: Bench, kind: str):
    close_at_once(bench.app)
    error = INTERRUPTS[kind]()
    with pytest.raises(type(error)), interrupted(error, bench.shut("open")):
        bench.app.open()
    bench.let_through()
    bench.app.open()
    check_nothing_stays(bench)


@pytest.mark.parametrize("kind", INTERRUPTS)
def test_an_app_whose_closing_was_interrupted_can_be_opened(bench: Bench, kind: str):
    when, wait = release(bench)
    error = INTERRUPTS[kind]()
    with pytest.raises(type(error)), interrupted(error, when):
        wait()
    with pytest.raises(type(error)), interrupted(error, lambda: True):
        bench.app.close()  # which waits for what is being released
    [left] = bench.rival.locks()
    bench.let_through()
    bench.rival._portal().call(bench.rival._app._store.release([left]))
    bench.app.open()
    check_nothing_stays(bench)


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupts_at_any_moment_hold_nothing_for_longer_than_its_ttl(bench: Bench):
    """Not only while it waits: between any two steps of Python as well."""
    numbers = random.Random(7)
    semaphore = bench.app.semaphore("x", 100, ttl=1)
    for number in range(SIZE.rounds * 3):
        with (
            pytest.raises(KeyboardInterrupt),
            interrupted_after(numbers.random() * 0.02, KeyboardInterrupt()),
        ):
            while True:
                if number % 2:
                    bench.app.with_lock(f"l{number}", 1, int)
                else:
                    with semaphore:
                        pass
    gc.collect()
    check_nothing_stays(bench)


def test_closing_does_not_wait_for_functions_of_other_threads(bench: Bench):
    begun, go_on = threading.Event(), threading.Event()
    ended: dict[str, BaseException] = {}

    def work(name: str, error: Exception | None) -> None:
        def body() -> None:
            begun.set()
            assert go_on.wait(30)
            if error is not None:
                raise error

        try:
            bench.app.with_lock(name, TTL, body)
        except Exception as raised:  # noqa: BLE001 - to be looked at
            ended[name] = raised

    mine = KeyError("mine")
    threads = [
        threading.Thread(target=work, args=args, daemon=True) for args in (("x", None), ("y", mine))
    ]
    for thread in threads:
        thread.start()
        assert begun.wait(20)
        begun.clear()
    close_at_once(bench.app)
    go_on.set()
    for thread in threads:
        thread.join(20)
    assert isinstance(ended["x"], StoreError)
    assert ended["y"] is mine
    bench.app.open()


def check_log(caplog: pytest.LogCaptureFixture) -> None:
    """Fail on errors that nothing has handled: asyncio logs them when they are collected."""
    gc.collect()
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [record.getMessage() for record in errors] == []
