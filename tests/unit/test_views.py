"""Records in the words that users read."""

from datetime import UTC, datetime

import pytest

from tenure.core.views import as_datetime


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
