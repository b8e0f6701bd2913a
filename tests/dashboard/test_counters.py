"""The chart and the table of the last hour, from what workers have counted."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tenure.dashboard.counters import rates, tasks

NOON = datetime(2026, 11, 19, 12, 0, tzinfo=UTC)
NOW = int(NOON.timestamp() * 1e6) + 30_000_000


@dataclass
class Line:
    """What was counted for one minute."""

    minute: datetime
    task: str = "send"
    queue: str = "mail"
    started: int = 0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    cancelled: int = 0
    lost: int = 0
    seconds: float = 0.0
    longest: float = 0.0


def minutes_ago(minutes: int) -> datetime:
    return NOON - timedelta(minutes=minutes)


def test_a_chart_has_the_last_sixty_minutes() -> None:
    chart = rates(
        [
            Line(minutes_ago(0), started=3, succeeded=1),
            Line(minutes_ago(0), task="other", started=4),
            Line(minutes_ago(59), failed=5, retried=6),
            Line(minutes_ago(60), started=100),
            Line(minutes_ago(-1), started=7),  # of a worker whose clock is ahead
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
            Line(minutes_ago(1), started=2, succeeded=1, failed=1, seconds=3.0, longest=2.0),
            Line(minutes_ago(0), started=2, retried=1, cancelled=1, seconds=5.0, longest=4.0),
            Line(minutes_ago(0), queue="slow", started=9),
        ]
    )
    assert [(line["task"], line["queue"], line["started"]) for line in table] == [
        ("send", "slow", 9),
        ("send", "mail", 4),
    ]
    assert (table[0]["seconds_mean"], table[0]["seconds_max"]) == (None, None)
    assert (table[1]["succeeded"], table[1]["failed"], table[1]["retried"]) == (1, 1, 1)
    assert (table[1]["seconds_mean"], table[1]["seconds_max"]) == (2.0, 4.0)


def test_the_table_is_bounded() -> None:
    lines = [Line(NOON, task=f"t{number}", started=number) for number in range(150)]
    table = tasks(lines)
    assert len(table) == 100
    assert table[0]["started"] == 149
