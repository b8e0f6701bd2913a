"""`tenure jobs`: what was asked for, how it went, and ending or repeating it."""

from __future__ import annotations

from typing import Any

import click
from rich.text import Text

from tenure.cli.doctor.damage import what_to_do
from tenure.cli.jobs.actions import cancel, delete, requeue
from tenure.cli.jobs.selection import PAGE, narrowing, whole_ids
from tenure.cli.jobs.story import Surroundings, shown
from tenure.cli.jobs.table import document, full_document, listed
from tenure.cli.jobs.tail import tail
from tenure.cli.options import cursor as cursor_given
from tenure.cli.target import Target, store_command
from tenure.core.jobs.states import STATES, JobState
from tenure.errors import JobUnreadable, StoreError
from tenure.jobs import Job, Jobs
from tenure.stores.contract import Store

__all__ = ["jobs"]


@click.group(
    epilog="""\b
Examples:
  tenure jobs ls --state failed
  tenure jobs show 01890a5d-ac96-774b-bcce-b302099a8057
  tenure jobs show b302099a8057   the end of an id will do, from 8 characters on
  tenure jobs tail
  tenure jobs requeue --task resize --dry-run"""
)
def jobs() -> None:
    """See what was asked for and how it went; cancel, repeat or delete it."""


for command in (tail, cancel, requeue, delete):
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
@narrowing
@click.option(
    "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="The most to list."
)
@click.option("--timers", is_flag=True, help="Also list the runs of timers.")
@click.option("--cursor", callback=cursor_given, help="Go on where an earlier list ended.")
@click.option("--all", "everything", is_flag=True, help="List all, however many there are.")
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
    """List jobs, newest first; the runs of timers only with --timers, or --task @name.

    A narrow terminal gets the ends of the ids, which the other commands take as well.
    """
    target.announce()
    wanted = {"state": state, "task": task, "queue": queue, "tag": tag}

    async def look(
        store: Store,
    ) -> tuple[dict[str, Any], list[Job[Any]], str | None, int]:
        most = None if everything else limit
        found, following = await _find(store, wanted, cursor, most, timers=timers)
        return target.about(store), found, following, (await store.ping()).now

    about, found, following, now = target.run(look)
    answer = {**about, "jobs": [document(job) for job in found], "cursor": following}
    narrowed = any(value is not None for value in (*wanted.values(), cursor))
    nothing = Text("No job fits." if narrowed else "There are no jobs.")
    shortened = target.screen.is_narrow
    target.screen.answer(answer, listed(found, now, short=shortened) if found else nothing)
    if not found and not timers:
        target.screen.aside("Runs of timers are listed with --timers.")
    if following is not None:
        target.screen.aside(f"There may be more: go on with --cursor {following}, or use --all.")


async def _find(
    store: Store, wanted: dict[str, Any], cursor: str | None, limit: int | None, *, timers: bool
) -> tuple[list[Job[Any]], str | None]:
    """Return up to `limit` jobs, and where to go on. Pages may be short and not the last one."""
    found: list[Job[Any]] = []
    looking = Jobs(store, {})
    look = looking.page if timers else looking.page_without_timers
    while True:
        room = PAGE if limit is None else min(PAGE, limit - len(found))
        page = await look(**wanted, limit=room, cursor=cursor)
        found += page
        cursor = page.cursor
        if cursor is None or len(found) == limit:
            return found, cursor


@jobs.command(
    epilog="""\b
Examples:
  tenure jobs show 01890a5d-ac96-774b-bcce-b302099a8057
  tenure jobs show b302099a8057"""
)
@click.argument("job_id", metavar="ID")
@store_command
def show(target: Target, job_id: str) -> None:
    """Tell all about one job, also why it waits.

    Instead of the whole id, its last 8 characters or more will do, for one of the newest 1,000
    jobs of each state.
    """
    target.announce()

    async def look(store: Store) -> tuple[dict[str, Any], Job[Any], Surroundings]:
        [whole] = await whole_ids(store, [job_id])
        job = await _job(store, whole)
        return target.about(store), job, await Surroundings.of(job, store)

    about, job, around = target.run(look)
    told = {"waits_for": [word for word, _ in around.waits_for(job)]}
    parts = shown(job, around, folded=target.screen.is_terminal)
    target.screen.answer({**about, **full_document(job), **told}, *parts)


async def _job(store: Store, id_: str) -> Job[Any]:
    """Return a job. Raises StoreError, saying what to do, if it cannot be read."""
    try:
        return await Jobs(store, {}).job(id_)
    except JobUnreadable:
        page = await store.jobs.find(state="stranded", limit=PAGE)
        for stranded in page.stranded:
            if stranded.id == id_:
                raise StoreError(what_to_do(stranded)) from None
        [damaged] = [one for one in store.damage if (one.kind, one.name) == ("job", id_)]
        msg = (
            f"job {id_} cannot be read: {damaged.why} (in {damaged.where}). 'tenure jobs "
            f"delete {id_}' removes it. Enqueue it again if it is still wanted."
        )
        raise StoreError(msg) from None
