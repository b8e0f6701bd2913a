"""What cannot work is refused where it is declared, with words that say what is wrong."""

from datetime import UTC, datetime, timedelta

import pytest

from tenure import ConfigError, Tenure, daily, weekdays, weekends, window


@pytest.fixture
def unopened() -> Tenure:
    return Tenure("memory://")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "not by neither"),
        ({"every": "1s", "cron": "@daily"}, "not by both"),
        ({"every": 0}, "at least 1 s"),
        ({"every": "0.5s"}, "at least 1 s"),
        ({"every": "soon"}, "every"),
        ({"cron": "61 * * * *"}, "61"),
        ({"cron": "* * *"}, "fields"),
        ({"cron": "0 0 31 2 *"}, "never"),
        ({"cron": "@dayly"}, "@daily"),
        ({"cron": "@daily", "tz": "Europe/Berlim"}, "Europe/Berlin"),
        ({"every": "1m", "spread": "2m"}, "shorter than the time from one tick to the next"),
        ({"every": "1m", "limit": 0}, "limit"),
        ({"every": "1m", "per_replica": True}, "per_replica"),
        ({"every": "1m", "overlap": "maybe"}, "overlap must be one of 'skip'"),
        ({"every": "1m", "each": "process"}, "each must be one of 'cluster', 'replica'"),
        ({"every": "1m", "catch_up": "some"}, "catch_up must be one of"),
        ({"every": "1m", "on_crash": "ignore"}, "on_crash must be 'record' or 'rerun'"),
        ({"every": "1m", "retry": -1}, "retry must be how often"),
        ({"every": "1m", "max_run_time": 0}, "max_run_time"),
        ({"every": "1m", "jitter": -1}, "jitter"),
        ({"every": "1m", "after": "start"}, "after must be one of 'completion'"),
        ({"cron": "@daily", "after": "completion"}, "every="),
        ({"every": "1m", "after": "completion", "limit": 2}, "leave out"),
        ({"every": "1m", "blackout": ["22:00-06:00"]}, "weekdays"),
        (
            {"every": "1m", "blackout": [daily("00:00-12:00"), daily("12:00-24:00")]},
            "cover everything",
        ),
        (
            {"every": "1m", "blackout": [weekdays("00:00-24:00"), weekends("00:00-24:00")]},
            "cover everything",
        ),
        ({"every": "1m", "renamed_from": "work"}, "itself"),
        ({"every": "1m", "name": ""}, "name"),
        ({"every": "1m", "name": "*"}, "stands for all timers"),
    ],
)
def test_what_cannot_work_is_refused(unopened: Tenure, options: dict, words: str):
    with pytest.raises(ConfigError, match=words.replace("*", r"\*")) as refused:

        @unopened.timer(**options)
        async def work() -> None: ...

    assert str(refused.value).endswith((".", "?"))
    assert len(unopened.timers) == 0


def test_two_timers_cannot_share_a_name(unopened: Tenure):
    @unopened.timer(every="1s")
    async def work() -> None: ...

    with pytest.raises(ConfigError, match="already"):
        unopened.timer(every="1s", name="work")(lambda: None)
    assert list(unopened.timers) == ["work"]
    assert "work" in unopened.timers


def test_a_handler_takes_a_tick_or_nothing(unopened: Tenure):
    with pytest.raises(ConfigError, match="takes a tick, or nothing"):

        @unopened.timer(every="1s")
        async def work(tick: object, more: object) -> None: ...

    with pytest.raises(ConfigError, match="lambda"):
        unopened.timer(every="1s")(lambda: None)


def test_windows_need_zones():
    with pytest.raises(ConfigError, match="time zone"):
        window(datetime(2026, 1, 1), datetime(2026, 1, 2))  # noqa: DTZ001 - that is the mistake
    with pytest.raises(ConfigError, match="after"):
        now = datetime(2026, 1, 1, tzinfo=UTC)
        window(now, now - timedelta(days=1))


def test_a_schedule_says_itself_when_its_jobs_run(unopened: Tenure):
    @unopened.task
    async def report(kind: str) -> None: ...

    with pytest.raises(ConfigError, match="Put @app"):
        unopened.schedule(lambda: None, every="1s")
    with pytest.raises(ConfigError, match="leave out unique, delay and at"):
        unopened.schedule(report.using(delay="5s"), every="1s", args=("weekly",))
    with pytest.raises(TypeError, match="kind"):
        unopened.schedule(report, every="1s")
    assert unopened.schedule(report, every="1s", args=("weekly",)).name == "report"
