"""Declarations that cannot work are refused at once, with an error that says why."""

import importlib
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tenure import ConfigError, Tenure, TimerNotFound, blackout
from tenure.app import engine_of


@pytest.fixture
def unopened() -> Tenure:
    return Tenure("memory://")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "A timer needs a rule: every='60s', or cron="),
        ({"every": "1s", "cron": "@daily"}, "not by both: leave one out"),
        ({"every": 0}, "at least 1 s"),
        ({"every": "0.5s"}, "at least 1 s"),
        ({"every": "soon"}, "every"),
        ({"cron": "61 * * * *"}, "61"),
        ({"cron": "* * *"}, "fields"),
        ({"cron": "0 0 31 2 *"}, "never"),
        ({"cron": "@dayly"}, "@daily"),
        ({"cron": "@daily", "tz": "Europe/Berlim"}, "Europe/Berlin"),
        ({"cron": "0 0 * * MONDAY"}, "names have three letters: 'MON', not 'MONDAY'"),
        ({"cron": "hourly"}, "Did you mean '@hourly'?"),
        ({"cron": "5 minutes"}, "For a period write every='5m'"),
        ({"cron": "@daily", "tz": "europe/berlin"}, "Did you mean 'Europe/Berlin'?"),
        ({"cron": "@daily", "tz": "UTC+1"}, "or 'Etc/GMT-1', whose sign is the other way round"),
        ({"cron": "@daily", "tz": "+05:30"}, "An offset has no summer time: use the name of"),
        ({"every": "1m", "spread": "2m"}, "shorter than the time from one tick to the next"),
        ({"every": "1m", "limit": 0}, "limit"),
        ({"every": "1m", "per_replica": True}, "per_replica"),
        ({"every": "1m", "overlap": "maybe"}, "overlap must be one of 'skip'"),
        ({"every": "1m", "each": "process"}, "each must be one of 'cluster', 'replica'"),
        ({"every": "1m", "catch_up": "some"}, "catch_up must be one of"),
        ({"every": "1m", "on_crash": "ignore"}, "on_crash must be 'record' or 'rerun'"),
        ({"every": "1m", "retry": -1}, "retry must be how often"),
        ({"every": "1m", "timeout": 0}, "timeout"),
        ({"every": "1m", "jitter": -1}, "jitter"),
        ({"every": "1m", "after": "start"}, "after must be one of 'completion'"),
        ({"cron": "@daily", "after": "completion"}, "every="),
        ({"every": "1m", "after": "completion", "limit": 2}, "leave out"),
        ({"every": "1m", "blackout": ["22:00-06:00"]}, "weekdays"),
        ({"every": "1m", "blackout": "22:00-06:00"}, "blackout=[blackout.daily('22:00-06:00')]?"),
        ({"every": "1m", "blackout": blackout.daily("22:00-06:00")}, "Put this one into [ ]"),
        ({"every": "1m", "blackout": 5}, "blackout takes a list"),
        ({"every": "1m", "max_runtime": "5s"}, "Did you mean 'timeout'?"),
        ({"every": "1m", "timezone": "UTC"}, "Did you mean 'tz'?"),
        ({"evry": "1m"}, "timer has no option 'evry'. Did you mean 'every'?"),
        ({"every": "1m", "colour": "red"}, "There are every, cron, tz, name"),
        (
            {
                "every": "1m",
                "blackout": [blackout.daily("00:00-12:00"), blackout.daily("12:00-24:00")],
            },
            "cover everything",
        ),
        (
            {
                "every": "1m",
                "blackout": [blackout.weekdays("00:00-24:00"), blackout.weekends("00:00-24:00")],
            },
            "cover everything",
        ),
        ({"every": "1m", "renamed_from": "work"}, "itself"),
        ({"every": "1m", "name": ""}, "name"),
        ({"every": "1m", "name": "*"}, "stands for all timers"),
    ],
)
def test_options_that_cannot_work_are_refused(unopened: Tenure, options: dict, words: str):
    with pytest.raises(ConfigError, match=re.escape(words)) as refused:

        @unopened.timer(**options)
        async def work() -> None: ...

    assert str(refused.value).endswith((".", "?"))
    assert len(unopened.timer_names) == 0


def test_two_timers_cannot_share_a_name(unopened: Tenure):
    @unopened.timer(every="1s")
    async def work() -> None: ...

    with pytest.raises(ConfigError, match="already"):
        unopened.timer(every="1s", name="work")(lambda: None)
    assert list(unopened.timer_names) == ["work"]
    assert "work" in unopened.timer_names


def test_a_rule_has_a_name(unopened: Tenure):
    with pytest.raises(ConfigError, match=r"'work' has no rule: write @app\.timer\(every='60s'\)"):

        @unopened.timer
        async def work() -> None: ...

    for rule, form in (("5s", "every='5s'"), (5, "every=5"), ("*/5 * * * *", "cron='*/5 * * * *'")):
        with pytest.raises(ConfigError, match=re.escape(f"by name: @app.timer({form}), not")):
            unopened.timer(rule)
    assert len(unopened.timer_names) == 0


def test_a_task_is_no_timer(unopened: Tenure):
    with pytest.raises(ConfigError, match=r"'work' is a task.*app\.schedule\(work, every="):

        @unopened.timer(every="1s")
        @unopened.task
        async def work() -> None: ...

    with pytest.raises(ConfigError, match=r"'other' is a timer, so it is no task"):

        @unopened.task
        @unopened.timer(every="1s")
        async def other() -> None: ...

    assert (unopened.task_names, unopened.timer_names) == (("@other", "work"), ("other",))


def test_a_former_name_belongs_to_one_timer(unopened: Tenure):
    unopened.timer(every="1s", name="before")(lambda: None)
    with pytest.raises(ConfigError, match="'after' says renamed_from='before'"):
        unopened.timer(every="1s", name="after", renamed_from="before")(lambda: None)
    unopened.timer(every="1s", name="new", renamed_from=["old", "older"])(lambda: None)
    with pytest.raises(ConfigError, match="'new' says renamed_from='older'"):
        unopened.timer(every="1s", name="older")(lambda: None)
    with pytest.raises(ConfigError, match="'third' and 'new' both say renamed_from='old'"):
        unopened.timer(every="1s", name="third", renamed_from="old")(lambda: None)
    assert list(unopened.timer_names) == ["before", "new"]


async def test_a_declaration_after_the_start_of_a_worker_is_refused(make):
    app = await make()

    @app.task
    async def report() -> None: ...

    async with app.worker():
        with pytest.raises(ConfigError, match="a worker of this app runs already"):
            app.timer(every="1s", name="late")(lambda: None)
        with pytest.raises(ConfigError, match="would never learn of 'report'"):
            app.schedule(report, every="1s")
    app.timer(every="1s", name="in time")(lambda: None)
    assert list(app.timer_names) == ["in time"]


async def test_modules_that_a_worker_imports_are_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "own_timers.py").write_text(
        "from own_app import app\napp.timer(every=1, name='sweep')(lambda: None)\n"
    )
    (tmp_path / "own_app.py").write_text(
        "from tenure import Tenure\napp = Tenure('memory://', imports=['own_timers'])\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    app = importlib.import_module("own_app").app
    async with app, app.worker():
        assert list(app.timer_names) == ["sweep"]


async def test_a_timer_that_no_worker_has_run_is_not_reported_as_unknown(make):
    app = await make()
    app.timer(every="1s", name="work")(lambda: None)
    for call in (
        app.timer_handle("work").info,
        app.timer_handle("work").pause,
        app.timer_handle("work").trigger,
    ):
        with pytest.raises(TimerNotFound, match=r"'work' is declared here, but no worker.*app.run"):
            await call()
    with pytest.raises(TimerNotFound, match="the store knows no timer or schedule 'other'"):
        await app.timer_handle("other").info()


def test_a_handler_takes_a_tick_or_nothing(unopened: Tenure):
    with pytest.raises(ConfigError, match="takes a tick, or nothing"):

        @unopened.timer(every="1s")
        async def work(tick: object, more: object) -> None: ...

    with pytest.raises(ConfigError, match="lambda"):
        unopened.timer(every="1s")(lambda: None)


def test_windows_need_zones():
    with pytest.raises(ConfigError, match="time zone"):
        blackout.window(datetime(2026, 1, 1), datetime(2026, 1, 2))  # noqa: DTZ001 - that is the mistake
    with pytest.raises(ConfigError, match="after"):
        now = datetime(2026, 1, 1, tzinfo=UTC)
        blackout.window(now, now - timedelta(days=1))


def test_a_schedule_says_itself_when_its_jobs_run(unopened: Tenure):
    @unopened.task
    async def report(kind: str) -> None: ...

    with pytest.raises(ConfigError, match="Put @app"):
        unopened.schedule(lambda: None, every="1s")
    with pytest.raises(ConfigError, match="leave out unique, delay and at"):
        unopened.schedule(report.using(delay="5s"), every="1s", args=("weekly",))
    with pytest.raises(TypeError, match="kind"):
        unopened.schedule(report, every="1s")
    for options, words in (
        ({"queue": "slow"}, r"app\.schedule\(task\.using\(queue=\.\.\.\)"),
        ({"retry": None}, r"app\.schedule\(task\.using\(retry=\.\.\.\)"),
        ({"executor": "thread"}, r"@app\.task\(executor=\.\.\.\)"),
        ({"jitter": "1s"}, r"@app\.timer has it"),
    ):
        with pytest.raises(ConfigError, match=words):
            unopened.schedule(report, every="1s", args=("weekly",), **options)
    with pytest.raises(ConfigError, match="missing a required argument: 'task'"):
        unopened.schedule(every="1s")
    assert unopened.schedule(report, every="1s", args=("weekly",)).name == "report"


def test_methods_are_refused_with_advice(unopened: Tenure):
    with pytest.raises(ConfigError, match=r"app\.timer\(\.\.\.\)\(Service\(\.\.\.\)\.poll\)"):

        class Service:
            @unopened.timer(every="60s")
            async def poll(self) -> None: ...

    with pytest.raises(ConfigError, match="stands above @staticmethod"):

        class Other:
            @unopened.timer(every="60s")
            @staticmethod
            async def poll() -> None: ...


def test_generators_are_refused(unopened: Tenure):
    with pytest.raises(ConfigError, match="is a generator"):

        @unopened.timer(every="60s")
        def poll():
            yield 1


def test_a_bound_method_may_be_a_timer(unopened: Tenure):
    class Service:
        async def poll(self) -> None: ...

    unopened.timer(every="60s")(Service().poll)
    assert "poll" in unopened.timer_names


def declared(app: Tenure, every: str) -> None:
    @app.timer(every=every)
    async def poll() -> None: ...

    @app.task
    async def report() -> None: ...

    app.schedule(report, every=every)


def test_a_notebook_may_run_a_cell_again(unopened: Tenure, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    declared(unopened, "60s")
    declared(unopened, "90s")
    rules = {
        name: plan.definition.rule for name, plan in engine_of(unopened).registry.plans.items()
    }
    assert {name: rule.period_us for name, rule in rules.items()} == {
        "poll": 90_000_000,
        "report": 90_000_000,
    }

    async def other() -> None: ...

    with pytest.raises(ConfigError, match="'poll' already"):
        unopened.timer(every="60s", name="poll")(other)
    monkeypatch.delattr(sys, "ps1")
    with pytest.raises(ConfigError, match="already"):
        declared(unopened, "60s")
