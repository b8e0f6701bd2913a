"""Tasks: functions that jobs run, and the requests for such jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from datetime import datetime
from typing import Any, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from msgspec import UNSET, UnsetType

from tenure.core.durations import Duration
from tenure.core.jobs.options import write_options
from tenure.core.jobs.records import JobDraft
from tenure.core.jobs.records import Unique as UniqueKey
from tenure.core.jobs.retention import RetentionOption, parse_retention
from tenure.core.jobs.retry_policy import RetryOption, write_backoff
from tenure.core.settings import Settings
from tenure.errors import ConfigError, TooLarge
from tenure.jobs import Job, JobRequest
from tenure.jobs.options import Options, Unique
from tenure.runtime.attempts.handler import Handler

__all__ = ["AsyncTask", "PlainTask", "StoredTask", "Task", "TaskDecorator", "make_task"]

P = ParamSpec("P")
R = TypeVar("R")


class TaskHome(Protocol):
    """What a task needs of its app."""

    @property
    def settings(self) -> Settings: ...
    async def enqueue(self, request: JobRequest[R], *, within: object = None) -> Job[R]: ...


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
        self.__qualname__ = getattr(handler.function, "__qualname__", handler.name)
        self.__module__ = getattr(handler.function, "__module__", "")

    def __repr__(self) -> str:
        return f"<Task {self.name!r} on queue {self._options.queue!r}>"

    @property
    def name(self) -> str:
        return self._handler.name

    @property
    def options(self) -> Options:
        return self._options

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function, here and now; an async one is to be awaited."""
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
        headers: Mapping[str, str] | None = None,
        timeout: Duration | None = None,
        retention: RetentionOption | None = None,
        retry: RetryOption | UnsetType = UNSET,
    ) -> Self:
        """Return the same task with other options.

        Args:
            delay: how long the job waits before it may start.
            at: when it may start instead; a datetime with a time zone.
            priority: 0 to 9; 0 is served first.
            queue: which workers see it.
            unique: a key; while a job of this task has it, enqueueing again gives that job. Its end
                frees the key, unless `Unique(key, keep=...)` keeps it for longer.
            tags: words to find the job by; up to 10.
            headers: texts by name that travel with the job beside its arguments, such as a request
                id or a tenant; up to 20, of 4 KiB together.
            timeout: the longest one attempt may take.
            retention: how long the job is kept after it has finished, or a `Retention`; a minute at
                least.
            retry: how often it is tried again, or a `Backoff`; 0 or None: never.
        """
        options = self._options.changed(
            delay=delay,
            at=at,
            priority=priority,
            queue=queue,
            unique=unique,
            tags=tags,
            headers=headers,
            timeout=timeout,
            retention=retention,
            retry=retry,
        )
        return type(self)(self._home, self._handler, options, self._within)

    def within(self, connection: object) -> Self:
        """Return the same task whose `enqueue` takes part in your own transaction.

            async with connection.transaction():
                await connection.execute("INSERT INTO orders ...")
                await send_mail.within(connection).enqueue(7)

        The job is there if and when you commit; until then no worker sees it. The connection leads
        to the store's own SQL database: one of asyncpg, psycopg, sqlite3, or a connection or
        session of SQLAlchemy. `enqueue` raises ConfigError if this cannot work.
        """
        if connection is None:
            msg = "within() needs your connection, not None; without one call enqueue() alone."
            raise ConfigError(msg)
        return type(self)(self._home, self._handler, self._options, connection)

    def request(self, *args: P.args, **kwargs: P.kwargs) -> JobRequest[R]:
        """Check and write down the arguments, for `app.enqueue_many`.

        Raises ArgumentsError if they do not fit the signature, TooLarge if there is too much.
        """
        payload = self._handler.signature.encode_arguments(args, kwargs)
        unique = self._options.unique
        draft = self._draft(payload, self._unique_key(args, kwargs), self._options.headers)
        return JobRequest(draft, unique.key if unique is not None else "")

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Store a job that runs this with these arguments; once this returns it is not lost.

        Raises:
            ArgumentsError: the arguments do not fit the signature.
            TooLarge: they take more than `payload_limit` bytes.
            UniqueMismatch: its unique key belongs to a job with other arguments.
            UniqueBusy: an open transaction holds its unique key for 10 s; the job is not there.
            StoreUnavailable: a try got no answer; the job may or may not be there.
            StoreFull: the store has no memory or disk left; the job is not there.
        """
        return await self._home.enqueue(self.request(*args, **kwargs), within=self._within)

    def _draft(
        self, payload: bytes, unique: UniqueKey | None, headers: Mapping[str, str]
    ) -> JobDraft:
        """Return a job with arguments that are encoded already."""
        settings, options = self._home.settings, self._options
        if len(payload) > settings.payload_limit:
            what = f"the arguments of {self.name!r}"
            raise TooLarge(what, len(payload), settings.payload_limit, "payload_limit")
        kept = parse_retention(options.retention, settings.retention)
        return JobDraft(
            task=self.name,
            queue=options.queue,
            priority=options.priority,
            payload=payload,
            tags=options.tags,
            delay=options.delay,
            at=options.at,
            timeout=options.timeout,
            retention=kept.succeeded,
            retention_failed=kept.failed,
            options=write_options(
                retry="" if options.retry is None else write_backoff(options.retry),
                headers=headers,
            ),
            unique=unique,
        )

    def _unique_key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> UniqueKey | None:
        unique = self._options.unique
        if unique is None:
            return None
        # The length keeps task "a" with key "b:c" apart from task "a:b" with key "c".
        key = f"{len(self.name)}:{self.name}:{unique.key}"
        digest = self._handler.signature.digest(args, kwargs)
        return UniqueKey(key=key, digest=digest, keep=unique.keep)


class AsyncTask(Task[P, R]):
    """A task whose function is async."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call the function, here and now, to be awaited."""
        called: Coroutine[Any, Any, R] = super().__call__(*args, **kwargs)
        return called


class PlainTask(Task[P, R]):
    """A task whose function is plain."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, here and now."""
        returned: R = super().__call__(*args, **kwargs)
        return returned


def make_task(home: TaskHome, handler: Handler, options: Options) -> Task[Any, Any]:
    """Return the task of a function."""
    kind = AsyncTask if handler.is_async else PlainTask
    return kind(home, handler, options)


class StoredTask:
    """A task by what is stored of its jobs: arguments and results as bytes. For HTTP."""

    def __init__(self, task: Task[..., Any]) -> None:
        self._make = task._draft  # noqa: SLF001 - the other half of a task
        self._signature = task._handler.signature  # noqa: SLF001 - as above

    def draft(self, payload: bytes, headers: Mapping[str, str]) -> JobDraft:
        """Return a job with arguments that are bytes already. Raises TooLarge."""
        return self._make(payload, None, headers)

    def arguments(self, payload: bytes) -> dict[str, Any]:
        """Return arguments by the names of the parameters, none of which may be positional.

        Fields of models are found under the names that the models document, and no others. Raises
        ArgumentsError if they do not fit the signature.
        """
        return self._signature.decode_arguments(payload, by_name=False)[1]

    def result(self, result: bytes) -> Any:
        """Return a result by the return type. Raises ValueError if it is something else."""
        return self._signature.decode_result(result)


class TaskDecorator(Protocol):
    """What `app.task(...)` returns."""

    # The first that fits counts: what is awaitable is also some plain R.
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, fn: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, fn: Callable[P, Awaitable[R]], /
    ) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> PlainTask[P, R]: ...
