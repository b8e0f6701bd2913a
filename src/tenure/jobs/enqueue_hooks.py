"""Hooks of an enqueue: what runs between `enqueue` and the store, and may set headers.

`app.on_enqueue` has functions called with each job, `app.around_enqueue` context managers entered
around each call. They run where `enqueue` was called: on the event loop, or in the calling thread
of `tenure.blocking`, whose thread-local state they may read. `Jobs` runs them for every job that it
stores, so runs of timers and jobs of schedules, which a tick inserts, do not pass here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from typing import Any, TypeAlias

from msgspec.structs import replace

from tenure.core.jobs.headers import check_headers
from tenure.core.jobs.options import read_options, with_headers
from tenure.core.jobs.records import NewJob
from tenure.errors import ConfigError

__all__ = [
    "AroundEnqueue",
    "EnqueueHooks",
    "OnEnqueue",
    "Outgoing",
    "OutgoingBatch",
    "OutgoingInThread",
]


class Outgoing:
    """A job that is about to be stored. Hooks may change its headers, and nothing else."""

    __slots__ = ("_new", "headers")

    def __init__(self, new: NewJob) -> None:
        self._new = new
        self.headers = dict(read_options(new.options).headers)
        """The headers of the job; a dict to be changed."""

    def __repr__(self) -> str:
        return f"<Outgoing job {self.id} of {self.task!r} on queue {self.queue!r}>"

    @property
    def id(self) -> str:
        """The id of the job, unless its unique key belongs to a job that exists already."""
        return self._new.id

    @property
    def task(self) -> str:
        return self._new.task

    @property
    def queue(self) -> str:
        return self._new.queue

    def stamped(self) -> NewJob:
        """Return the job to insert, with its headers. Raises ConfigError if none can keep them."""
        headers = check_headers(self.headers)
        if headers == read_options(self._new.options).headers:
            return self._new
        return replace(self._new, options=with_headers(self._new.options, headers))


class OutgoingBatch:
    """The jobs that one call of `enqueue` or `enqueue_many` is about to store."""

    __slots__ = ("jobs",)

    def __init__(self, news: Iterable[NewJob]) -> None:
        self.jobs: tuple[Outgoing, ...] = tuple(map(Outgoing, news))

    def __repr__(self) -> str:
        return f"<OutgoingBatch of {len(self.jobs)}>"

    def stamped(self) -> list[NewJob]:
        """Return the jobs to insert, with their headers."""
        return [job.stamped() for job in self.jobs]


OnEnqueue: TypeAlias = Callable[[Outgoing], object]
"""A hook that gets each job before it is stored, and raises to refuse it."""

Manager: TypeAlias = AbstractAsyncContextManager[Any] | AbstractContextManager[Any]
AroundEnqueue: TypeAlias = Callable[[OutgoingBatch], Manager]
"""Middleware: returns the context manager that surrounds one call."""


class EnqueueHooks:
    """The hooks of an app. Hooks that are declared later count from then on."""

    def __init__(
        self, hooks: Sequence[OnEnqueue] = (), around: Sequence[AroundEnqueue] = ()
    ) -> None:
        self._hooks = hooks
        self._around = around

    def __bool__(self) -> bool:
        return bool(self._hooks or self._around)

    def around(self, news: list[NewJob]) -> AbstractAsyncContextManager[list[NewJob]]:
        """Surround the storing of jobs on the event loop. The block stores what this yields."""
        if not self:
            return nullcontext(news)
        return self._surrounded(news)

    @asynccontextmanager
    async def _surrounded(self, news: list[NewJob]) -> AsyncIterator[list[NewJob]]:
        batch = self._offered(news)
        async with _entered(batch, (make(batch) for make in self._around)) as stamped:
            yield stamped

    @contextmanager
    def around_in_thread(self, news: list[NewJob]) -> Iterator[OutgoingInThread]:
        """Surround the storing of jobs in a thread: enter plain context managers, here."""
        batch, on_loop = self._offered(news), list[AbstractAsyncContextManager[Any]]()
        failure: BaseException | None = None
        with ExitStack() as stack:
            try:
                for make in self._around:
                    manager = make(batch)
                    if isinstance(manager, AbstractAsyncContextManager):
                        on_loop.append(manager)
                    else:
                        stack.enter_context(manager)
                yield OutgoingInThread(batch, on_loop)
            except BaseException as error:
                failure = error
                raise
        if failure is not None:
            raise failure  # see `_entered`

    def _offered(self, news: list[NewJob]) -> OutgoingBatch:
        """Call the hooks with each job, in the order of their declaration."""
        batch = OutgoingBatch(news)
        for job in batch.jobs:
            for hook in self._hooks:
                hook(job)
        return batch


class OutgoingInThread:
    """Jobs that a thread is about to store. Their plain context managers are entered."""

    def __init__(
        self, batch: OutgoingBatch, on_loop: list[AbstractAsyncContextManager[Any]]
    ) -> None:
        self._batch = batch
        self._on_loop = on_loop

    def around(self) -> AbstractAsyncContextManager[list[NewJob]]:
        """Surround the storing on the event loop: enter the async context managers, inside."""
        return _entered(self._batch, self._on_loop)

    def stamped(self) -> list[NewJob]:
        """Return the jobs to insert in this thread. Raises ConfigError with async managers."""
        if self._on_loop:
            msg = (
                "within= stores jobs on a synchronous connection, in this thread, and an async "
                "context manager of app.around_enqueue cannot surround that. Declare a plain one, "
                "with @contextmanager."
            )
            raise ConfigError(msg)
        return self._batch.stamped()


@asynccontextmanager
async def _entered(
    batch: OutgoingBatch, managers: Iterable[Manager]
) -> AsyncIterator[list[NewJob]]:
    failure: BaseException | None = None
    async with AsyncExitStack() as stack:
        try:
            for manager in managers:
                if isinstance(manager, AbstractAsyncContextManager):
                    await stack.enter_async_context(manager)
                else:
                    stack.enter_context(manager)
            yield batch.stamped()
        except BaseException as error:
            failure = error
            raise
    if failure is not None:
        # A context manager has swallowed the error. The caller must still learn that there is no
        # job.
        raise failure
