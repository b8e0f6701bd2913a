"""Every public call of `tenure.blocking`: which code of the user it runs, and when it waits.

Rows are named after the call, with the situation after a comma. `public_calls` finds the calls by
introspection, so a test notices a new one that has no row.
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from inspect import getmembers_static, iscoroutinefunction
from types import FunctionType
from typing import NoReturn

import pytest

from tenure import blocking
from tests.locks.blocking_bench import TTL, Bench


def public_calls() -> set[str]:
    """Return all public methods of `tenure.blocking`, as "Class.method" of the class that has it.

    Constructors, `repr` and properties are left out: see `properties_of`. So are coroutines, which
    the package itself runs on the loop.
    """
    classes = [getattr(blocking, name) for name in blocking.__all__]
    return {
        f"{base.__name__}.{name}"
        for public in classes
        for base in public.__mro__
        if base.__module__.startswith("tenure.")
        for name, member in vars(base).items()
        if _is_call(name, member)
    }


def _is_call(name: str, member: object) -> bool:
    if name in _ENTERING:
        return True
    if name in _SHOWING or (name.startswith("_") and not name.endswith("__")):
        return False
    is_function = isinstance(member, FunctionType | staticmethod | classmethod)
    return is_function and not iscoroutinefunction(member)


_ENTERING = ("__enter__", "__exit__")  # made by a function of its own for locks
_SHOWING = ("__init__", "__repr__", "__bool__", "__class_getitem__")


def properties_of(shown: object) -> list[str]:
    """Return the names of the public properties of an object."""
    return [
        name
        for name, member in getmembers_static(type(shown))
        if isinstance(member, property) and not name.startswith("_")
    ]


def call_of(row: str) -> str:
    """Return the call that a row is about."""
    return row.partition(",")[0]


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


def observe_loop(app: blocking.Tenure, fail: Fail) -> None:
    for _ in app.election("x", ttl=TTL).observe():
        fail()


BODIES: dict[str, Callable[[blocking.Tenure, Fail], object]] = {
    "Tenure.with_lock": lambda app, fail: app.with_lock("x", fail, ttl=TTL),
    "Tenure.with_lock, nested": lambda app, fail: app.with_lock(
        "x", lambda: app.with_lock("y", fail, ttl=TTL), ttl=TTL
    ),
    "Tenure.once": lambda app, fail: app.once("x", fail, ttl=TTL),
    "Semaphore.__exit__, of a lock": lock_block,
    "Semaphore.__exit__, of a semaphore": semaphore_block,
    "Hold.__exit__": hold_block,
    "Election.terms, with a block": term_block,
    "Election.terms, in the loop": term_loop,
    "Election.observe": observe_loop,
    "Tenure.enqueue_many, generated": lambda app, fail: app.enqueue_many(fail() for _ in range(2)),
}


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


def leave_a_hold(bench: Bench) -> Waiting:
    def block() -> None:
        with bench.app.lock("x", ttl=TTL).acquire():
            bench.shut("release")

    return lambda: "release" in bench.gates.hanging, block


def leave_a_term(bench: Bench) -> Waiting:
    terms = bench.app.election("x", ttl=TTL).terms()
    next(terms)
    return bench.shut("release"), terms.close


def leave_with_lock(bench: Bench) -> Waiting:
    return lambda: "release" in bench.gates.hanging, lambda: bench.app.with_lock(
        "x", lambda: bench.shut("release"), ttl=TTL
    )


def renew(bench: Bench) -> Waiting:
    def block() -> None:
        with bench.app.lock("x", ttl=TTL) as hold:
            hold.renew()

    return bench.shut("renew"), block


def unanswered(make: Callable[[Bench], Callable[[], object]]) -> Callable[[Bench], Waiting]:
    """Return a row for a call whose first request to the store hangs."""

    def row(bench: Bench) -> Waiting:
        call = make(bench)
        return bench.shut_all(), call

    return row


WAITS: dict[str, Callable[[Bench], Waiting]] = {
    "Semaphore.acquire, taken": lambda bench: (
        bench.take("x"),
        bench.app.lock("x", ttl=TTL).acquire,
    ),
    "Semaphore.acquire": lambda bench: (bench.shut("acquire"), bench.app.lock("x").acquire),
    "Semaphore.try_acquire": lambda bench: (bench.shut("acquire"), bench.app.lock("x").try_acquire),
    "Semaphore.__enter__": lambda bench: (
        bench.take("x"),
        lambda: lock_block(bench.app, pytest.fail),
    ),
    "Semaphore.__exit__": leave_a_block,
    "Hold.release": release,
    "Hold.renew": renew,
    "Hold.__exit__": leave_a_hold,
    "Election.terms": lambda bench: (
        bench.take("election:x"),
        lambda: next(bench.app.election("x", ttl=TTL).terms()),
    ),
    "Election.terms, left": leave_a_term,
    "Election.observe": observe_election,
    "Election.leader": unanswered(lambda bench: bench.app.election("x").leader),
    "Tenure.health": lambda bench: (bench.shut("ping"), partial(bench.app.health, timeout=60)),
    "Tenure.with_lock": lambda bench: (
        bench.take("x"),
        lambda: bench.app.with_lock("x", pytest.fail, ttl=TTL, wait=None),
    ),
    "Tenure.with_lock, left": leave_with_lock,
    "Tenure.once": lambda bench: (bench.take("once:x"), lambda: bench.app.once("x", pytest.fail)),
    "Tenure.locks": unanswered(lambda bench: bench.app.locks),
    "Tenure.why_lock": unanswered(lambda bench: lambda: bench.app.why_lock("x")),
    "Tenure.enqueue": unanswered(lambda bench: bench.job),
    "Tenure.enqueue_many": unanswered(
        lambda bench: lambda: bench.app.enqueue_many([bench.task.request()])
    ),
    "Tenure.job": unanswered(lambda bench: partial(bench.app.job, bench.job().id)),
    "Tenure.jobs": unanswered(lambda bench: bench.app.jobs),
    "Tenure.queues": unanswered(lambda bench: bench.app.queues),
    "Tenure.why_queue": unanswered(lambda bench: lambda: bench.app.why_queue("default")),
    "Tenure.run_stats": unanswered(lambda bench: bench.app.run_stats),
    "Tenure.replicas": unanswered(lambda bench: bench.app.replicas),
    "Tenure.pause_queue": unanswered(lambda bench: lambda: bench.app.pause_queue("default")),
    "Tenure.resume_queue": unanswered(lambda bench: lambda: bench.app.resume_queue("default")),
    "Tenure.recover": unanswered(lambda bench: bench.app.recover),
    "Tenure.delete_job": unanswered(lambda bench: partial(bench.app.delete_job, bench.job().id)),
    "Tenure.prune_jobs": unanswered(lambda bench: bench.app.prune_jobs),
    "Tenure.timers": unanswered(lambda bench: bench.app.timers),
    "Tenure.timers_paused": unanswered(lambda bench: bench.app.timers_paused),
    "Tenure.pause_timers": unanswered(lambda bench: bench.app.pause_timers),
    "Tenure.resume_timers": unanswered(lambda bench: bench.app.resume_timers),
    "Job.wait": lambda bench: (lambda: True, bench.job().wait),
    "Job.result": lambda bench: (lambda: True, bench.job().result),
    "Job.refresh": unanswered(lambda bench: bench.job().refresh),
    "Job.cancel": unanswered(lambda bench: bench.job().cancel),
    "Job.requeue": unanswered(lambda bench: bench.job().requeue),
    "Job.why": unanswered(lambda bench: bench.job().why),
    "TimerHandle.info": unanswered(lambda bench: bench.timer().info),
    "TimerHandle.why": unanswered(lambda bench: bench.timer().why),
    "TimerHandle.pause": unanswered(lambda bench: bench.timer().pause),
    "TimerHandle.resume": unanswered(lambda bench: bench.timer().resume),
    "TimerHandle.reset": unanswered(lambda bench: bench.timer().reset),
    "TimerHandle.trigger": unanswered(lambda bench: bench.timer().trigger),
    "TimerHandle.preview": unanswered(lambda bench: bench.timer().preview),
    "TimerHandle.history": unanswered(lambda bench: bench.timer().history),
}

OF_GENERATORS = ("Tenure.enqueue_many, generated", "Election.terms, left")
"""Rows in which a GeneratorExit ends a generator as any other one does, and is not raised."""

OPENING = {"Tenure.open", "Tenure.ready", "Tenure.close", "Tenure.__enter__", "Tenure.__exit__"}
"""Calls that have interrupt tests of their own."""

AT_ONCE: dict[str, Callable[[Bench], object]] = {
    "Tenure.on_event": lambda bench: bench.app.on_event(print),
    "Tenure.on_enqueue": lambda bench: bench.app.on_enqueue(lambda _: None),
    "Tenure.around_enqueue": lambda bench: bench.app.around_enqueue(lambda _: nullcontext()),
    "Tenure.lock": lambda bench: bench.app.lock("x"),
    "Tenure.semaphore": lambda bench: bench.app.semaphore("x", 2),
    "Tenure.election": lambda bench: bench.app.election("x"),
    "Tenure.timer_handle": lambda bench: bench.app.timer_handle("hourly"),
}
"""Calls that do not wait, neither for the store nor for the event loop."""

AT_ONCE_OF_A_HOLD: dict[str, Callable[[blocking.Hold], object]] = {
    "Hold.expires_in": lambda hold: hold.expires_in(),
    "Hold.check": lambda hold: hold.check(),
    "Hold.tell_loss": lambda hold: hold.tell_loss(),
    "Hold.__enter__": lambda hold: hold.__enter__(),
}

ON_YOUR_CONNECTION = {"Hold.guard"}
"""Calls that only wait for the user's own connection, in the user's thread."""
