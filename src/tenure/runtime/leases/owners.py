"""Owners: on whose behalf something is acquired, to tell a caller that would wait for itself.

In asynchronous code the owner is the running task. In synchronous code it is a `Caller`: a thread
within one context. The thread alone is not enough. A thread pool runs one request in it while
another one, which entered a lock there, goes on elsewhere. Pools such as that of FastAPI run each
call in a copy of its caller's context, so what is set in the copy is gone with the call.
"""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import Protocol

__all__ = ["Caller", "Owner", "current_caller", "current_owner", "owner"]


class Owner(Protocol):
    """A task or a caller."""

    def done(self) -> bool:
        """Whether it has ended."""
        ...


class Caller:
    """A thread that waits for an event loop in another one."""

    def __init__(self, thread: threading.Thread) -> None:
        self.thread = thread

    def done(self) -> bool:
        return not self.thread.is_alive()


owner: ContextVar[Owner] = ContextVar("tenure_owner")
"""The owner, if not the running task: a caller that waits for that task."""

_caller: ContextVar[Caller] = ContextVar("tenure_caller")


def current_owner() -> Owner | None:
    """Return what would wait for itself by waiting for something that it holds."""
    return owner.get(None) or asyncio.current_task()


def current_caller() -> Caller:
    """Return the caller in this thread; the same one as long as its context lives."""
    caller = _caller.get(None)
    thread = threading.current_thread()
    if caller is None or caller.thread is not thread:  # or the context was copied from there
        caller = Caller(thread)
        _caller.set(caller)
    return caller
