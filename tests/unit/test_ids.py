import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.core.ids import JobIds, is_job_id, job_id
from tenure.testing import ManualClock

MILLISECONDS = st.integers(min_value=0, max_value=2**48 - 1)
COUNTS = st.integers(min_value=0, max_value=2**12 - 1)
TOKENS = st.integers(min_value=0, max_value=2**128 - 1).map(lambda bits: f"{bits:032x}")

steady = settings(derandomize=True, database=None, deadline=None)


@steady
@given(millisecond=MILLISECONDS, count=COUNTS, token=TOKENS)
def test_an_id_is_a_uuid_of_version_7_that_tells_its_millisecond(millisecond, count, token):
    made = job_id(millisecond, count, token)
    read = uuid.UUID(made)
    assert str(read) == made
    assert (read.version, read.variant) == (7, uuid.RFC_4122)
    assert read.int >> 80 == millisecond
    assert is_job_id(made)


@steady
@given(first=st.tuples(MILLISECONDS, COUNTS), second=st.tuples(MILLISECONDS, COUNTS), token=TOKENS)
def test_ids_sort_by_millisecond_and_number(first, second, token):
    if first < second:
        assert job_id(*first, "f" * 32) < job_id(*second, token)


def test_62_bits_are_random():
    tokens = [f"{1 << bit:032x}" for bit in range(128)]
    assert len({job_id(0, 0, token) for token in tokens} - {job_id(0, 0, "0" * 32)}) == 62


def test_ids_sort_in_the_order_in_which_they_were_made():
    clock = ManualClock()
    ids = JobIds(clock)
    made = []
    for step in (0, 0.0005, 0.002, -60, 1, 120):
        clock.step(step)
        made += [ids.make() for _ in range(5000)]  # more than a millisecond has numbers for
    assert made == sorted(set(made))


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
def test_texts_that_are_no_job_id(text: str):
    assert not is_job_id(text)
