import asyncio
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar

import pytest

from tenure.runtime.attempts import threads as module
from tenure.runtime.attempts.threads import Threads
from tests.rig.wait import wait_until_async

word: ContextVar[str] = ContextVar("word", default="none")


@pytest.fixture
async def threads() -> Iterator[Threads]:
    threads = Threads()
    yield threads
    threads.close()


def fail(error: BaseException) -> None:
    raise error


async def test_a_call_returns_what_its_function_returns(threads: Threads):
    here = threading.get_ident()
    there = await threads.run(threading.get_ident)
    assert there != here


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(1), asyncio.CancelledError()])
async def test_a_call_raises_what_its_function_raises(threads: Threads, error: BaseException):
    with pytest.raises(type(error)):
        await threads.run(lambda: fail(error))
    assert await threads.run(lambda: 1) == 1


async def test_stop_iteration_which_no_future_can_raise(threads: Threads):
    with pytest.raises(RuntimeError, match="StopIteration"):
        await threads.run(lambda: fail(StopIteration(7)))
    with pytest.raises(RuntimeError, match="GeneratorExit"):
        await threads.run(lambda: fail(GeneratorExit()))


async def test_the_callers_context_goes_along_and_nothing_comes_back(threads: Threads):
    word.set("hello")

    def change() -> str:
        before = word.get()
        word.set("changed")
        return before

    assert await threads.run(change) == "hello"
    assert await threads.run(change) == "hello"
    assert word.get() == "hello"


async def test_an_idle_thread_is_used_again(threads: Threads):
    used = {await threads.run(lambda: threading.current_thread().name) for _ in range(20)}
    assert len(used) == 1
    assert used.pop().startswith("tenure-job-")


async def test_idle_threads_end_after_a_while(threads: Threads, monkeypatch):
    monkeypatch.setattr(module, "_IDLE_SECONDS", 0.05)
    barrier = threading.Barrier(8)

    def meet() -> threading.Thread:
        barrier.wait(10)
        return threading.current_thread()

    met = await asyncio.gather(*(threads.run(meet) for _ in range(8)))
    await wait_until_async(lambda: not any(thread.is_alive() for thread in met), timeout=20)
    again = await asyncio.gather(*(threads.run(meet) for _ in range(8)))
    assert len(set(again)) == 8


async def test_no_call_is_lost_to_a_thread_that_ends(threads: Threads, monkeypatch):
    monkeypatch.setattr(module, "_IDLE_SECONDS", 0.001)
    for number in range(100):
        async with asyncio.timeout(20):
            assert await threads.run(lambda number=number: number) == number
        # With the loop blocked, the thread wants to end just before the next call.
        time.sleep(0.002 * (number % 4))  # noqa: ASYNC251 - see above


async def test_no_call_waits_for_a_busy_thread(threads: Threads):
    barrier = threading.Barrier(8)
    await asyncio.wait_for(
        asyncio.gather(*(threads.run(lambda: barrier.wait(10)) for _ in range(8))), 10
    )


async def test_a_waiting_caller_may_give_up(threads: Threads):
    go_on = threading.Event()
    future = threads.run(lambda: go_on.wait(10))
    future.cancel()
    go_on.set()
    assert await threads.run(lambda: 1) == 1


async def test_closing_ends_idle_threads_at_once_and_others_with_what_they_run():
    threads = Threads()
    go_on = threading.Event()

    def work() -> threading.Thread:
        go_on.wait(10)
        return threading.current_thread()

    running = threads.run(work)
    idle = await threads.run(threading.current_thread)
    threads.close()
    await wait_until_async(lambda: not idle.is_alive())
    assert not running.done()
    go_on.set()
    busy = await running
    await wait_until_async(lambda: not busy.is_alive())


def test_idle_threads_do_not_keep_a_process_alive():
    threads = Threads()
    go_on = threading.Event()

    async def main() -> threading.Thread:
        started: list[threading.Thread] = []
        threads.run(lambda: (started.append(threading.current_thread()), go_on.wait(10)))
        return await wait_until_async(lambda: started and started[0])

    thread = asyncio.run(main())  # the loop is closed while the thread still runs
    assert thread.daemon
    go_on.set()
    threads.close()
    thread.join(5)
    assert not thread.is_alive()
