"""Records in the words that users read."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tenure.core.jobs.hand_backs import UNKNOWN_TASK
from tenure.core.jobs.history import AttemptLine
from tenure.core.jobs.view import as_datetime, waits_for_its_task


@pytest.mark.parametrize(
    ("instant", "shown"),
    [
        (0, datetime(1970, 1, 1, tzinfo=UTC)),
        (-1, datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
        (1_500_000, datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)),
        (2**62, datetime(9999, 12, 31, tzinfo=UTC)),
        (2**80, datetime(9999, 12, 31, tzinfo=UTC)),
        (-(2**62), datetime(1970, 1, 1, tzinfo=UTC)),
        (-(2**80), datetime(1970, 1, 1, tzinfo=UTC)),
    ],
)
def test_instants_beyond_the_calendar_are_shown_at_its_end(instant: int, shown: datetime):
    assert as_datetime(instant) == shown


def line(outcome: Any, error: str = "") -> AttemptLine:
    return AttemptLine(1, "r1", 0, 1, outcome, error)


UNKNOWN = line("handed back", UNKNOWN_TASK)


@pytest.mark.parametrize(
    ("state", "attempts", "waits"),
    [
        ("waiting", [UNKNOWN], True),
        ("waiting", [line("failed", "x"), UNKNOWN], True),
        ("waiting", [UNKNOWN, line("failed", "x")], False),
        ("waiting", [line("handed back", "x")], False),
        ("waiting", [line("failed", UNKNOWN_TASK)], False),
        ("waiting", [], False),
        ("running", [UNKNOWN], False),
        ("cancelled", [UNKNOWN], False),
    ],
)
def test_whether_a_job_waits_for_its_task(state: str, attempts: list[AttemptLine], waits: bool):
    history = b"\n".join(msgspec.json.encode(attempt) for attempt in attempts)
    record: Any = SimpleNamespace(state=state, history=history)
    assert waits_for_its_task(record) is waits
