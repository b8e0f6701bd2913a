"""Without a subscriber, and with a log above DEBUG, no event of normal work is made."""

import logging
import sys
from collections import Counter
from typing import Any

import pytest

from tenure import Tenure
from tenure.observe import base, events
from tenure.observe.base import Detail
from tests.unit.test_event_words import leaves

DETAILS = [kind for kind in leaves(base.BaseEvent) if issubclass(kind, Detail)]
# They match events by class, and only subscribers call them.
_READERS = ("tenure.observe", "tenure.metrics", "tenure.otel", "tenure.prometheus")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count each construction of such an event, in whichever module, emitted or not."""
    made: Counter[str] = Counter()

    def counted(kind: type) -> Any:
        def make(*values: object, **fields: object) -> object:
            made[kind.__name__] += 1
            return kind(*values, **fields)

        return make

    for name, module in list(sys.modules.items()):
        if name.startswith("tenure") and not name.startswith(_READERS):
            for kind in DETAILS:
                if getattr(module, kind.__name__, None) is kind:
                    monkeypatch.setattr(module, kind.__name__, counted(kind))
    return made


async def live(app: Tenure, clock: Any) -> None:
    """Live through what happens all the time: jobs, locks, ticks, and calls of the store."""

    @app.task
    async def work(seconds: float = 0) -> None:
        await clock.sleep(seconds)

    @app.timer(every=1, name="sweep")
    async def sweep() -> None: ...

    async with app.worker():
        done = await work.enqueue()
        [stopped, never] = await app.enqueue_many([work.request(9), work.using(delay=9).request()])
        await clock.advance(1.5)
        await stopped.cancel()
        await never.cancel()
        await work.enqueue(9)  # handed back
        async with app.lock("orders"):
            assert await app.lock("orders").try_acquire() is None
        await clock.advance(1.5)
    jobs = await app.jobs()
    assert {job.state for job in jobs} == {"succeeded", "cancelled", "waiting"}
    assert (await done.refresh()).state == "succeeded"


@pytest.mark.parametrize("level", [logging.INFO, logging.WARNING])
async def test_nothing_is_made_without_a_subscriber(make, clock, made, caplog, level: int):
    caplog.set_level(level, "tenure")
    await live(await make(), clock)
    assert not made


async def test_the_same_life_makes_events_for_a_subscriber(store, clock, made):
    """So the test above watches the places where events are made."""
    app = Tenure(store.clone(), grace=0)
    app.on_event(lambda event: None)
    async with app:
        await live(app, clock)
    assert {
        *("JobEnqueued", "JobStarted", "JobSucceeded", "JobCancelled", "JobHandedBack"),
        "StoreCalled",
    } <= set(made)


async def test_the_log_at_debug_wants_them_too(make, clock, made, caplog):
    caplog.set_level(logging.DEBUG, "tenure")
    await live(await make(), clock)
    assert made["JobSucceeded"]
    assert not made["StoreCalled"]  # only for subscribers


async def test_whoever_wants_details_is_asked_first(monkeypatch):
    """A subscriber of the origin counts as well: its clones emit for it."""
    origin = events.Events()
    clone = events.Events(origin)
    assert not clone.wants_details
    origin.subscribe(lambda event: None)
    assert clone.wants_details
    assert origin.wants_details
