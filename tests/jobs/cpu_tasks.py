"""Tasks that run in child processes. Children import this module, as do the tests."""

import asyncio
import atexit
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextvars import copy_context
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec import Struct

from tenure import Backoff, Reject, Retry, StoreError, Tenure, current_job

app = Tenure("memory://")
task = app.task(executor="process", retry=None)


class Span(Struct):
    begin: datetime
    length: timedelta


@task
def end_of(span: Span, *more: timedelta, step: int = 1) -> datetime:
    return span.begin + sum([span.length, *more], timedelta()) * step


@task
def pid() -> int:
    return os.getpid()


@task
def whisper(word: str) -> None:
    sys.stdout.write(word)
    sys.stderr.write(word)


@task
def write_at_exit(file: str) -> None:
    atexit.register(Path(file).write_text, "it ended by itself")


@task
def speak_and_die(file: str) -> None:
    current_job().progress(1.0, "done")
    time.sleep(0.3)  # which another thread uses to send it
    Path(file).write_text(str(os.getpid()))
    os.kill(os.getpid(), signal.SIGKILL)


@task
def spin() -> None:
    while True:
        pass


@task
def hold_the_interpreter(file: str = os.devnull) -> None:
    Path(file).write_text(str(os.getpid()))
    re.match(r"(a+)+$", "a" * 40 + "b")


@task
def rest(seconds: float, file: str = "") -> int:
    """Write the pid to a file, if one is given, and wait."""
    if file:
        Path(file).write_text(str(os.getpid()))
    time.sleep(seconds)
    return os.getpid()


@task
def terminate_a_fork() -> int:
    """Return the exit code of a forked process, negative for a signal."""
    forked = os.fork()
    if forked == 0:
        time.sleep(10)
        os._exit(0)
    os.kill(forked, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1])


@task
def fail(message: str) -> None:
    try:
        raise KeyError(message)
    except KeyError as error:
        raise LookupError(message) from error


@task
def cancel_itself() -> None:
    raise asyncio.CancelledError


@task
def leave() -> None:
    sys.exit(4)


@app.task(executor="process", retry=Backoff(max_attempts=3, base=0))
def ask_again() -> int:
    if current_job().failures == 0:
        raise Retry("not yet", after=0.01)
    return current_job().attempt


@app.task(executor="process", retry=Backoff(max_attempts=2, base=0))
def refuse() -> None:
    raise Reject("never")


@task
def wrong_result() -> int:
    return "seven"  # type: ignore[return-value]


@task
def long_result(length: int) -> str:
    return "x" * length


@task
def forgotten() -> Any:
    async def later() -> None: ...

    return later()


@task
def exit_with(code: int) -> None:
    os._exit(code)


@task
def die_of(number: int, ledger: str = os.devnull) -> None:
    with Path(ledger).open("a") as lines:
        lines.write("run\n")
    os.kill(os.getpid(), number)
    signal.pause()


@task
def eat_memory() -> int:
    eaten = [bytearray(10_000_000) for _ in range(100)]  # unless something stops it
    return len(eaten)


@task
def take_memory(count: int) -> int:
    kept.append(bytearray(count))
    return os.getpid()


kept: list[bytearray] = []


@task
def cut_the_connection() -> None:
    os.closerange(3, 100)
    signal.pause()


@task
def start_a_program(file: str) -> None:
    program = subprocess.Popen(["sleep", "60"])
    Path(file).write_text(str(program.pid))
    program.wait()


@task
def fork_and_die(file: str) -> None:
    """Leave a forked process behind that has inherited everything, also the connection."""
    forked = os.fork()
    if forked == 0:
        time.sleep(60)
        os._exit(0)
    Path(file).write_text(str(forked))
    os._exit(5)


@task
def about() -> dict[str, Any]:
    job = current_job()
    assert job.deadline is None or job.deadline > datetime.now(UTC)
    return {
        "id": job.id,
        "task": job.task,
        "queue": job.queue,
        "tags": list(job.tags),
        "attempt": job.attempt,
        "failures": job.failures,
        "losses": job.losses,
        "fence": job.fence,
        "cancelled": job.cancelled,
        "deadline": job.deadline is not None,
    }


@app.task(executor="process", retry=Backoff(max_attempts=2, base=0))
def count_up(until: int) -> list[int]:
    """Die in the middle of the first attempt."""
    job = current_job()
    first = job.checkpoint or 0
    for number in range(first, until):
        job.progress(number / until, f"at {number}")
        job.save(number + 1)
        if job.attempt == 1 and number == until // 2:
            os._exit(1)
    return [first, until]


@task
def tell_and_rest(file: str) -> None:
    current_job().progress(0.25, "a quarter")
    Path(file).write_text(str(os.getpid()))
    time.sleep(60)


@task
def settle_itself() -> None:
    current_job().transaction(None)


@task
def chatter(word: str) -> None:
    for number in range(5):
        current_job().progress(number / 5, word)


@task
def save_too_much() -> None:
    current_job().save("x" * 2_000_000)


_late: list[threading.Thread] = []
_answers: list[str] = []
_next_begun = threading.Event()


@task
def leave_a_thread() -> int:
    """Leave a thread behind that saves a checkpoint during the next job of this process."""
    job = current_job()

    def save() -> None:
        _next_begun.wait(20)
        try:
            job.save("too late")
        except StoreError as error:
            _answers.append(str(error))

    _late.append(threading.Thread(target=save, daemon=True))
    _late[0].start()
    return os.getpid()


@task
def hear_the_late_thread() -> tuple[int, list[str]]:
    _next_begun.set()
    _late[0].join(10)
    return os.getpid(), _answers


@task
def meet(folder: str, count: int) -> int:
    """Wait until `number` processes are, or were, here at the same time."""
    (Path(folder) / str(os.getpid())).touch()
    while len(list(Path(folder).iterdir())) < count:
        time.sleep(0.01)
    return os.getpid()


@task
def enqueue_two(word: str) -> list[str]:
    async def both() -> list[str]:
        first = await pid.enqueue()
        [second] = await app.enqueue_many([whisper.request(word)])
        return [first.id, second.id]

    return asyncio.run(both())


@task
def enqueue_unique(key: str, number: int) -> str:
    return asyncio.run(take_memory.using(unique=key, delay=60).enqueue(number)).id


@task
def leave_a_thread_to_enqueue() -> int:
    """Leave a thread behind that enqueues a job during the next job of this process."""
    context = copy_context()

    def enqueue() -> None:
        _next_begun.wait(20)
        try:
            asyncio.run(pid.enqueue())
        except StoreError as error:
            _answers.append(f"{type(error).__name__}: {error}")

    _late.append(threading.Thread(target=context.run, args=(enqueue,), daemon=True))
    _late[0].start()
    return os.getpid()
