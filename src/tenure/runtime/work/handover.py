"""Runs the jobs that another worker has claimed for this process; see `isolation`.

This process works under a replica that the other worker joined for it. It runs the jobs one at a
time, so that a job that kills its process takes no other with it. Then the worker stops.
"""

from __future__ import annotations

from functools import partial

from tenure.runtime.store_retry import Retrier
from tenure.runtime.supervised.messages import HandOver
from tenure.runtime.work.local_work import LocalWork
from tenure.runtime.work.worker_state import WorkerState
from tenure.stores.contract import Store

__all__ = ["run_handed_over"]

# How long jobs that were handed over may wait for each other.
_WAIT_MAX = 5.0


async def run_handed_over(
    handed_over: HandOver,
    store: Store,
    retrier: Retrier,
    state: WorkerState,
    work: LocalWork,
) -> None:
    """Run these jobs one at a time.

    Their deadlines count from the claim, so jobs that cannot start within a few seconds are
    handed back. Raises errors of the store once the worker must stop.
    """
    clock = store.clock
    get = partial(store.jobs.get, handed_over.jobs)
    records = await retrier.until_answered("get", get, give_up=state.stopped)
    waiting = work.backlog.suspects
    for record in filter(None, records):
        if record.state != "running" or record.replica != handed_over.replica:
            continue
        if work.knows(record):
            waiting.append(record)
        else:
            work.accept(record, clock.boot())
    until = clock.boot() + _WAIT_MAX
    while waiting and not state.is_stopping and clock.boot() < until:
        work.start(waiting.popleft())
        while work.slots and (left := until - clock.boot()) > 0 and not state.is_stopping:
            state.changed.clear()
            await clock.wait(state.changed, left)
