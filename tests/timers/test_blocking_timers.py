"""Timers for threads: everything that operators can do on a loop, on every store."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

import tenure
from tenure import ConfigError, TimerBusy, TimerNotFound, blocking
from tenure.app import engine_of
from tenure.core.schedules.registration import Registration
from tenure.runtime.timers.scheduling import Scheduling
from tests.jobs.test_blocking_jobs import Shop, working
from tests.rig.wait import wait_until


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
    store = engine_of(sync._app).store
    for name, plan in engine_of(shop.app).registry.plans.items():
        definition = plan.definition
        registration = Registration(
            name=name, digest=definition.digest, definition=definition.encode()
        )
        sync._portal().call(Scheduling(store).register([registration]))
    return sync


def test_the_facade_has_all_that_timers_have(sync):
    names = {name for name in dir(tenure.TimerHandle) if not name.startswith("_")}
    assert names <= set(dir(blocking.TimerHandle))
    timer = sync.timer_handle("sweep")
    assert (timer.name, repr(timer)) == ("sweep", "<Timer 'sweep'>")


def test_timer_names_lists_declared_timers(sync):
    assert sync.timer_names == ("sweep", "yearly")
    # Opening an app makes nothing known.
    assert sync.timers() == []


def test_ticks_run_and_are_remembered(shop, sync):
    with working(shop):

        def ran() -> bool:
            names = [timer.name for timer in sync.timers()]
            done = "sweep" in names and sync.timer_handle("sweep").history()
            return bool(done) and done[0].outcome == "succeeded"

        wait_until(ran, 20, "it has run")
    [newest] = sync.timer_handle("sweep").history(1)
    assert isinstance(newest, tenure.TickRecord)
    assert sync.timer_handle("sweep").info().previous is not None


def test_pausing_and_resuming(registered):
    timer = registered.timer_handle("sweep")
    timer.pause(reason="migration", until=timedelta(hours=2))
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
    assert registered.timers_paused() is None
    registered.pause_timers(reason="release", until="30m")
    assert registered.timers_paused().reason == "release"
    assert registered.resume_timers()
    assert not registered.resume_timers()


def test_a_trigger_is_a_job(shop, registered):
    registered.timer_handle("yearly").pause()
    job = registered.timer_handle("yearly").trigger()
    assert isinstance(job, blocking.Job)
    assert (job.task, job.state) == ("send", "waiting")
    with pytest.raises(TimerBusy, match="overlap"):
        registered.timer_handle("yearly").trigger()
    with working(shop):
        assert job.result(timeout=20).user == 7
    assert registered.timer_handle("yearly").history()[0].reason == "triggered"


def test_preview_shows_the_next_ticks(registered):
    first, *_, last = registered.timer_handle("yearly").preview(3)
    assert (first.month, first.day, last.year - first.year) == (1, 1, 2)
    [sweep, yearly] = registered.timers()
    assert (sweep.name, yearly.kind, yearly.next) == ("sweep", "schedule", first)


def test_an_unknown_timer_is_not_found(sync):
    timer = sync.timer_handle("nope")
    for call in (timer.info, timer.pause, timer.resume, timer.trigger, timer.preview):
        with pytest.raises(TimerNotFound, match="'nope'"):
            call()
    with pytest.raises(TimerNotFound):
        timer.history()
