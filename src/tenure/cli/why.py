"""`tenure why`: one sentence and the next step about a job, a timer, a queue or a lock."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple, TypeAlias

import click
from rich.text import Text

from tenure.app import Tenure, engine_of
from tenure.app.why import surroundings
from tenure.cli.jobs.selection import whole_ids
from tenure.cli.target import Target, store_command
from tenure.cli.text import explanation, safe
from tenure.core.ids import is_job_id
from tenure.core.leases import check_name
from tenure.core.schedules.definition import TASK_PREFIX
from tenure.core.schedules.records import TIMERS_QUEUE
from tenure.core.why import Why
from tenure.errors import ConfigError, JobNotFound, JobUnreadable, TimerNotFound
from tenure.stores.contract import Store

__all__ = ["why"]

_Kind: TypeAlias = Literal["job", "timer", "queue", "lock"]
_KINDS: tuple[_Kind, ...] = ("job", "timer", "queue", "lock")

# An id, or at least so much of its end as `whole_ids` takes.
_ID = re.compile(r"[0-9a-f-]{8,36}")
_CLOSE = 0.7


class _Subject(NamedTuple):
    """A job, timer, queue or lock, and why it is as it is."""

    kind: _Kind
    name: str
    why: Why
    about: str = ""
    """What a person may not recognise it without: the task and state of a job."""


@click.command(
    epilog="""\b
Examples:
  tenure why b302099a8057                the last 8 characters of a job's id, or more
  tenure why sync_orders                 a timer
  tenure why mail                        a queue
  tenure why invoice:42                  a lock
  tenure why --lock mail                 if a queue has the same name
  tenure why mail --json | jq -r .code

Exit codes: 0 if it is explained, whatever the answer; 2 if nothing has this name, if several things
have it and no option says which is meant, or after an error."""
)
@click.argument("name", metavar="NAME_OR_ID")
@click.option("--job", "kind", flag_value="job", help="The id of a job, or the end of one.")
@click.option("--timer", "kind", flag_value="timer", help="The name of a timer or schedule.")
@click.option("--queue", "kind", flag_value="queue", help="The name of a queue.")
@click.option("--lock", "kind", flag_value="lock", help="The name of a lock or semaphore.")
@store_command
def why(target: Target, name: str, *, kind: _Kind | None) -> None:
    """Explain why a job, timer, queue or lock is as it is, and what to do.

    Without an option it looks at everything that can have this name or id.
    """
    check_name(name, "the name")
    target.announce()

    async def look(app: Tenure, store: Store) -> tuple[dict[str, Any], _Subject]:
        return target.about(store), await _chosen(app, store, name, kind)

    about, subject = target.run_app(look)
    target.screen.damaged.clear()  # the answer is about it, or it is about other records
    document = {"kind": subject.kind, "name": subject.name}
    answer = {"code": subject.why.code, "text": subject.why.text, "next": subject.why.next}
    head = Text.assemble(f"{subject.kind} ", (safe(subject.name), "bold"), subject.about)
    target.screen.answer({**about, **document, **answer}, head, *explanation(subject.why))


async def _chosen(app: Tenure, store: Store, name: str, kind: _Kind | None) -> _Subject:
    """Return what the name stands for. Raises ConfigError if that is nothing, or not clear."""
    look = _Look(app, store)
    if kind is not None:
        return await look.subject(kind, name)
    subjects = [subject async for subject in look.everything(name)]
    if len(subjects) > 1:
        kinds = [subject.kind for subject in subjects]
        msg = (
            f"{name!r} is the name of several things. Say which one is meant: "
            f"{', '.join(f'--{each}' for each in kinds)}."
        )
        raise ConfigError(msg)
    if not subjects:
        raise ConfigError(await look.nothing(name))
    return subjects[0]


class _Look:
    """Looks up what can have a name."""

    def __init__(self, app: Tenure, store: Store) -> None:
        self._app = app
        self._store = store
        self._no_job = ""

    async def subject(self, kind: _Kind, name: str) -> _Subject:
        """Return the thing of this kind and name. A queue or lock need not be in use."""
        match kind:
            case "job":
                [id_] = await whole_ids(self._store, [name])
                return await self._job(id_)
            case "timer":
                return _Subject("timer", name, await self._app.timer_handle(name).why())
            case "queue":
                return _Subject("queue", name, await self._app.why_queue(name))
            case "lock":
                return _Subject("lock", name, await self._app.why_lock(name))

    async def everything(self, name: str) -> AsyncIterator[_Subject]:
        """Yield all things that are there under this name."""
        if is_job_id(name) or _ID.fullmatch(name):
            try:
                yield await self.subject("job", name)
            except (JobNotFound, ConfigError) as error:
                self._no_job = str(error)
        with suppress(TimerNotFound):
            # The runs of a timer have the task "@name", as lists of jobs show it.
            yield await self.subject("timer", name.removeprefix(TASK_PREFIX))
        if await self._is_queue(name):
            yield await self.subject("queue", name)
        lock = await self.subject("lock", name)
        if lock.why.code != "free":
            yield lock

    async def _job(self, id_: str) -> _Subject:
        try:
            job = await self._app.job(id_)
        except JobUnreadable:
            jobs = engine_of(self._app).services().jobs
            return _Subject("job", id_, await jobs.why_unreadable(id_))
        return _Subject("job", id_, await job.why(), f"  {safe(job.task)}, {job.state}")

    async def _is_queue(self, name: str) -> bool:
        """Return whether a queue has jobs, also finished ones, or is served or paused."""
        around = await surroundings(engine_of(self._app))
        if name in around.queues or name == TIMERS_QUEUE:
            return True
        if any(name in (worker.serving.queues) for worker in around.fleet.alive if worker.serving):
            return True
        return bool((await self._store.jobs.find(queue=name, limit=1)).jobs)

    async def nothing(self, name: str) -> str:
        """Return that nothing has this name, with the names that are close to it."""
        if self._no_job:
            return f"{self._no_job} No timer, queue or lock has this name either."
        names = {
            "timer": [timer.name for timer in await self._app.timers()],
            "queue": [*(await surroundings(engine_of(self._app))).queues],
            "lock": [lease.key for lease in await self._app.locks()],
        }
        close = [
            f"the {kind} {match!r}"
            for kind, those in names.items()
            for match in get_close_matches(name, {*those}, n=1, cutoff=_CLOSE)
        ]
        meant = f" Did you mean {' or '.join(close)}?" if close else ""
        return (
            f"no job, timer, queue or lock is called {name!r}.{meant} For the end of an id, write "
            "at least 8 characters. A lock is listed only while it is held: use --lock."
        )
