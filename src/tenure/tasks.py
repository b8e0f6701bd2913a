"""Tasks: functions that jobs run, and how to ask for such a job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import UTC, datetime, timedelta
from inspect import ismethod
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

from msgspec import Struct
from msgspec.structs import replace

from tenure.core.durations import Duration, seconds
from tenure.core.model import check_name
from tenure.core.policy import TTL_MAX, Backoff, kept_for
from tenure.core.records import PRIORITIES, NewJob
from tenure.core.records import Unique as UniqueKey
from tenure.core.settings import Settings
from tenure.core.signature import Signature
from tenure.errors import ConfigError, TooLarge
from tenure.jobs import Job, Request
from tenure.locks import check_function, is_async
from tenure.runtime.attempt import EXECUTORS, Executor, Handler

__all__ = ["Options", "Task", "TaskDecorator", "Unique", "make_handler"]

P = ParamSpec("P")
R = TypeVar("R")

_TAGS_MAX = 10
_LAST = datetime(9999, 12, 31, tzinfo=UTC)


class Unique:
    """A key that at most one job of a task has at a time.

    Args:
        key: any text of up to 200 characters.
        keep: how long the key stays taken, counted from the enqueue, if the job is done earlier.
            By default it is free as soon as the job has finished.
    """

    def __init__(self, key: str, *, keep: Duration = 0) -> None:
        self.key = check_name(key, "unique key")
        self.keep = seconds(keep, "keep", maximum=TTL_MAX)


class Options(Struct, frozen=True, kw_only=True):
    """What a job of a task is to be, beside its arguments."""

    queue: str = "default"
    priority: int = 5
    timeout: float | None = None
    retention: float | None = None
    delay: float = 0.0
    at: int | None = None
    unique: Unique | None = None
    tags: tuple[str, ...] = ()

    def changed(
        self,
        *,
        queue: str | None = None,
        priority: int | None = None,
        timeout: Duration | None = None,
        retention: Duration | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        unique: str | Unique | None = None,
        tags: Iterable[str] | None = None,
    ) -> Options:
        """Return these options with what is given instead; raise ConfigError for what is wrong."""
        if delay is not None and at is not None:
            msg = "give either delay= or at=, not both."
            raise ConfigError(msg)
        changes: dict[str, Any] = {}
        if queue is not None:
            changes["queue"] = _queue(queue)
        if priority is not None:
            changes["priority"] = _priority(priority)
        if timeout is not None:
            changes["timeout"] = seconds(timeout, "timeout", minimum=0.001, maximum=TTL_MAX)
        if retention is not None:
            changes["retention"] = kept_for(seconds(retention, "retention", maximum=TTL_MAX))
        if delay is not None:
            changes |= {"delay": seconds(delay, "delay", maximum=TTL_MAX), "at": None}
        if at is not None:
            changes |= {"at": _instant(at), "delay": 0.0}
        if unique is not None:
            changes["unique"] = unique if isinstance(unique, Unique) else Unique(unique)
        if tags is not None:
            changes["tags"] = _tags(tags)
        return replace(self, **changes)


class TaskHome(Protocol):
    """What a task needs of its app."""

    @property
    def settings(self) -> Settings: ...
    async def enqueue(self, request: Request[R], *, within: object = None) -> Job[R]: ...


class Task(Generic[P, R]):
    """A registered function. Calling it runs it here and now; `enqueue` makes a job of it."""

    def __init__(
        self, home: TaskHome, handler: Handler, options: Options, within: object = None
    ) -> None:
        self._home = home
        self._handler = handler
        self._options = options
        self._within = within
        self.__doc__ = handler.function.__doc__
        self.__name__ = getattr(handler.function, "__name__", handler.name)

    def __repr__(self) -> str:
        return f"<Task {self.name!r} on queue {self._options.queue!r}>"

    @property
    def name(self) -> str:
        return self._handler.name

    @property
    def options(self) -> Options:
        return self._options

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        return self._handler.function(*args, **kwargs)

    def using(
        self,
        *,
        delay: Duration | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        queue: str | None = None,
        unique: str | Unique | None = None,
        tags: Iterable[str] | None = None,
        timeout: Duration | None = None,
        retention: Duration | None = None,
    ) -> Task[P, R]:
        """Return the same task with other options.

        Args:
            delay: how long the job waits before it may start.
            at: when it may start instead; a datetime with a time zone.
            priority: 0 to 9; 0 is served first.
            queue: which workers see it.
            unique: a key; while a job of this task has it, enqueueing again gives that job.
            tags: words to find the job by; up to 10.
            timeout: the longest one attempt may take.
            retention: how long the job is kept after it has finished, a minute at least.
        """
        options = self._options.changed(
            delay=delay,
            at=at,
            priority=priority,
            queue=queue,
            unique=unique,
            tags=tags,
            timeout=timeout,
            retention=retention,
        )
        return Task(self._home, self._handler, options, self._within)

    def bind(self, connection: object) -> Task[P, R]:
        """Return the same task whose `enqueue` takes part in your own transaction.

            async with connection.transaction():
                await connection.execute("INSERT INTO orders ...")
                await send_mail.bind(connection).enqueue(7)

        The job is there if and when you commit; until then nobody sees it. The connection leads
        to the store's own SQL database: one of asyncpg, psycopg, sqlite3, or a connection or
        session of SQLAlchemy. `enqueue` raises ConfigError if this cannot work.
        """
        if connection is None:
            msg = "bind() needs a connection of yours, not None; without bind() nothing is bound."
            raise ConfigError(msg)
        return Task(self._home, self._handler, self._options, connection)

    def request(self, *args: P.args, **kwargs: P.kwargs) -> Request[R]:
        """Check and write down the arguments, for `app.enqueue_many`.

        Raises ArgumentsError if they do not fit the signature, TooLarge if there is too much.
        """
        payload = self._handler.signature.encode_arguments(args, kwargs)
        unique = self._options.unique
        return Request(
            self.new_job(payload, self._unique_key(args, kwargs)),
            unique.key if unique is not None else "",
        )

    def new_job(self, payload: bytes, unique: UniqueKey | None) -> NewJob:
        """Return a job with arguments that are written down already."""
        settings, options = self._home.settings, self._options
        if len(payload) > settings.payload_limit:
            what = f"the arguments of {self.name!r}"
            raise TooLarge(what, len(payload), settings.payload_limit, "payload_limit")
        return NewJob(
            id="",
            task=self.name,
            queue=options.queue,
            priority=options.priority,
            payload=payload,
            tags=options.tags,
            delay=options.delay,
            at=options.at,
            timeout=options.timeout,
            retention=settings.retention if options.retention is None else options.retention,
            unique=unique,
        )

    def read(self, payload: bytes) -> dict[str, Any]:
        """Return arguments that were written down, by the names of the parameters.

        Raises ArgumentsError if they do not fit the signature. None of them may be positional.
        """
        return self._handler.signature.decode_arguments(payload, by_name=False)[1]

    def read_result(self, result: bytes) -> R:
        """Return a result that was written down. Raises ValueError if it is something else."""
        value: R = self._handler.signature.decode_result(result)
        return value

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Store a job that runs this with these arguments; once this returns it is not lost.

        Raises:
            ArgumentsError: the arguments do not fit the signature.
            TooLarge: they take more than `payload_limit` bytes.
            UniqueMismatch: its unique key belongs to a job with other arguments.
            StoreUnavailable: the store does not answer; the job may or may not be there.
            StoreFull: the store has no memory or disk left; the job is not there.
        """
        return await self._home.enqueue(self.request(*args, **kwargs), within=self._within)

    def _unique_key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> UniqueKey | None:
        unique = self._options.unique
        if unique is None:
            return None
        # The length keeps task "a" with key "b:c" apart from task "a:b" with key "c".
        key = f"{len(self.name)}:{self.name}:{unique.key}"
        digest = self._handler.signature.digest(args, kwargs)
        return UniqueKey(key=key, digest=digest, keep=unique.keep)


class TaskDecorator(Protocol):
    """What `app.task(...)` returns."""

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Task[P, R]: ...


def make_handler(
    fn: Callable[..., Any],
    name: str | None,
    retry: Backoff | None,
    executor: Executor = "auto",
) -> Handler:
    """Return what a worker needs to run `fn`; raise ConfigError if it cannot be a task."""
    check_function(fn)
    name = check_name(getattr(fn, "__name__", None) if name is None else name, "task name")
    if name == "<lambda>":
        msg = "a lambda has no name that stays the same; give name=."
        raise ConfigError(msg)
    if type(retry) not in (Backoff, type(None)):
        msg = f"retry must be a Backoff, or None for a single try, not {retry!r}."
        raise ConfigError(msg)
    _check_executor(executor, fn, name)
    return Handler(
        name=name,
        function=fn,
        is_async=is_async(fn),
        signature=_signature(fn, name),
        retry=Backoff(max_attempts=1) if retry is None else retry,
        executor=executor,
    )


def _check_executor(executor: object, fn: Callable[..., Any], name: str) -> None:
    """Raise ConfigError for what cannot run there; a worker looks once more before it starts."""
    if executor not in EXECUTORS:
        msg = f"executor of task {name!r} must be 'auto', 'thread' or 'process', not {executor!r}."
        raise ConfigError(msg)
    if executor != "auto" and is_async(fn):
        msg = (
            f"task {name!r} is an async function, which runs on the worker's event loop; "
            f"executor={executor!r} is for plain ones. Declare it with 'def', or leave that out."
        )
        raise ConfigError(msg)
    qualname = getattr(fn, "__qualname__", "<nothing>")
    if executor == "process" and ("<" in qualname or ismethod(fn)):
        msg = (
            f"task {name!r} has executor='process': a child process imports it by its name, so it "
            f"must be a function at the top of a module, not {fn!r}."
        )
        raise ConfigError(msg)


def _signature(fn: Callable[..., Any], name: str) -> Signature:
    try:
        return Signature(fn, name)
    except ConfigError:
        raise
    except (TypeError, ValueError) as error:
        msg = f"a task must be a function or a method with a signature, not {fn!r}."
        raise ConfigError(msg) from error


def _queue(name: object) -> str:
    queue = check_name(name, "queue")
    if queue.startswith("@"):
        msg = f"queue {queue!r}: names that begin with '@' are reserved."
        raise ConfigError(msg)
    if "," in queue:
        msg = f"queue {queue!r}: a comma separates queues on the command line; use another sign."
        raise ConfigError(msg)
    return queue


def _priority(priority: object) -> int:
    if type(priority) is not int or priority not in PRIORITIES:
        msg = f"priority must be a whole number from 0 (first) to 9, not {priority!r}."
        raise ConfigError(msg)
    return priority


def _tags(tags: Iterable[str]) -> tuple[str, ...]:
    if isinstance(tags, str):
        msg = f"tags must be a list of words, not the text {tags!r}."
        raise ConfigError(msg)
    found = tuple(dict.fromkeys(check_name(tag, "tag") for tag in tags))
    if len(found) > _TAGS_MAX:
        msg = f"a job has at most {_TAGS_MAX} tags, not {len(found)}."
        raise ConfigError(msg)
    return found


def _instant(at: object) -> int:
    if not isinstance(at, datetime):
        msg = f"at must be a datetime, not {at!r}."
        raise ConfigError(msg)
    if at.utcoffset() is None:
        msg = (
            f"at={at.isoformat()} has no time zone, so that it means another instant on every "
            "machine. Use datetime.now(UTC) + ..., or give it a tzinfo."
        )
        raise ConfigError(msg)
    if at > _LAST:
        msg = f"at={at.isoformat()} is too far away; the calendar ends with {_LAST.date()}."
        raise ConfigError(msg)
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
