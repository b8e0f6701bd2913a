"""Which jobs a command is about: whole ids, the ends of ids, or all that fit a description."""

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
    "Choice",
    "choosable",
    "fitting",
    "narrowing",
    "newest",
    "slices",
    "whole_ids",
]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

PAGE = 200
"""The most jobs to ask a store for at once."""

# Ids of one moment begin alike, so it is the end that tells them apart. 32 random bits: of a
# million jobs, one in four thousand has a namesake.
_END_LENGTH = 8
_END = re.compile(rf"[0-9a-f-]{{{_END_LENGTH},35}}")

# How many jobs of a state are looked at where no store can look for what is wanted.
_PAGES = 5


async def whole_ids(store: Store, given: Sequence[str]) -> list[str]:
    """Return ids as they were given, but the whole id for the end of one.

    Ends are looked for among the newest 1,000 jobs of each state. Raises ConfigError for an end
    that no job there has, or several have, or that is too short to tell jobs apart.
    """
    for one in given:
        if len(one) < _END_LENGTH:
            msg = f"{one!r} is too short: give at least the last {_END_LENGTH} characters of an id."
            raise ConfigError(msg)
    ends = {one for one in given if _END.fullmatch(one)}
    if not ends:
        return [*given]
    known = await _known_ids(store)
    meant = {end: {id_ for id_ in known if id_.endswith(end)} for end in ends}
    return [_only(one, meant[one]) if one in ends else one for one in given]


async def _known_ids(store: Store) -> set[str]:
    known = {record.id for state in STATES async for record in newest(store, state)}
    # Lists leave out what cannot be read, but name it: an operator can mean that as well.
    known |= {job.id for job in (await store.jobs.find(state="stranded")).stranded}
    return known | {one.name for one in store.damage if one.kind == "job"}


async def newest(store: Store, state: JobState) -> AsyncIterator[JobRecord]:
    """Yield the newest 1,000 jobs of a state."""
    cursor = None
    for _ in range(_PAGES):
        page = await store.jobs.find(state=state, limit=PAGE, cursor=cursor)
        for record in page.jobs:
            yield record
        cursor = page.cursor
        if cursor is None:
            return


def _only(given: str, meant: set[str]) -> str:
    if len(meant) > 1:
        msg = f"several jobs end with {given!r}: {', '.join(sorted(meant))}. Write more of the id."
        raise ConfigError(msg)
    for id_ in meant:
        return id_
    msg = (
        f"no job ends with {given!r}, among the newest 1,000 of each state. Write the whole id of "
        "an older one."
    )
    raise ConfigError(msg)


def narrowing(command: F) -> F:
    """Let a command take --task, --queue and --tag."""
    for option in ("tag", "queue", "task"):
        preposition = "with" if option == "tag" else "of"
        words = f"Only jobs {preposition} this {option}."
        command = click.option(f"--{option}", callback=name, help=words)(command)
    return command


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What jobs must be like for a command to be about them, and whether to go ahead."""

    state: JobState | None
    task: str | None
    queue: str | None
    tag: str | None
    error: str | None
    limit: int | None
    dry_run: bool
    yes: bool

    @property
    def is_made(self) -> bool:
        return any(one is not None for one in (self.state, self.error, *self.wanted.values()))

    @property
    def wanted(self) -> Mapping[str, str | None]:
        """What a store can look for."""
        return {"task": self.task, "queue": self.queue, "tag": self.tag}

    def fits(self, job: Job[Any]) -> bool:
        """Whether the error is the one that is looked for, which no store knows about."""
        return self.error is None or self.error.lower() in (job.error or job.reason).lower()


def choosable(*states: JobState, default: str) -> Callable[[Callable[..., None]], Any]:
    """Let a command take ids, or instead a description of jobs in one of these states."""
    options = (
        click.argument("ids", metavar="[ID]...", nargs=-1),
        click.option(
            "--state", type=click.Choice(states), help=f"Only jobs in this state [{default}]."
        ),
        narrowing,
        click.option("--error", metavar="TEXT", help="Only jobs whose error contains this."),
        click.option(
            "--limit", type=click.IntRange(min=1), help="No more than so many, the newest ones."
        ),
        click.option("--dry-run", is_flag=True, help="Only say how many there are."),
        click.option("--yes", is_flag=True, help="Do not ask."),
    )

    def decorate(command: Callable[..., None]) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


async def fitting(
    store: Store, choice: Choice, states: Sequence[JobState], tell: Callable[[int], None]
) -> dict[str, str]:
    """Return the ids of all jobs that fit, newest first within a state, and their tasks.

    `tell` is told how many there are so far.
    """
    found: dict[str, str] = {}
    looking = Jobs(store, {})
    for state in states:
        cursor = None
        while True:
            page = await looking.page(**choice.wanted, state=state, limit=PAGE, cursor=cursor)
            for job in filter(choice.fits, page):
                if len(found) == choice.limit:
                    return found
                found[job.id] = job.task
            tell(len(found))
            cursor = page.cursor
            if cursor is None:
                break
    return found


def slices(items: Sequence[T]) -> Iterator[list[T]]:
    """Yield as many items at a time as a call to a store may have."""
    rest = iter(items)
    while some := [*islice(rest, BATCH_MAX)]:
        yield some
