"""`tenure jobs cancel`, `requeue` and `delete`: jobs by id, or all jobs that match filters."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click
from rich.text import Text

from tenure.cli.jobs.selection import (
    Filter,
    batches,
    matching_jobs,
    selection_options,
    whole_ids,
)
from tenure.cli.target import Target, store_command
from tenure.cli.text import count, safe
from tenure.core.ids import is_job_id
from tenure.core.jobs.states import JobState
from tenure.errors import TenureError
from tenure.jobs import Jobs
from tenure.stores.contract import Store

__all__ = ["cancel", "delete", "requeue"]

_STATES: Final[tuple[JobState, ...]] = (
    "succeeded",
    "failed",
    "cancelled",
    "waiting",
    "running",
)

# How many tasks a question names with their numbers of jobs.
_TASKS_SHOWN = 4


@dataclass(frozen=True, kw_only=True)
class _Action:
    """What a command does with jobs, and the words for each outcome."""

    verb: str
    past: str
    call: Callable[[Store, Sequence[str]], Awaitable[Sequence[str | None]]]
    states: tuple[JobState, ...]
    """The states that filters select without --state."""
    single: Mapping[str, str]
    """The words for each outcome, before the id of a job."""
    plural: Mapping[str, str]
    """The words for each outcome, with a place for the number of jobs."""
    errors: tuple[str, ...] = ()
    """The outcomes for which the command exits with 2."""


@click.command(
    epilog="""\b
Examples:
  tenure jobs cancel 01890a5d-ac96-774b-bcce-b302099a8057 --reason 'sent twice'
  tenure jobs cancel --queue mail --tag import --dry-run
  tenure jobs cancel --state waiting --task resize --yes"""
)
@selection_options("waiting", "running", default="default: both")
@click.option("--reason", default="", help="Why; shown with the job.")
@store_command
def cancel(target: Target, ids: tuple[str, ...], *, reason: str, **filters: Any) -> None:
    """Cancel jobs: by id, or all jobs that match the filters.

    A waiting job never starts. A running job is asked to stop, and is cancelled when its handler
    has stopped.
    """
    action = _Action(
        verb="cancel",
        past="cancelled",
        call=lambda store, batch: store.jobs.cancel(batch, reason=reason[:1000]),
        states=("waiting", "running"),
        single={
            "cancelled": "Cancelled",
            "requested": "Asked to stop:",
            "finished": "Already finished:",
        },
        plural={
            "cancelled": "Cancelled {}.",
            "requested": "Asked {} to stop.",
            "finished": "{} finished meanwhile.",
        },
    )
    _run(target, action, ids, Filter(**filters))


@click.command(
    epilog="""\b
Examples:
  tenure jobs requeue 01890a5d-ac96-774b-bcce-b302099a8057
  tenure jobs requeue --task resize --error 'disk full' --dry-run
  tenure jobs requeue --state failed --queue mail --limit 100 --yes"""
)
@selection_options("failed", "cancelled", "succeeded", default="default: failed")
@store_command
def requeue(target: Target, ids: tuple[str, ...], **filters: Any) -> None:
    """Run finished jobs again, with a full set of attempts.

    By id, jobs may have failed, succeeded or been cancelled. Filters select failed jobs unless you
    name another --state.
    """
    action = _Action(
        verb="requeue",
        past="requeued",
        call=lambda store, batch: store.jobs.requeue(batch),
        states=("failed",),
        single={
            "requeued": "Requeued",
            "unfinished": "Not finished, so it cannot be requeued:",
            "conflict": "Another job has its unique key by now:",
            "refused": "A run of a timer or schedule; use 'tenure timers trigger':",
        },
        plural={
            "requeued": "Requeued {}.",
            "unfinished": "Skipped {}: requeued by another process meanwhile.",
            "conflict": "Left {} as before: another job has the unique key by now.",
            "refused": "Left {} as before: runs of timers and schedules; "
            "use 'tenure timers trigger'.",
        },
        errors=("unfinished", "conflict", "refused"),
    )
    _run(target, action, ids, Filter(**filters))


@click.command(
    epilog="""\b
Examples:
  tenure jobs delete 01890a5d-ac96-774b-bcce-b302099a8057
  tenure jobs delete --state cancelled --tag import --dry-run
  tenure jobs delete --tag customer:7 --cancel      all jobs of a customer"""
)
@selection_options(*_STATES, default="default: the finished ones; with --cancel all")
@click.option(
    "--cancel", "cancels", is_flag=True, help="Cancel running jobs first, and wait for their end."
)
@store_command
def delete(target: Target, ids: tuple[str, ...], *, cancels: bool, **filters: Any) -> None:
    """Delete jobs for good: by id, or all jobs that match the filters.

    Also deletes their results and tags, and frees their unique keys at once. You cannot undo this.
    Waiting jobs never start. Running jobs stay, unless you add --cancel. Workers delete finished
    jobs by themselves when their retention is over.
    """
    criteria = Filter(**filters)
    if criteria.state == "running" and not cancels:
        raise click.UsageError("Running jobs are deleted with --cancel, after they have ended.")

    action = _Action(
        verb="delete",
        past="deleted",
        call=lambda store, batch: Jobs(store, {}).delete_many(batch, cancel=cancels),
        states=_STATES if cancels else _STATES[:3],
        single={
            "deleted": "Deleted",
            "running": "Running, so not deleted; cancel it first, or add --cancel:",
        },
        plural={
            "deleted": "Deleted {}.",
            "running": "Left {} as before: started meanwhile.",
        },
        errors=("running",),
    )
    _run(target, action, ids, criteria)


def _run(target: Target, action: _Action, ids: tuple[str, ...], criteria: Filter) -> None:
    if ids and not (criteria.is_empty and criteria.limit is None and not criteria.dry_run):
        raise click.UsageError("Give either the ids of jobs or filters, not both.")
    if not ids and criteria.is_empty:
        raise click.UsageError("Select jobs: ID..., or --state, --task, --queue, --tag or --error.")
    if ids:
        _run_by_id(target, action, ids)
    else:
        _run_by_filter(target, action, criteria)


def _run_by_id(target: Target, action: _Action, ids: Sequence[str]) -> None:
    """Change the jobs with these ids and show each outcome. Exit with 2 if one is an error."""
    target.announce()

    async def work(store: Store) -> tuple[dict[str, Any], dict[str, str]]:
        whole = [*dict.fromkeys(await whole_ids(store, ids))]
        outcomes: dict[str, str | None] = {}
        for batch in batches([id_ for id_ in whole if is_job_id(id_)]):
            outcomes |= zip(batch, await action.call(store, batch), strict=True)
        return target.about(store), {id_: outcomes.get(id_) or "not found" for id_ in whole}

    about, outcomes = target.run(work)
    words = {**action.single, "not found": "There is no job"}
    target.screen.answer(
        {**about, "jobs": _documents(outcomes)},
        *(Text(f"{words[outcome]} {safe(id_)}") for id_, outcome in outcomes.items()),
    )
    if not {"not found", *action.errors}.isdisjoint(outcomes.values()):
        raise click.exceptions.Exit(2)


def _run_by_filter(target: Target, action: _Action, criteria: Filter) -> None:
    """Change all jobs that match, in batches, after a question. Exit with 2 after a conflict.

    What other processes did to a job in the meantime is not an error.
    """
    needs_answer = not (criteria.yes or criteria.dry_run)
    if needs_answer and not sys.stdin.isatty():
        raise click.UsageError(
            "Cannot ask for confirmation without a terminal: add --yes, or --dry-run to only look."
        )
    target.announce()
    tasks = _matches(target, action, criteria)
    document = {**target.about(target.store()), "matching": len(tasks)}
    if criteria.dry_run or not tasks:
        jobs = [{"id": id_} for id_ in tasks]
        target.screen.answer({**document, "jobs": jobs}, Text(_summary(action, criteria, tasks)))
        return
    if needs_answer:
        _ask(target, action, _summary(action, criteria, tasks), len(tasks))
    # Read newest first, changed oldest first, so that requeued jobs start in their old order.
    outcomes = _run_in_batches(target, action, [*reversed(tasks)])
    counts = Counter(outcomes.values())
    words = {**action.plural, "not found": "Missed {}: removed meanwhile, retention is over."}
    target.screen.answer(
        {**document, "jobs": _documents(outcomes)},
        *(
            Text(words[outcome].format(count(counts[outcome], "job")))
            for outcome in words
            if counts[outcome]
        ),
    )
    if counts["conflict"]:
        raise click.exceptions.Exit(2)


def _matches(target: Target, action: _Action, criteria: Filter) -> dict[str, str]:
    screen = target.screen
    states = _states(action, criteria)
    try:
        return target.run(
            lambda store: matching_jobs(
                store, criteria, states, lambda number: screen.progress(f"Found {number:,}...")
            )
        )
    finally:
        screen.progress("")


def _states(action: _Action, criteria: Filter) -> tuple[JobState, ...]:
    return action.states if criteria.state is None else (criteria.state,)


def _run_in_batches(target: Target, action: _Action, ids: Sequence[str]) -> dict[str, str]:
    outcomes: dict[str, str] = {}

    async def work(store: Store) -> None:
        for batch in batches(ids):
            answers = await action.call(store, batch)
            outcomes.update(zip(batch, (answer or "not found" for answer in answers), strict=True))
            target.screen.progress(f"{len(outcomes):,} of {len(ids):,}...")

    try:
        target.run(work)
    except TenureError:
        target.screen.progress("")
        target.screen.remark(f"{len(outcomes):,} of {len(ids):,} were done before this error:")
        raise
    finally:
        target.screen.progress("")
    return outcomes


def _documents(outcomes: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"id": id_, "outcome": outcome} for id_, outcome in outcomes.items()]


def _summary(action: _Action, criteria: Filter, tasks: Mapping[str, str]) -> str:
    """Return how many jobs match, and of which tasks."""
    if not tasks:
        return "No job matches."
    numbers = Counter(tasks.values()).most_common()
    parts = [f"{number:,} of {safe(task)}" for task, number in numbers[:_TASKS_SHOWN]]
    if rest := sum(number for _, number in numbers[_TASKS_SHOWN:]):
        parts.append(f"{rest:,} of other tasks")
    jobs = count(len(tasks), f"{' or '.join(_states(action, criteria))} job")
    match = "matches" if len(tasks) == 1 else "match"
    return f"{jobs} {match}: {', '.join(parts)}."


def _ask(target: Target, action: _Action, summary: str, number: int) -> None:
    click.echo(summary, err=True)
    what = "it" if number == 1 else "them"
    try:
        click.confirm(f"{action.verb.capitalize()} {what}?", abort=True, err=True)
    except click.Abort:
        target.screen.failure("Aborted", f"nothing was {action.past}.")
        raise click.exceptions.Exit(1) from None
