"""The chart and the table of the last hour, from what workers have counted."""

import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from tenure import Tenure
from tenure.app import jobs
from tenure.core.jobs.run_stats import RunStats, merge_stats
from tenure.dashboard import snapshot
from tenure.dashboard.counters import rates, tasks
from tests.dashboard.desk import desk_on

NOON = datetime(2026, 11, 19, 12, 0, tzinfo=UTC)
NOW = int(NOON.timestamp() * 1e6) + 30_000_000


def line(minute: datetime, task: str = "send", queue: str = "mail", **counts: float) -> RunStats:
    """Return what was counted for one minute."""
    names = ("started", "succeeded", "failed", "retried", "cancelled", "lost", "seconds", "longest")
    return RunStats(minute=minute, task=task, queue=queue, **{**dict.fromkeys(names, 0), **counts})


def minutes_ago(minutes: int) -> datetime:
    return NOON - timedelta(minutes=minutes)


def test_a_chart_has_the_last_sixty_minutes() -> None:
    chart = rates(
        [
            line(minutes_ago(0), started=3, succeeded=1),
            line(minutes_ago(0), task="other", started=4),
            line(minutes_ago(59), failed=5, retried=6),
            line(minutes_ago(60), started=100),
            line(minutes_ago(-1), started=7),  # of a worker whose clock is ahead
        ],
        NOW,
    )
    assert chart["minutes"][0] == minutes_ago(59)
    assert chart["minutes"][-1] == NOON
    assert len(chart["minutes"]) == 60
    assert chart["started"] == [0] * 59 + [14]
    assert chart["succeeded"] == [0] * 59 + [1]
    assert chart["failed"] == [5] + [0] * 59
    assert chart["retried"] == [6] + [0] * 59


def test_tasks_have_their_sums_and_run_times() -> None:
    table = tasks(
        [
            line(minutes_ago(1), started=2, succeeded=1, failed=1, seconds=3.0, longest=2.0),
            line(minutes_ago(0), started=2, retried=1, cancelled=1, seconds=5.0, longest=4.0),
            line(minutes_ago(0), queue="slow", started=9),
        ]
    )
    assert [(task["task"], task["queue"], task["started"]) for task in table] == [
        ("send", "slow", 9),
        ("send", "mail", 4),
    ]
    assert (table[0]["seconds_mean"], table[0]["seconds_max"]) == (None, None)
    assert (table[1]["succeeded"], table[1]["failed"], table[1]["retried"]) == (1, 1, 1)
    assert (table[1]["seconds_mean"], table[1]["seconds_max"]) == (2.0, 4.0)


async def test_counts_of_many_workers_do_not_stop_the_loop(
    still: Tenure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Busy workers leave 6,000 lines each, and reading them takes up to 0.1 s for each."""
    threads = []

    def merged(bodies: Sequence[bytes], now: int) -> list[RunStats]:
        threads.append(threading.current_thread())
        return merge_stats(bodies, now)

    for module in (snapshot, jobs):
        monkeypatch.setattr(module, "merge_stats", merged)
    async with desk_on(still) as desk:
        assert (await desk.get("api/overview"))["tasks"] == []
    assert await still.run_stats() == []
    assert len(threads) == 2
    assert threading.current_thread() not in threads


def test_the_table_is_bounded() -> None:
    lines = [line(NOON, task=f"t{number}", started=number) for number in range(150)]
    table = tasks(lines)
    assert len(table) == 100
    assert table[0]["started"] == 149
