"""The warnings of an outage are limited, and none is left out without being counted."""

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tenure.observe.formatters import JsonFormatter
from tenure.observe.outage_limiter import OutageLimiter
from tenure.testing import ManualClock
from tests.rig.wait import wait_until


class Lines(logging.Handler):
    """Keeps what reaches it."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def texts(self) -> list[str]:
        return [record.getMessage() for record in self.records]

    @property
    def counted(self) -> int:
        """How many warnings were logged or counted."""
        return sum(getattr(record, "left_out", 1) for record in self.records)


@pytest.fixture
def lines() -> Lines:
    return Lines()


@pytest.fixture
def limiter(lines: Lines) -> Iterator[OutageLimiter]:
    limiter = OutageLimiter(lines)
    yield limiter
    limiter.close()


def warning(text: str = "away", **parts: Any) -> logging.LogRecord:
    record = logging.LogRecord("tenure", logging.WARNING, "", 0, "%s", (text,), None)
    vars(record).update({"tenure_event": "RanUnlocked", **parts})
    return record


def test_the_formatter_of_the_other_handler_stays(lines: Lines, monkeypatch: pytest.MonkeyPatch):
    """basicConfig gives its own formatter to each handler that has none."""
    lines.setFormatter(JsonFormatter())
    limiter = OutageLimiter(lines)
    monkeypatch.setattr(logging.root, "handlers", [])
    logging.basicConfig(handlers=[limiter])
    assert isinstance(lines.formatter, JsonFormatter)
    limiter.setFormatter(other := logging.Formatter())
    assert (lines.formatter, limiter.formatter) == (other, other)
    limiter.close()


def test_the_first_warning_passes_and_the_others_are_counted(lines: Lines, limiter: OutageLimiter):
    for number in range(5):
        limiter.handle(warning(f"lock {number}"))
    assert lines.texts == ["lock 0"]
    limiter.close()
    assert lines.texts[1:] == ["4 more warnings of this kind within 60 s, the last one: lock 4"]
    summary = lines.records[1]
    assert (summary.levelname, vars(summary)["left_out"]) == ("WARNING", 4)
    assert vars(summary)["tenure_event"] == "RanUnlocked"


def test_the_count_is_logged_when_the_minute_is_over(lines: Lines):
    limiter = OutageLimiter(lines, every=0.5)
    for _ in range(3):
        limiter.handle(warning())
    wait_until(lambda: len(lines.records) == 2)
    limiter.handle(warning())  # the line with the count was that of this minute
    assert len(lines.records) == 2
    wait_until(lambda: len(lines.records) == 3)
    assert lines.texts[2] == "1 more warning of this kind within 0.5 s, the last one: away"
    wait_until(lambda: not _timers(), 5)
    limiter.handle(warning("again"))
    assert lines.texts[3] == "again"
    limiter.close()
    wait_until(lambda: not _timers())


def _timers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "tenure-log-limiter"]


@pytest.mark.parametrize(
    "parts",
    [
        {"tenure_event": "JobLost"},
        {"tenure_event": None},
        {"levelno": logging.ERROR},
        {"levelno": logging.INFO},
        {"name": "shop", "outage": "mine", "tenure_event": None},
    ],
)
def test_everything_else_passes(lines: Lines, limiter: OutageLimiter, parts: dict[str, Any]):
    for _ in range(3):
        limiter.handle(warning(**parts))
    assert len(lines.records) == 3


def test_each_kind_has_its_own_line(lines: Lines, limiter: OutageLimiter):
    for _ in range(3):
        limiter.handle(warning("ran"))
        limiter.handle(warning("tick", tenure_event="TickUnlocked"))
        limiter.handle(warning("release", tenure_event=None, outage="release"))
    assert lines.texts == ["ran", "tick", "release"]


def test_many_threads_lose_no_warning(lines: Lines):
    limiter = OutageLimiter(lines, every=0.05)

    def warn() -> None:
        for _ in range(500):
            limiter.handle(warning())

    threads = [threading.Thread(target=warn) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    limiter.close()
    assert lines.counted == 2000


def test_without_another_thread_a_warning_passes_and_the_next_one_brings_the_count(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
):
    """A process that is at its limit of threads, or ends, must not fail because it logs."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    clock = ManualClock()
    limiter = OutageLimiter(lines, clock=clock)
    for number in range(3):
        limiter.handle(warning(f"lock {number}"))
    clock.shift(60)
    limiter.handle(warning("lock 3"))
    limiter.close()
    assert lines.texts == [
        "lock 0",
        "2 more warnings of this kind within 60 s, the last one: lock 2",
        "lock 3",
    ]


def test_the_timer_of_a_minute_that_is_over_does_not_end_the_next_one(lines: Lines):
    """It may have waited for the lock while a warning began the next minute."""
    clock = ManualClock()
    limiter = OutageLimiter(lines, every=60, clock=clock)
    limiter.handle(warning())
    [window] = limiter._windows.values()
    clock.shift(60)
    limiter.handle(warning())
    limiter.handle(warning())
    late = threading.Thread(target=limiter._time_is_over, args=["RanUnlocked"])
    late.start()
    late.join()
    assert len(lines.records) == 2
    limiter.close()
    assert len(lines.records) == 3
    window.timer.join(20)
    assert not window.timer.is_alive()


def test_the_level_of_the_other_handler_counts(limiter: OutageLimiter, lines: Lines):
    lines.setLevel(logging.ERROR)
    for level in (logging.WARNING, logging.ERROR):
        name = logging.getLevelName(level)
        limiter.handle(logging.makeLogRecord({"name": "tenure", "levelno": level, "msg": name}))
    assert lines.texts == ["ERROR"]
