"""Interrupts in synchronous code: whatever ends a block or a call, nothing stays behind.

Each row of the tables in `blocking_calls` is a call that runs code of the user or that waits. Each
kind of interrupt ends it. Afterwards nothing is held, the app can be used, and closing it takes no
time. All leases have a long ttl, so that only a release ends them, and the error stays referred to,
as it does in a debugger or a notebook.
"""

import gc
import logging
import random
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NoReturn

import pytest

from tenure import OnceFailed, StoreError
from tenure.app import engine_of
from tenure.blocking.calls import Call
from tests.locks.blocking_bench import TTL, Bench, check_nothing_stays, close_at_once, set_up
from tests.locks.blocking_calls import (
    AT_ONCE,
    AT_ONCE_OF_A_HOLD,
    BODIES,
    OF_GENERATORS,
    ON_YOUR_CONNECTION,
    OPENING,
    WAITS,
    call_of,
    properties_of,
    public_calls,
    release,
)
from tests.rig.interrupts import INTERRUPTS, interrupted, interrupted_after
from tests.rig.sizes import SIZE


@pytest.fixture
def bench(namespace: str) -> Iterator[Bench]:
    with set_up(f"memory://{namespace}", namespace) as bench:
        yield bench


@pytest.fixture
def bench_on_each_store(world_url: str, namespace: str) -> Iterator[Bench]:
    with set_up(world_url, namespace) as bench:
        yield bench


def test_every_public_call_is_interrupted_or_returns_at_once():
    interrupted_calls = {call_of(row) for row in [*WAITS, *BODIES]} | OPENING
    others = AT_ONCE.keys() | AT_ONCE_OF_A_HOLD.keys() | ON_YOUR_CONNECTION
    assert not interrupted_calls & others
    assert interrupted_calls | others == public_calls()


def test_calls_that_return_at_once_do_not_wait_for_the_event_loop(bench: Bench):
    hold, job = bench.app.lock("x", ttl=TTL).acquire(), bench.job()
    shown = [bench.app, bench.timer(), hold, job]
    calls = [partial(call, bench) for call in AT_ONCE.values()]
    calls += [partial(getattr, thing, name) for thing in shown for name in properties_of(thing)]
    calls += [partial(call, hold) for call in AT_ONCE_OF_A_HOLD.values()]
    bench.block_loop()
    with ThreadPoolExecutor(1) as pool:
        try:
            for call in calls:
                pool.submit(call).result(20)
        finally:
            bench.let_through()
    hold.release()


@pytest.mark.parametrize("kind", INTERRUPTS)
@pytest.mark.parametrize("body", BODIES)
def test_an_interrupt_in_code_of_the_user_leaves_nothing_behind(
    bench: Bench, body: str, kind: str, caplog: pytest.LogCaptureFixture
):
    error = INTERRUPTS[kind]()

    def fail() -> NoReturn:
        raise error

    skip_generator_exit(body, kind)
    with pytest.raises(type(error)) as caught:
        BODIES[body](bench.app, fail)
    assert caught.value is error
    check_nothing_stays(bench)
    check_log(caplog)


@pytest.mark.parametrize("body", ["Tenure.with_lock", "Tenure.once", "Hold.__exit__"])
def test_ctrl_c_in_code_of_the_user_on_each_store(bench_on_each_store: Bench, body: str):
    def fail() -> NoReturn:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        BODIES[body](bench_on_each_store.app, fail)
    check_nothing_stays(bench_on_each_store)


@pytest.mark.parametrize("row", ["Semaphore.acquire, taken", "Tenure.with_lock", "Hold.release"])
def test_ctrl_c_while_waiting_on_each_store(bench_on_each_store: Bench, row: str):
    when, wait = WAITS[row](bench_on_each_store)
    with pytest.raises(KeyboardInterrupt), interrupted(KeyboardInterrupt(), when):
        wait()
    check_nothing_stays(bench_on_each_store)


def test_an_interrupted_once_runs_with_the_next_call(bench: Bench):
    def fail() -> NoReturn:
        sys.exit(3)

    with pytest.raises(SystemExit):
        bench.app.once("x", fail)
    assert bench.rival.once("x", lambda: None)


def test_a_function_that_raises_stop_iteration_hangs_no_caller(bench: Bench):
    with pytest.raises(RuntimeError, match="StopIteration"):
        bench.app.with_lock("x", lambda: next(iter(())), ttl=TTL)
    with pytest.raises(OnceFailed, match="StopIteration"):
        bench.app.once("x", lambda: next(iter(())))
    check_nothing_stays(bench)


@pytest.mark.parametrize("kind", INTERRUPTS)
@pytest.mark.parametrize("row", WAITS)
def test_an_interrupt_while_waiting_leaves_nothing_behind(
    bench: Bench, row: str, kind: str, caplog: pytest.LogCaptureFixture
):
    skip_generator_exit(row, kind)
    when, wait = WAITS[row](bench)
    error = INTERRUPTS[kind]()
    with pytest.raises(type(error)) as caught, interrupted(error, when):
        wait()
    assert caught.value is error
    check_nothing_stays(bench)
    check_log(caplog)


@pytest.mark.parametrize("row", WAITS)
def test_an_interrupt_before_a_call_begins_leaves_nothing_behind(
    bench: Bench, row: str, caplog: pytest.LogCaptureFixture
):
    _, wait = WAITS[row](bench)
    bench.block_loop()
    with pytest.raises(KeyboardInterrupt), interrupted(KeyboardInterrupt(), lambda: True):
        wait()
    check_nothing_stays(bench)
    check_log(caplog)


WINS: dict[str, Callable[[Bench], object]] = {
    "acquire": lambda bench: bench.app.lock("x", ttl=TTL).acquire(),
    "try_acquire": lambda bench: bench.app.lock("x", ttl=TTL).try_acquire(),
    "__enter__": lambda bench: bench.app.lock("x", ttl=TTL).__enter__(),
    "terms": lambda bench: next(bench.app.election("x", ttl=TTL).terms()),
}


@pytest.mark.parametrize("call", WINS)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_an_interrupt_at_the_moment_of_success_leaves_nothing_behind(
    bench: Bench, call: str, monkeypatch: pytest.MonkeyPatch
):
    """The lease was won, and its hold has not reached the caller."""
    result = Call.result

    def interrupted_result(won: Call[object], patience: float | None) -> NoReturn:
        result(won, patience)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Call, "result", interrupted_result)
        with pytest.raises(KeyboardInterrupt):
            WINS[call](bench)
    check_nothing_stays(bench)


@pytest.mark.parametrize("kind", INTERRUPTS)
@pytest.mark.parametrize("call", ["open", "__enter__"])
def test_an_app_whose_opening_was_interrupted_can_be_opened(bench: Bench, call: str, kind: str):
    close_at_once(bench.app)
    error = INTERRUPTS[kind]()
    with pytest.raises(type(error)), interrupted(error, bench.shut("open")):
        getattr(bench.app, call)()
    bench.let_through()
    bench.app.open()
    check_nothing_stays(bench)


@pytest.mark.parametrize("kind", INTERRUPTS)
@pytest.mark.parametrize("call", ["close", "__exit__"])
def test_an_app_whose_closing_was_interrupted_can_be_opened(bench: Bench, call: str, kind: str):
    when, wait = release(bench)
    error = INTERRUPTS[kind]()
    with pytest.raises(type(error)), interrupted(error, when):
        wait()
    with pytest.raises(type(error)), interrupted(error, lambda: True):
        getattr(bench.app, call)()  # which waits for what is being released
    [left] = bench.rival.locks()
    bench.let_through()
    bench.rival._portal().call(engine_of(bench.rival._app).store.leases.release([left]))
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
                    bench.app.with_lock(f"l{number}", int, ttl=1)
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
            bench.app.with_lock(name, body, ttl=TTL)
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


def skip_generator_exit(row: str, kind: str) -> None:
    if kind == "GeneratorExit" and row in OF_GENERATORS:
        pytest.skip("a generator that raises GeneratorExit ends as any other")


def check_log(caplog: pytest.LogCaptureFixture) -> None:
    """Fail on errors that nothing has handled: asyncio logs them when they are collected."""
    gc.collect()
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [record.getMessage() for record in errors] == []
