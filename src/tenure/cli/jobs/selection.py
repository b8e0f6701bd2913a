"""Which jobs a command is about: whole ids, ends of ids, or all jobs that match filters."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import click

from tenure.cli.options import name
from tenure.core.jobs.records import BATCH_MAX, JobRecord
from tenure.core.jobs.states import STATES, JobState
from tenure.errors import ConfigError
from tenure.jobs import Job, Jobs
from tenure.stores.contract import Store

__all__ = [
    "PAGE",
    "Filter",
    "batches",
    "filter_options",
    "matching_jobs",
    "newest_jobs",
    "selection_options",
    "whole_ids",
]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

PAGE = 200
"""The most jobs to read from a store in one call."""

# Ids from the same moment begin alike, so commands accept the end of an id: 32 random bits. Of a
# million jobs, one in four thousand shares its end with another.
_END_LENGTH = 8
_END = re.compile(rf"[0-9a-f-]{{{_END_LENGTH},35}}")

# How many pages of a state are read to find jobs by what the store has no index for.
_PAGES = 5


async def whole_ids(store: Store, ids: Sequence[str]) -> list[str]:
    """Return the ids, with the whole id in place of the end of one.

    Searches the newest 1,000 jobs of each state for ends. Raises ConfigError for an end that
    matches no job or several jobs, or that is too short.
    """
    for id_ in ids:
        if len(id_) < _END_LENGTH:
            msg = f"{id_!r} is too short: give at least the last {_END_LENGTH} characters of an id."
            raise ConfigError(msg)
    ends = {id_ for id_ in ids if _END.fullmatch(id_)}
    if not ends:
        return [*ids]
    stored = await _stored_ids(store)
    matches = {end: {id_ for id_ in stored if id_.endswith(end)} for end in ends}
    return [_only_match(id_, matches[id_]) if id_ in ends else id_ for id_ in ids]


async def _stored_ids(store: Store) -> set[str]:
    ids = {record.id for state in STATES async for record in newest_jobs(store, state)}
    # Lists leave out unreadable jobs, but operators must be able to name them.
    ids |= {job.id for job in (await store.jobs.find(state="stranded")).stranded}
    return ids | {record.name for record in store.damage if record.kind == "job"}


async def newest_jobs(store: Store, state: JobState) -> AsyncIterator[JobRecord]:
    """Yield the newest 1,000 jobs of a state."""
    cursor = None
    for _ in range(_PAGES):
        page = await store.jobs.find(state=state, limit=PAGE, cursor=cursor)
        for record in page.jobs:
            yield record
        cursor = page.cursor
        if cursor is None:
            return


def _only_match(end: str, matches: set[str]) -> str:
    if len(matches) > 1:
        msg = f"several jobs end with {end!r}: {', '.join(sorted(matches))}. Write more of the id."
        raise ConfigError(msg)
    for id_ in matches:
        return id_
    msg = (
        f"no job ends with {end!r}, among the newest 1,000 of each state. Write the whole id of "
        "an older one."
    )
    raise ConfigError(msg)


def filter_options(command: F) -> F:
    """Let a command take --task, --queue and --tag."""
    for option in ("tag", "queue", "task"):
        preposition = "with" if option == "tag" else "of"
        words = f"Only jobs {preposition} this {option}."
        command = click.option(f"--{option}", callback=name, help=words)(command)
    return command


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Which jobs a command changes if it gets no ids, and whether it asks first."""

    state: JobState | None
    task: str | None
    queue: str | None
    tag: str | None
    error: str | None
    limit: int | None
    dry_run: bool
    yes: bool

    @property
    def is_empty(self) -> bool:
        values = (self.state, self.error, *self.stored.values())
        return all(value is None for value in values)

    @property
    def stored(self) -> Mapping[str, str | None]:
        """The filters that stores apply themselves."""
        return {"task": self.task, "queue": self.queue, "tag": self.tag}

    def matches(self, job: Job[Any]) -> bool:
        """Whether the error contains --error, which stores cannot search."""
        return self.error is None or self.error.lower() in (job.error or job.reason).lower()


def selection_options(*states: JobState, default: str) -> Callable[[Callable[..., None]], Any]:
    """Let a command take ids, or else filters for jobs in one of these states."""
    options = (
        click.argument("ids", metavar="[ID]...", nargs=-1),
        click.option(
            "--state", type=click.Choice(states), help=f"Only jobs in this state [{default}]."
        ),
        filter_options,
        click.option("--error", metavar="TEXT", help="Only jobs whose error contains this text."),
        click.option(
            "--limit", type=click.IntRange(min=1), help="Only this many jobs, the newest ones."
        ),
        click.option("--dry-run", is_flag=True, help="Change nothing; show how many jobs match."),
        click.option("--yes", is_flag=True, help="Do not ask for confirmation."),
    )

    def decorate(command: Callable[..., None]) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


async def matching_jobs(
    store: Store, criteria: Filter, states: Sequence[JobState], progress: Callable[[int], None]
) -> dict[str, str]:
    """Return the ids of all jobs that match, newest first within a state, and their tasks.

    Calls `progress` after each page with the number of jobs so far.
    """
    tasks: dict[str, str] = {}
    service = Jobs(store, {})
    for state in states:
        cursor = None
        while True:
            page = await service.page(**criteria.stored, state=state, limit=PAGE, cursor=cursor)
            for job in filter(criteria.matches, page):
                if len(tasks) == criteria.limit:
                    return tasks
                tasks[job.id] = job.task
            progress(len(tasks))
            cursor = page.cursor
            if cursor is None:
                break
    return tasks


def batches(items: Sequence[T]) -> Iterator[list[T]]:
    """Yield the items in batches as large as a call to a store may have."""
    rest = iter(items)
    while batch := [*islice(rest, BATCH_MAX)]:
        yield batch
