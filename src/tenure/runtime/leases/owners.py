"""Owners of holds, to detect a caller that would wait for a lock that it holds itself.

In asynchronous code the owner is the running task. In synchronous code it is a `Caller`: a thread
within one context. The thread alone is not enough: a thread pool may run one request in a thread
where another request entered a lock, and continue that request elsewhere. Pools such as FastAPI's
run each call in a copy of its caller's context, so a variable set in the copy ends with the call.
"""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import Protocol

__all__ = ["Caller", "Owner", "current_caller", "current_owner", "owner"]


class Owner(Protocol):
    """A task, or a thread within one context."""

    def done(self) -> bool:
        """Whether it has ended."""
        ...


class Caller:
    """A thread that waits for an event loop in another thread."""

    def __init__(self, thread: threading.Thread) -> None:
        self.thread = thread

    def done(self) -> bool:
        return not self.thread.is_alive()


owner: ContextVar[Owner] = ContextVar("tenure_owner")
"""The thread on whose behalf the running task acquires, if there is one."""

_caller: ContextVar[Caller] = ContextVar("tenure_caller")


def current_owner() -> Owner | None:
    """Return the current owner: waiting for a lock that it holds would never end."""
    return owner.get(None) or asyncio.current_task()


def current_caller() -> Caller:
    """Return the caller of this thread, the same object as long as its context lives."""
    caller = _caller.get(None)
    thread = threading.current_thread()
    if caller is None or caller.thread is not thread:  # the context was copied from another thread
        caller = Caller(thread)
        _caller.set(caller)
    return caller
