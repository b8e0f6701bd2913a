"""The settings of an app: keyword arguments first, then TENURE_* variables, then defaults."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final, cast

from msgspec import Struct

from tenure.core.durations import Duration, seconds
from tenure.core.jobs.overdue_queues import (
    QUEUE_EXPECTED,
    QueueAges,
    QueueExpected,
    parse_queue_expected,
)
from tenure.core.jobs.retention import (
    RETENTION_DEFAULT,
    Kept,
    RetentionOption,
    parse_retention,
    parse_retention_text,
)
from tenure.core.lease_policy import TTL_MAX, TTL_MIN
from tenure.core.leases import check_namespace
from tenure.core.sizes import size
from tenure.errors import ConfigError

__all__ = ["ISOLATE_AFTER", "URL_DEFAULT", "Settings", "WorkSettings", "usable_cores"]

URL_DEFAULT: Final = "sqlite:///tenure.db"
ISOLATE_AFTER: Final = 2

_KIB = 1024
# More digits than any setting has, and less than Python's limit for int().
_DIGITS_MAX = 20
# An empty child process takes about 30 MB.
_PROCESS_MEMORY_MIN = 64 * 10**6
_PROCESS_WORKERS_MAX = 1000
_LONG_JOB_MIN = 1.0
# On a busy machine Python alone takes longer than that to start.
_PROCESS_START_MIN = 1.0


class Settings(Struct, frozen=True, kw_only=True):
    """The checked settings of an app."""

    replica_ttl: float
    """How long the jobs of a dead worker stay with it; a living one beats three times as often."""
    loss_budget: int
    """How often a job may be lost with its worker and still run again."""
    isolate_after: int
    """After this many losses a job runs alone, because it may be killing its workers."""
    retention: Kept
    """How long a finished job is kept, unless its task says otherwise."""
    payload_limit: int
    result_limit: int
    """The most bytes of a job's arguments, and of its result or a checkpoint."""
    grace: float
    """How long a worker that is asked to stop lets running jobs finish."""
    long_job: float
    """How long a job without a time-out may run before it is reported."""
    queue_expected: QueueAges
    """How long the oldest due job of a queue may wait before the queue is reported."""
    process_memory: int | None
    """The most bytes of memory of a child process that runs a job; None: no limit."""
    process_workers: int
    """The most child processes that run jobs, in each worker."""
    process_start: float
    """How long a child process may take to start and to import a task. Longer is an error."""
    namespace: str
    imports: tuple[str, ...]
    """Modules that declare tasks; a worker imports them before it starts."""

    @classmethod
    def read(cls, options: Mapping[str, object], environ: Mapping[str, str]) -> Settings:
        """Return the settings from keyword arguments (None: left out) and the environment."""
        source = _Source(options, environ)
        return cls(
            replica_ttl=source.duration("replica_ttl", 10, minimum=TTL_MIN),
            loss_budget=source.number("loss_budget", 3, minimum=0, maximum=1000),
            isolate_after=source.number("isolate_after", ISOLATE_AFTER, minimum=1, maximum=1000),
            retention=source.retention("retention"),
            payload_limit=source.number("payload_limit", 256 * _KIB, minimum=_KIB),
            result_limit=source.number("result_limit", 1024 * _KIB, minimum=_KIB),
            grace=source.duration("grace", 25),
            long_job=source.duration("long_job", "1h", minimum=_LONG_JOB_MIN),
            queue_expected=source.queue_ages("queue_expected"),
            process_memory=source.size("process_memory", minimum=_PROCESS_MEMORY_MIN),
            process_workers=source.number(
                "process_workers", usable_cores(), minimum=1, maximum=_PROCESS_WORKERS_MAX
            ),
            process_start=source.duration("process_start", 30, minimum=_PROCESS_START_MIN),
            namespace=check_namespace(source.text("namespace", "tenure")),
            imports=source.names("imports"),
        )


class WorkSettings(Settings, frozen=True, kw_only=True):
    """The settings of a worker whose tasks run in child processes."""

    start_allowance: float
    """How many seconds after its claim an attempt may begin."""


def usable_cores() -> int:
    """Return how many cores this process may use. Containers and `taskset` may limit them."""
    if hasattr(os, "process_cpu_count"):  # Python 3.13 and later
        return int(os.process_cpu_count() or 1)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Source:
    """Looks up settings. Error messages name the argument or variable of a wrong one."""

    def __init__(self, options: Mapping[str, object], environ: Mapping[str, str]) -> None:
        self._options = options
        self._environ = environ

    def _find(self, name: str, default: object) -> tuple[object, str]:
        if (value := self._options.get(name)) is not None:
            return value, name
        variable = f"TENURE_{name.upper()}"
        if text := self._environ.get(variable):
            return text, variable
        return default, name

    def duration(self, name: str, default: Duration, minimum: float = 0.0) -> float:
        value, what = self._find(name, default)
        if isinstance(value, str) and _is_number(value):
            value = float(value)
        # `seconds` raises the error for any other type.
        return seconds(cast("Duration", value), what, minimum=minimum, maximum=TTL_MAX)

    def retention(self, name: str) -> Kept:
        value, what = self._find(name, None)
        if isinstance(value, str):
            value = parse_retention_text(value, what)
        return parse_retention(cast("RetentionOption | None", value), RETENTION_DEFAULT, what)

    def queue_ages(self, name: str) -> QueueAges:
        value, what = self._find(name, QUEUE_EXPECTED)
        # `seconds` raises the error for any other type.
        return parse_queue_expected(cast("QueueExpected", value), what)

    def number(self, name: str, default: int, minimum: int, maximum: int = 2**30) -> int:
        value, what = self._find(name, default)
        if isinstance(value, str) and value.isdecimal() and len(value) <= _DIGITS_MAX:
            value = int(value)
        if type(value) is int and minimum <= value <= maximum:  # True is an int to Python
            return value
        msg = f"{what} must be a whole number from {minimum:,} to {maximum:,}, not {value!r}."
        raise ConfigError(msg)

    def size(self, name: str, minimum: int) -> int | None:
        value, what = self._find(name, None)
        return None if value is None else size(value, what, minimum=minimum)

    def text(self, name: str, default: str) -> object:
        return self._find(name, default)[0]

    def names(self, name: str) -> tuple[str, ...]:
        value, what = self._find(name, ())
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",") if part.strip()]
        if not isinstance(value, Sequence) or not all(isinstance(module, str) for module in value):
            msg = f"{what} must be a list of module names, not {value!r}."
            raise ConfigError(msg)
        return tuple(value)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
