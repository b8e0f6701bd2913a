import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.core.jobs import records
from tenure.core.jobs.history import HISTORY_MAX, AttemptLine, read_history, write_history
from tenure.core.jobs.records import (
    BATCH_MAX,
    COUNT_MAX,
    PRIORITIES,
    Claimed,
    JobRecord,
    NewJob,
    Unique,
)
from tenure.core.jobs.replicas import CANCELS_MAX
from tests.rig.endings import settlement

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
INSTANTS = st.integers(min_value=0, max_value=2**53)
ATTEMPTS = st.builds(
    AttemptLine,
    st.integers(min_value=1, max_value=10**6),
    TEXTS,
    INSTANTS,
    INSTANTS,
    st.sampled_from(["succeeded", "failed", "retry", "handed back", "cancelled", "lost"]),
    TEXTS,
)

# The same examples in every run, and no clock beside the one that is calculated with.
steady = settings(derandomize=True, database=None, deadline=None)


def test_a_line_of_history_has_the_form_that_stores_write_themselves():
    line = write_history([AttemptLine(1, "ann", 17, 23, "lost")])
    assert line == b'{"attempt":1,"replica":"ann","started":17,"ended":23,"outcome":"lost"}\n'


def test_an_error_is_a_part_of_its_line():
    line = write_history([AttemptLine(2, "ann", 17, 23, "retry", "it's late")])
    assert line.endswith(b'"outcome":"retry","error":"it\'s late"}\n')


@steady
@given(st.lists(ATTEMPTS, max_size=HISTORY_MAX))
def test_a_history_can_be_read_again(attempts: list[AttemptLine]):
    assert read_history(write_history(attempts)) == attempts


@steady
@given(st.lists(ATTEMPTS, min_size=1, max_size=HISTORY_MAX))
def test_every_attempt_is_one_line(attempts: list[AttemptLine]):
    """Whatever the error says: stores join lines to each other without reading them."""
    lines = write_history(attempts)
    assert lines.count(b"\n") == len(attempts)
    joined = lines + write_history(attempts[:1])
    assert read_history(joined) == [*attempts, attempts[0]]


def test_the_last_attempts_are_remembered():
    attempts = [AttemptLine(number, "ann", 0, 1, "retry") for number in range(1, 26)]
    assert read_history(write_history(attempts)) == attempts[-HISTORY_MAX:]


def test_no_history_is_no_attempt():
    assert write_history([]) == b""
    assert read_history(b"") == []


@pytest.mark.parametrize("text", ["\u2028", "\x85", "\r", "\x0b\x0c", "a\nb", "\x1c\x1d\x1e"])
def test_a_line_break_inside_an_error_breaks_no_line(text: str):
    attempts = [AttemptLine(1, "ann", 0, 1, "failed", text), AttemptLine(2, text, 0, 1, "lost")]
    assert read_history(write_history(attempts)) == attempts


def test_unset_fields_have_a_harmless_default():
    job = NewJob(id="1", task="work")
    assert job.queue == "default"
    assert job.priority in PRIORITIES
    assert (job.delay, job.at, job.timeout, job.retention, job.unique) == (
        0.0,
        None,
        None,
        0.0,
        None,
    )
    assert Unique(key="key") == Unique(key="key", digest="", keep=0.0)
    assert settlement(id="1", fence=2, outcome="retry").history is None
    assert Claimed([]) == Claimed([], None)


def test_records_do_not_change_under_the_hands_of_their_readers():
    for name in records.__all__:
        kind = getattr(records, name)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            assert kind.__struct_config__.frozen, name


def test_a_record_holds_all_that_was_inserted_and_must_be_shown():
    kept_apart = {"delay", "at", "unique"}
    assert set(NewJob.__struct_fields__) - kept_apart <= set(JobRecord.__struct_fields__)


def test_bounds_fit_each_other():
    assert 0 < CANCELS_MAX <= BATCH_MAX < COUNT_MAX
    assert list(PRIORITIES) == list(range(10))


@pytest.mark.parametrize(
    ("created", "started", "due", "now", "is_due"),
    [
        (10, 0, 10, 10, True),
        (10, 0, 15, 14, False),  # it has a delay
        (10, 0, 15, 15, True),
        (10, 0, 10, 5, True),  # the clock was set back behind its creation
        (10, 0, 15, 5, False),
        (10, 20, 12, 5, True),  # it came back without a delay, and the clock was set back
        (10, 20, 25, 22, False),  # it is tried again after a pause
    ],
)
def test_a_job_that_was_due_stays_due(created: int, started: int, due: int, now: int, is_due: bool):
    job = JobRecord(
        id="j",
        task="t",
        queue="q",
        priority=5,
        state="waiting",
        payload=b"",
        created=created,
        started=started,
        due=due,
    )
    assert job.is_due(now) == is_due
