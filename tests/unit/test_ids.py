import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.core.clock import SystemClock
from tenure.core.ids import is_job_id, job_id

WALLS = st.integers(min_value=0, max_value=2**48 * 1000 - 1)
TOKENS = st.integers(min_value=0, max_value=2**128 - 1).map(lambda bits: f"{bits:032x}")

steady = settings(derandomize=True, database=None, deadline=None)


@steady
@given(wall=WALLS, token=TOKENS)
def test_an_id_is_a_uuid_of_version_7_that_tells_its_millisecond(wall: int, token: str):
    made = job_id(wall, token)
    read = uuid.UUID(made)
    assert str(read) == made
    assert (read.version, read.variant) == (7, uuid.RFC_4122)
    assert read.int >> 80 == wall // 1000
    assert is_job_id(made)


@steady
@given(first=WALLS, second=WALLS, one=TOKENS, two=TOKENS)
def test_ids_sort_by_their_millisecond(first: int, second: int, one: str, two: str):
    if first // 1000 < second // 1000:
        assert job_id(first, one) < job_id(second, two)


def test_74_bits_are_random():
    tokens = [f"{1 << bit:032x}" for bit in range(128)]
    assert len({job_id(0, token) for token in tokens} - {job_id(0, "0" * 32)}) == 74


def test_ids_of_one_moment_differ():
    clock = SystemClock()
    assert len({job_id(0, clock.token()) for _ in range(10_000)}) == 10_000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "01a3185c-5000-40a5-92f3-46baa9455e3e",  # version 4
        "01a3185c-5000-70a5-12f3-46baa9455e3e",  # not the variant
        "01A3185C-5000-70A5-92F3-46BAA9455E3E",
        "01a3185c500070a592f346baa9455e3e",
        "01a3185c-5000-70a5-92f3-46baa9455e3e\n",
        "{01a3185c-5000-70a5-92f3-46baa9455e3e}",
    ],
)
def test_what_is_no_id(text: str):
    assert not is_job_id(text)
