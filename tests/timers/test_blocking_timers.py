"""Timers for threads: everything that operators can do on a loop, on every store."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

import tenure
from tenure import ConfigError, TimerBusy, TimerNotFound, blocking
from tenure.core.schedules.registration import Registration
from tenure.runtime.timers.scheduling import Scheduling
from tenure.timers import Timers
from tests.jobs.test_blocking_jobs import Shop, working
from tests.rig.waiting import wait_until


class Clock(Shop):
    """A shop with a timer and a schedule."""

    def __init__(self, url: str, namespace: str) -> None:
        super().__init__(url, namespace)

        @self.app.timer(every="1s")
        def sweep() -> None: ...

        self.app.schedule(self.send, cron="@yearly", args=(7,), name="yearly")


@pytest.fixture
def shop(world_url: str, namespace: str) -> Clock:
    return Clock(world_url, namespace)


@pytest.fixture
def sync(shop: Clock) -> Iterator[blocking.Tenure]:
    with blocking.Tenure(shop.app) as sync:
        yield sync


@pytest.fixture
def registered(shop: Clock, sync: blocking.Tenure) -> blocking.Tenure:
    """As if a worker had begun; nothing ticks."""
    store = sync._app._store
    for name, plan in shop.app._plans.items():
        found = plan.definition
        registration = Registration(name=name, digest=found.digest, definition=found.encode())
        sync._portal().call(Scheduling(store).register([registration]))
    return sync


def test_the_facade_has_all_that_timers_have(sync):
    for ours, theirs in (
        (blocking.TimerHandle, tenure.TimerHandle),
        (blocking.Timers, Timers),
    ):
        names = {name for name in dir(theirs) if not name.startswith("_")} - {"jobs", "store"}
        assert names <= set(dir(ours))
    timer = sync.timers["sweep"]
    assert (timer.name, repr(timer)) == ("sweep", "<Timer 'sweep'>")


def test_those_that_are_declared(sync):
    assert (list(sync.timers), len(sync.timers)) == (["sweep", "yearly"], 2)
    assert "sweep" in sync.timers
    assert "nope" not in sync.timers
    # Opening an app makes nothing known.
    assert sync.timers.all() == []


def test_ticks_run_and_are_remembered(shop, sync):
    with working(shop):

        def ran() -> bool:
            known = [one.name for one in sync.timers.all()]
            done = "sweep" in known and sync.timers["sweep"].history()
            return bool(done) and done[0].outcome == "succeeded"

        wait_until(ran, 20, "it has run")
    [newest] = sync.timers["sweep"].history(1)
    assert isinstance(newest, tenure.TickRecord)
    assert sync.timers["sweep"].info().previous is not None


def test_pausing_and_resuming(registered):
    timer = registered.timers["sweep"]
    timer.pause("migration", until=timedelta(hours=2))
    pause = timer.info().pause
    assert pause.reason == "migration"
    assert timedelta(minutes=119) < pause.until - pause.since <= timedelta(hours=2)
    assert timer.resume()
    assert not timer.resume()
    end = datetime(2096, 1, 2, tzinfo=UTC)
    timer.pause(until=end)
    assert timer.info().pause.until == end
    with pytest.raises(ConfigError, match="has no time zone"):
        timer.pause(until=datetime(2096, 1, 2))  # noqa: DTZ001 - that is the mistake


def test_freezing_everything(registered):
    assert registered.timers.frozen() is None
    registered.freeze("release", until="30m")
    assert registered.timers.frozen().reason == "release"
    assert registered.unfreeze()
    assert not registered.unfreeze()


def test_a_trigger_is_a_job(shop, registered):
    registered.timers["yearly"].pause()
    job = registered.timers["yearly"].trigger()
    assert isinstance(job, blocking.Job)
    assert (job.task, job.state) == ("send", "waiting")
    with pytest.raises(TimerBusy, match="overlap"):
        registered.timers["yearly"].trigger()
    with working(shop):
        assert job.result(timeout=20).user == 7
    assert registered.timers["yearly"].history()[0].reason == "triggered"


def test_what_comes_next(registered):
    first, *_, last = registered.timers["yearly"].preview(3)
    assert (first.month, first.day, last.year - first.year) == (1, 1, 2)
    [sweep, yearly] = registered.timers.all()
    assert (sweep.name, yearly.kind, yearly.next) == ("sweep", "schedule", first)


def test_what_is_not_there_is_not_found(sync):
    timer = sync.timers["nope"]
    for call in (timer.info, timer.pause, timer.resume, timer.trigger, timer.preview):
        with pytest.raises(TimerNotFound, match="'nope'"):
            call()
    with pytest.raises(TimerNotFound):
        timer.history()
