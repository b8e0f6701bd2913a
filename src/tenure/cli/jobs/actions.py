"""`tenure jobs cancel`, `requeue` and `delete`: of jobs by id, or of all that fit."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
from rich.text import Text

from tenure.cli.jobs.selection import Choice, choosable, fitting, slices, whole_ids
from tenure.cli.output import safe
from tenure.cli.target import Target, store_command
from tenure.core.ids import is_job_id
from tenure.core.jobs.states import JobState
from tenure.errors import TenureError
from tenure.stores.contract import Store

__all__ = ["cancel", "delete", "requeue"]

_TASKS_TOLD = 4


@dataclass(frozen=True, kw_only=True)
class _Act:
    """Something to do with jobs."""

    verb: str
    done: str
    call: Callable[[Store, Sequence[str]], Awaitable[Sequence[str | None]]]
    states: tuple[JobState, ...]
    """Those of jobs that are chosen by a description, unless it says which."""
    of_one: Mapping[str, str]
    """What each outcome means, before the id of the job."""
    of_many: Mapping[str, str]
    """What each outcome means, with a place for the number of jobs."""
    wrong: tuple[str, ...] = ()
    """Outcomes for which the command ends with 2."""


@click.command(
    epilog="""\b
Examples:
  tenure jobs cancel 01890a5d-ac96-774b-bcce-b302099a8057 --reason 'sent twice'
  tenure jobs cancel --queue mail --tag import --dry-run
  tenure jobs cancel --state waiting --task resize --yes"""
)
@choosable("waiting", "running", default="default: both")
@click.option("--reason", default="", help="Why; shown with the job.")
@store_command
def cancel(target: Target, ids: tuple[str, ...], *, reason: str, **choice: Any) -> None:
    """Cancel jobs: those that are named, or all that fit what is given.

    What waits never starts. What runs is told to stop, and is cancelled when its handler has
    stopped.
    """
    act = _Act(
        verb="cancel",
        done="cancelled",
        call=lambda store, some: store.jobs.cancel(some, reason=reason[:1000]),
        states=("waiting", "running"),
        of_one={
            "cancelled": "Cancelled",
            "requested": "Told to stop",
            "finished": "Had finished already:",
        },
        of_many={
            "cancelled": "Cancelled {}.",
            "requested": "Told {} to stop.",
            "finished": "{} finished meanwhile.",
        },
    )
    _do(target, act, ids, Choice(**choice))


@click.command(
    epilog="""\b
Examples:
  tenure jobs requeue 01890a5d-ac96-774b-bcce-b302099a8057
  tenure jobs requeue --task resize --error 'disk full' --dry-run
  tenure jobs requeue --state failed --queue mail --limit 100 --yes"""
)
@choosable("failed", "cancelled", "succeeded", default="default: failed")
@store_command
def requeue(target: Target, ids: tuple[str, ...], **choice: Any) -> None:
    """Let finished jobs run again, with all their tries.

    By id that goes for failed ones, cancelled ones, and those that have succeeded. By description
    it goes for failed ones that fit all that is given, unless you say another state.
    """
    act = _Act(
        verb="requeue",
        done="requeued",
        call=lambda store, some: store.jobs.requeue(some),
        states=("failed",),
        of_one={
            "requeued": "Requeued",
            "unfinished": "Has not finished, so it cannot be requeued:",
            "conflict": "Another job has its unique key by now:",
            "refused": "Is the run of a timer or schedule; use 'tenure timers trigger':",
        },
        of_many={
            "requeued": "Requeued {}.",
            "unfinished": "Somebody else requeued {} meanwhile.",
            "conflict": "Left {} as before: the unique key belongs to another job by now.",
            "refused": "Left {} as before: runs of timers and schedules; "
            "use 'tenure timers trigger'.",
        },
        wrong=("unfinished", "conflict", "refused"),
    )
    _do(target, act, ids, Choice(**choice))


@click.command(
    epilog="""\b
Examples:
  tenure jobs delete 01890a5d-ac96-774b-bcce-b302099a8057
  tenure jobs delete --state cancelled --tag import --dry-run"""
)
@choosable("succeeded", "failed", "cancelled", default="default: all three")
@store_command
def delete(target: Target, ids: tuple[str, ...], **choice: Any) -> None:
    """Delete jobs that have finished, or whose records cannot be read.

    Their results go too, and their unique keys are free at once. There is no way back. Workers
    delete finished jobs by themselves when their retention is over.
    """
    act = _Act(
        verb="delete",
        done="deleted",
        call=lambda store, some: store.jobs.delete(some),
        states=("succeeded", "failed", "cancelled"),
        of_one={
            "deleted": "Deleted",
            "unfinished": "Has not finished, so it stays; first use 'tenure jobs cancel':",
        },
        of_many={
            "deleted": "Deleted {}.",
            "unfinished": "Left {} as before: requeued meanwhile.",
        },
        wrong=("unfinished",),
    )
    _do(target, act, ids, Choice(**choice))


def _do(target: Target, act: _Act, ids: tuple[str, ...], choice: Choice) -> None:
    if ids and (choice.is_made or choice.limit is not None or choice.dry_run):
        raise click.UsageError("Name jobs by their ids, or say what they are like; not both.")
    if not ids and not choice.is_made:
        raise click.UsageError(
            "Say which jobs: ID..., or --state, --task, --queue, --tag or --error."
        )
    if ids:
        _do_with_each(target, act, ids)
    else:
        _do_with_all(target, act, choice)


def _do_with_each(target: Target, act: _Act, ids: Sequence[str]) -> None:
    """Do it to the jobs that are named, say what came of each, end with 2 if one went wrong."""
    target.announce()

    async def work(store: Store) -> tuple[dict[str, Any], dict[str, str]]:
        whole = [*dict.fromkeys(await whole_ids(store, ids))]
        answers: dict[str, str | None] = {}
        for some in slices([one for one in whole if is_job_id(one)]):
            answers |= zip(some, await act.call(store, some), strict=True)
        return target.about(store), {one: answers.get(one) or "not found" for one in whole}

    about, outcomes = target.run(work)
    words = {**act.of_one, "not found": "There is no job"}
    target.screen.answer(
        {**about, "jobs": _listed(outcomes)},
        *(Text(f"{words[outcome]} {safe(one)}") for one, outcome in outcomes.items()),
    )
    if not {"not found", *act.wrong}.isdisjoint(outcomes.values()):
        raise click.exceptions.Exit(2)


def _do_with_all(target: Target, act: _Act, choice: Choice) -> None:
    """Do it to all jobs that fit, in slices, after asking; end with 2 if one went wrong.

    What somebody else did to a job in the meantime is not wrong.
    """
    asks = not (choice.yes or choice.dry_run)
    if asks and not sys.stdin.isatty():
        raise click.UsageError("There is nobody to ask: add --yes, or --dry-run to only look.")
    target.announce()
    found = _found(target, act, choice)
    document = {**target.about(target.store()), "fitting": len(found)}
    if choice.dry_run or not found:
        jobs = [{"id": one} for one in found]
        target.screen.answer({**document, "jobs": jobs}, Text(_told(act, choice, found)))
        return
    if asks:
        _ask(target, act, _told(act, choice, found), "it" if len(found) == 1 else "them")
    # Found newest first, done oldest first: so they start in their old order.
    outcomes = _done_inslices(target, act, [*reversed(found)])
    counts = Counter(outcomes.values())
    words = {**act.of_many, "not found": "Missed {}: removed meanwhile, as the retention was over."}
    target.screen.answer(
        {**document, "jobs": _listed(outcomes)},
        *(Text(_sentence(words[outcome], counts[outcome])) for outcome in words if counts[outcome]),
    )
    if counts["conflict"]:
        raise click.exceptions.Exit(2)


def _found(target: Target, act: _Act, choice: Choice) -> dict[str, str]:
    screen = target.screen
    states = act.states if choice.state is None else (choice.state,)
    try:
        return target.run(
            lambda store: fitting(
                store, choice, states, lambda number: screen.progress(f"Found {number:,}...")
            )
        )
    finally:
        screen.progress("")


def _done_inslices(target: Target, act: _Act, ids: Sequence[str]) -> dict[str, str]:
    outcomes: dict[str, str] = {}

    async def work(store: Store) -> None:
        for some in slices(ids):
            answers = await act.call(store, some)
            outcomes.update(zip(some, (one or "not found" for one in answers), strict=True))
            target.screen.progress(f"{len(outcomes):,} of {len(ids):,}...")

    try:
        target.run(work)
    except TenureError:
        target.screen.progress("")
        target.screen.aside(f"{len(outcomes):,} of {len(ids):,} were done before this happened:")
        raise
    finally:
        target.screen.progress("")
    return outcomes


def _listed(outcomes: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"id": one, "outcome": outcome} for one, outcome in outcomes.items()]


def _told(act: _Act, choice: Choice, found: Mapping[str, str]) -> str:
    """Return how many jobs fit, and of which tasks."""
    if not found:
        return "No job fits."
    tasks = Counter(found.values()).most_common()
    parts = [f"{number:,} of {safe(task)}" for task, number in tasks[:_TASKS_TOLD]]
    rest = sum(number for _, number in tasks[_TASKS_TOLD:])
    if rest:
        parts.append(f"{rest:,} of other tasks")
    states = act.states if choice.state is None else (choice.state,)
    jobs = f"{' or '.join(states)} job{'' if len(found) == 1 else 's'}"
    fit = "fits" if len(found) == 1 else "fit"
    return f"{len(found):,} {jobs} {fit}: {', '.join(parts)}."


def _ask(target: Target, act: _Act, told: str, what: str) -> None:
    click.echo(told, err=True)
    try:
        click.confirm(f"{act.verb.capitalize()} {what}?", abort=True, err=True)
    except click.Abort:
        target.screen.failure("Aborted", f"nothing was {act.done}.")
        raise click.exceptions.Exit(1) from None


def _sentence(words: str, number: int) -> str:
    jobs = "1 job" if number == 1 else f"{number:,} jobs"
    return words.format(jobs)
