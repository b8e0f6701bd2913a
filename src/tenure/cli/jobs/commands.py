"""`tenure jobs`, `ls` and `show`: list jobs, and show one."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import click
from msgspec.structs import asdict
from rich.text import Text

from tenure.cli.jobs.actions import cancel, delete, requeue
from tenure.cli.jobs.selection import PAGE, filter_options, whole_ids
from tenure.cli.jobs.story import shown
from tenure.cli.jobs.table import document, full_document, listed
from tenure.cli.jobs.tail import tail
from tenure.cli.jobs.watch import watch
from tenure.cli.options import cursor as cursor_option
from tenure.cli.target import Target, store_command, store_group
from tenure.core.jobs.states import STATES, JobState
from tenure.core.why import Surroundings, why_job
from tenure.errors import JobUnreadable, StoreError
from tenure.jobs import Job, Jobs
from tenure.stores.contract import Store

__all__ = ["jobs"]


@store_group(
    epilog="""\b
Examples:
  tenure jobs ls --state failed
  tenure jobs show 01890a5d-ac96-774b-bcce-b302099a8057
  tenure jobs show b302099a8057   the last 8 characters of an id, or more, are enough
  tenure jobs tail
  tenure jobs watch b302099a8057
  tenure jobs requeue --task resize --dry-run
  tenure jobs rm --tag customer:7 --dry-run      'rm' is the same as 'delete'""",
    aliases={"rm": "delete"},
)
def jobs() -> None:
    """List, show, follow, cancel, requeue and delete jobs."""


for command in (tail, watch, cancel, requeue, delete):
    jobs.add_command(command)


@jobs.command(
    epilog="""\b
Examples:
  tenure jobs ls                                the newest 50
  tenure jobs ls --state running --queue mail
  tenure jobs ls --task @nightly                the runs of a timer
  tenure jobs ls --state failed --all --json | jq -r '.jobs[].error' | sort | uniq -c"""
)
@click.option("--state", type=click.Choice(STATES), help="Only jobs in this state.")
@filter_options
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="How many jobs to list.",
)
@click.option("--timers", is_flag=True, help="Also list the runs of timers.")
@click.option("--cursor", callback=cursor_option, help="Continue where an earlier list ended.")
@click.option("--all", "everything", is_flag=True, help="List all jobs.")
@store_command
def ls(
    target: Target,
    *,
    state: JobState | None,
    task: str | None,
    queue: str | None,
    tag: str | None,
    timers: bool,
    limit: int,
    cursor: str | None,
    everything: bool,
) -> None:
    """List jobs, newest first. Runs of timers: with --timers, or --task @NAME.

    A narrow terminal shows the ends of ids, which all other commands accept.
    """
    target.announce()
    filters = {"state": state, "task": task, "queue": queue, "tag": tag}

    async def look(
        store: Store,
    ) -> tuple[dict[str, Any], list[Job[Any]], str | None, int]:
        most = None if everything else limit
        jobs, following = await _find(store, filters, cursor, most, timers=timers)
        return target.about(store), jobs, following, (await store.ping()).now

    about, jobs, following, now = target.run(look)
    answer = {**about, "jobs": [document(job) for job in jobs], "cursor": following}
    is_filtered = any(value is not None for value in (*filters.values(), cursor))
    nothing = Text("No job matches." if is_filtered else "There are no jobs.")
    is_short = target.screen.is_narrow
    target.screen.answer(answer, listed(jobs, now, short=is_short) if jobs else nothing)
    if not jobs and not timers:
        target.screen.remark("Runs of timers are listed with --timers.")
    if following is not None:
        target.screen.remark(f"There may be more: use --cursor {following}, or --all.")


async def _find(
    store: Store, filters: dict[str, Any], cursor: str | None, limit: int | None, *, timers: bool
) -> tuple[list[Job[Any]], str | None]:
    """Return up to `limit` jobs, and the cursor after them. A short page is not always the last."""
    jobs: list[Job[Any]] = []
    service = Jobs(store, {})
    read_page = service.page if timers else service.page_without_timers
    while True:
        room = PAGE if limit is None else min(PAGE, limit - len(jobs))
        page = await read_page(**filters, limit=room, cursor=cursor)
        jobs += page
        cursor = page.cursor
        if cursor is None or len(jobs) == limit:
            return jobs, cursor


@jobs.command(
    epilog="""\b
Examples:
  tenure jobs show 01890a5d-ac96-774b-bcce-b302099a8057
  tenure jobs show b302099a8057"""
)
@click.argument("job_id", metavar="ID")
@store_command
def show(target: Target, job_id: str) -> None:
    """Show one job: attempts, error, result, and why it waits or has ended.

    The last 8 characters of the id, or more, are enough for the newest 1,000 jobs of each state.
    """
    target.announce()

    async def look(store: Store) -> tuple[dict[str, Any], Job[Any], Surroundings]:
        [whole] = await whole_ids(store, [job_id])
        job = await _job(store, whole)
        return target.about(store), job, await Jobs(store, {}).surroundings(job.record)

    about, job, around = target.run(look)
    why = why_job(job.record, around)
    parts = shown(job, why, around, folded=target.screen.is_terminal)
    target.screen.answer({**about, **full_document(job), "why": asdict(why)}, *parts)


async def _job(store: Store, id_: str) -> Job[Any]:
    """Return a job. Raises StoreError with advice if it cannot be read."""
    jobs = Jobs(store, {})
    try:
        return await jobs.job(id_)
    except JobUnreadable:
        with suppress(JobUnreadable):  # a finished one is not set aside
            why = await jobs.why_unreadable(id_)
            msg = f"Cannot show job {id_}. {why.text} {why.next}"
            raise StoreError(msg) from None
        [record] = [each for each in store.damage if (each.kind, each.name) == ("job", id_)]
        msg = (
            f"Cannot read job {id_}: {record.why} (in {record.where}). Enqueue it again if it is "
            f"still needed. Remove it: tenure jobs delete {id_}"
        )
        raise StoreError(msg) from None
