import pytest

from tenure import errors
from tenure.errors import (
    AcquireTimeout,
    ArgumentsError,
    AttemptOver,
    ConfigError,
    JobCancelled,
    JobFailed,
    JobNotFound,
    JobStateError,
    JobUnreadable,
    LeaseLost,
    LimitMismatch,
    OnceFailed,
    ProcessDied,
    RequestRefused,
    ResultUnavailable,
    ServerUnreachable,
    StoreError,
    StoreFull,
    StoreUnavailable,
    TenureError,
    TimerBusy,
    TimerNotFound,
    TooLarge,
    UniqueBusy,
    UniqueMismatch,
    UnusableAnswer,
    WouldDeadlock,
)

EXAMPLES = [
    ConfigError("ttl must be at least 1 s."),
    StoreError("refused"),
    StoreUnavailable("gone"),
    AcquireTimeout("invoice:42", 5),
    LeaseLost("invoice:42", 7, "it was not renewed in time"),
    WouldDeadlock("invoice:42"),
    LimitMismatch("gpu", 5, 3),
    OnceFailed("backfill", 2, "disk full"),
    ArgumentsError("send_mail", "missing a required argument: 'user_id'"),
    TooLarge("the result", 2_000_000, 1_048_576, "result_limit"),
    UniqueMismatch("welcome:7", "0192"),
    JobNotFound("0192"),
    JobStateError("0192", "has not finished"),
    JobFailed("0192", "error", "ValueError: no"),
    JobCancelled("0192", "not needed"),
    ProcessDied("its process ended with exit code 3", 3),
    AttemptOver("0192", 7),
    TimerNotFound("sync_orders"),
    TimerBusy("sync_orders", "it has as many unfinished runs as it may (limit)"),
    RequestRefused("POST /a", 422, {"title": "No", "detail": "because", "errors": ["x"]}, {}),
    ServerUnreachable("POST /a", "connection refused"),
    UnusableAnswer("POST /a", "it points to another host"),
    StoreFull("no memory is left"),
    UniqueBusy("welcome:7"),
    ResultUnavailable("0192", "it takes 2,000 bytes, and result_limit allows 1,000"),
    JobUnreadable("0192"),
]


def test_there_is_an_example_of_every_exception():
    assert {type(error).__name__ for error in EXAMPLES} == set(errors.__all__) - {"TenureError"}


def test_the_tree_is_the_one_drawn_in_the_module():
    drawing = errors.__doc__ or ""
    for name in errors.__all__:
        assert name in drawing


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_everything_raised_on_purpose_has_one_root(error: Exception):
    assert isinstance(error, TenureError)


@pytest.mark.parametrize(
    ("kind", "parent"),
    [(ConfigError, ValueError), (AcquireTimeout, TimeoutError), (StoreUnavailable, StoreError)],
)
def test_exceptions_are_what_python_programmers_catch(kind: type, parent: type):
    assert issubclass(kind, parent)


@pytest.mark.parametrize(
    ("error", "facts"),
    [
        (EXAMPLES[3], {"name": "invoice:42", "wait": 5}),
        (EXAMPLES[4], {"name": "invoice:42", "fence": 7, "reason": "it was not renewed in time"}),
        (EXAMPLES[5], {"name": "invoice:42"}),
        (EXAMPLES[6], {"name": "gpu", "limit": 5, "other": 3}),
        (EXAMPLES[7], {"name": "backfill", "version": 2, "error": "disk full"}),
        (EXAMPLES[8], {"task": "send_mail"}),
        (EXAMPLES[9], {"setting": "result_limit"}),
        (EXAMPLES[10], {"key": "welcome:7", "job": "0192"}),
        (UniqueBusy("welcome:7"), {"key": "welcome:7"}),
        (EXAMPLES[11], {"job": "0192"}),
        (EXAMPLES[12], {"job": "0192"}),
        (EXAMPLES[13], {"job": "0192", "reason": "error", "error": "ValueError: no"}),
        (EXAMPLES[14], {"job": "0192", "reason": "not needed"}),
        (EXAMPLES[15], {"exit_code": 3}),
        (EXAMPLES[16], {"job": "0192", "fence": 7}),
        (EXAMPLES[19], {"status": 422, "title": "No", "detail": "because", "errors": ["x"]}),
        (EXAMPLES[20], {"request": "POST /a", "error": "connection refused"}),
        (EXAMPLES[-1], {"job": "0192"}),
        (EXAMPLES[21], {"request": "POST /a", "problem": "it points to another host"}),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_the_facts_are_attributes_and_in_the_message(error: Exception, facts: dict[str, object]):
    assert {name: getattr(error, name) for name in facts} == facts
    for value in facts.values():
        assert str(value) in str(error)
