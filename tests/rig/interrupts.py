"""Exceptions that can end a block or a call at any moment, raised where a test chooses.

    with interrupted(KeyboardInterrupt(), when=lambda: app_waits()):
        lock.acquire()

Only the main thread can be interrupted, as only it gets signals.
"""

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from tests.rig.wait import wait_until


class OwnInterrupt(BaseException):
    """As some frameworks have them: gevent's GreenletExit, trio's Cancelled."""


INTERRUPTS: dict[str, Callable[[], BaseException]] = {
    "KeyboardInterrupt": KeyboardInterrupt,
    "SystemExit": lambda: SystemExit(3),
    "GeneratorExit": GeneratorExit,
    "own": lambda: OwnInterrupt("mine"),
    "pytest.fail": lambda: pytest.fail.Exception("mine"),
    "CancelledError": asyncio.CancelledError,
}
"""No `Exception`, so that `except Exception` does not catch them."""

_SIGNAL = signal.SIGUSR1


@contextmanager
def interrupted(
    error: BaseException,
    when: Callable[[], object],
    waits: Callable[[int], bool] | None = None,
) -> Iterator[None]:
    """Raise an error in the main thread while it waits in `tenure.blocking`, once `when` is true.

    Fails if the block ends without it. `waits` tells whether a thread waits, if it does so
    elsewhere.
    """
    assert threading.current_thread() is threading.main_thread()
    raised = False

    def strike(_: int, __: FrameType | None) -> None:
        nonlocal raised
        raised = True
        raise error

    main = threading.get_ident()

    def watch() -> None:
        wait_until(
            lambda: (waits or waits_in_tenure)(main) and when(),
            timeout=20,
            what="the main thread waits",
        )
        signal.pthread_kill(main, _SIGNAL)

    before = signal.signal(_SIGNAL, strike)
    watching = threading.Thread(target=watch, daemon=True)
    try:
        watching.start()
        yield
    finally:
        watching.join(20)
        signal.signal(_SIGNAL, before)
        assert raised, "the block ended before it could be interrupted"


@contextmanager
def interrupted_after(seconds: float, error: BaseException) -> Iterator[None]:
    """Raise an error in the main thread after so many seconds of work, wherever that is then."""

    def strike(_: int, __: FrameType | None) -> None:
        raise error

    signal.signal(signal.SIGVTALRM, strike)
    try:
        # Again after a while: Python ignores what is raised in a finalizer.
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds, 0.1)
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, signal.SIG_IGN)  # and with it the error is let go


def waits_in_tenure(thread: int) -> bool:
    """Return whether a thread waits for the event loop of `tenure.blocking`."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        file = frame.f_code.co_filename
        if "/tenure/blocking/" in file:
            return frame.f_code.co_name in ("result", "call_with_body")
        if "/tests/" in file:
            return False
        frame = frame.f_back
    return False


def waits_for_a_server(thread: int) -> bool:
    """Return whether a thread waits for bytes of an HTTP server, on behalf of `tenure.http`."""
    frame = sys._current_frames().get(thread)
    if frame is None or frame.f_code.co_name not in ("read", "recv"):
        return False
    while frame is not None:
        if frame.f_code.co_filename.endswith("/tenure/http/client/transport.py"):
            return True
        frame = frame.f_back
    return False
