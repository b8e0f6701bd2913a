"""How long the runs of timers are kept."""

import pytest

from tenure import Retention, Tenure
from tenure.app import engine_of
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.timers.fleet import Fleet, Replica

HOUR = 3600
DAY = 86_400


def kept(app: Tenure, **options) -> tuple[float, float]:
    """Return for how long runs of a timer are kept, by outcome."""

    @app.timer(name=f"timer-{len(engine_of(app).registry.plans)}", **options)
    async def work() -> None: ...

    run = list(engine_of(app).registry.plans.values())[-1].definition.run
    return run.retention, run.retention_failed


@pytest.mark.parametrize(
    ("rule", "length"),
    [
        ({"every": "1s"}, HOUR),
        ({"every": "36s"}, HOUR),
        ({"every": "37s"}, 3700),
        ({"every": "1h"}, 100 * HOUR),
        ({"every": "1d"}, 100 * DAY),
        ({"cron": "*/5 * * * *"}, 500 * 60),
        ({"cron": "30 2 * * *", "tz": "UTC"}, 100 * DAY),
        ({"cron": "0 0 1 1 *"}, 3650 * DAY),  # the longest that stores can count
        ({"every": "10m", "after": "completion"}, 1000 * 60),
    ],
)
def test_runs_are_kept_for_an_hour_or_a_hundred_periods(rule, length):
    assert kept(Tenure("memory://", retention="5m"), **rule) == (length, length)


def test_a_timer_says_how_long_its_runs_are_kept():
    app = Tenure("memory://")
    assert kept(app, every="1s", retention="5m") == (300, 300)
    assert kept(app, every="1s", retention=0) == (60, 60)
    assert kept(app, every="1s", retention=Retention(failed="7d")) == (HOUR, 7 * DAY)


def test_after_completion_runs_are_kept_for_the_pause_at_least():
    app = Tenure("memory://")
    pause = {"every": "1h", "after": "completion"}
    assert kept(app, **pause, retention="5m") == (HOUR, HOUR)
    assert kept(app, **pause, retention=Retention(succeeded="2h", failed="1m")) == (7200, HOUR)


@pytest.mark.parametrize("kind", ["timer", "schedule"])
async def test_the_pause_after_completion_is_kept_although_runs_are_pruned(
    store: Store, clock: ManualClock, kind: str
):
    begun: list[float] = []
    ended: list[float] = []

    def declare(app: Tenure, _: Replica) -> None:
        async def work() -> None:
            begun.append(clock.boot())
            await clock.sleep(60)
            ended.append(clock.boot())

        options = {"every": "5m", "after": "completion"}
        if kind == "timer":
            app.timer(**options, retention="1m")(work)
        else:
            app.schedule(app.task(retention="1m")(work), **options)

    fleet = Fleet(store, clock, declare)
    async with fleet.running(1):
        await clock.advance(13 * 60)
    assert len(begun) == 2
    assert begun[1] - ended[0] >= 300
