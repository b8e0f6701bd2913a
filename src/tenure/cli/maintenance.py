"""`tenure recover` and `tenure prune`: what workers do by themselves, for when none runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import click
import msgspec
from rich.console import RenderableType
from rich.text import Text

from tenure.cli.options import span
from tenure.cli.tables import Cell, ShrinkingCell, table
from tenure.cli.target import Target, store_command
from tenure.cli.text import count, safe
from tenure.core.jobs.replicas import Recovered

__all__ = ["prune", "recover"]


@click.command(
    epilog="""\b
Examples:
  tenure recover
  tenure recover --loss-budget 5       if the app sets loss_budget=5"""
)
@click.option(
    "--loss-budget",
    type=click.IntRange(min=0),
    help="How often a job may be lost and still run again [default: $TENURE_LOSS_BUDGET, else 3].",
)
@click.option(
    "--grace",
    metavar="TIME",
    callback=span,
    help="How far past its deadline a job must be [default: $TENURE_GRACE, else 25s].",
)
@store_command
def recover(target: Target, *, loss_budget: int | None, grace: float | None) -> None:
    """Recover the jobs of replicas that have expired.

    Workers do this by themselves within seconds; use it when no worker runs. Replicas that are
    alive keep their jobs. If your app sets loss_budget or grace, pass the same values here.
    """
    target.announce()
    recovered = target.run_app(
        lambda app, _store: app.recover(), loss_budget=loss_budget, grace=grace
    )
    about = target.about(target.store())
    document = {**about, "recovered": msgspec.to_builtins(recovered)}
    target.screen.answer(document, *_shown(recovered))


_MEANING = {
    "waiting": "run again",
    "failed": "failed for good: lost too often, or may run only once",
    "cancelled": "cancelled, as requested before",
    None: "set aside: their records cannot be read",
}


def _shown(recovered: Sequence[Recovered]) -> Iterator[RenderableType]:
    if not recovered:
        yield Text("Nothing to recover.")
        return
    rows: list[list[Cell]] = [
        [job.id, job.state or "unreadable", str(job.losses), ShrinkingCell(safe(job.replica))]
        for job in recovered
    ]
    columns = ("ID", "STATE", "LOSSES", "REPLICA")
    yield table(rows, columns, right=("LOSSES",), optional=("REPLICA",))
    counts: Counter[str | None] = Counter(job.state for job in recovered)
    parts = [f"{counts[state]} {words}" for state, words in _MEANING.items() if counts[state]]
    yield Text()
    yield Text(f"{', '.join(parts)}.")


@click.command(
    epilog="""\b
Example:
  tenure prune"""
)
@store_command
def prune(target: Target) -> None:
    """Remove finished jobs whose retention is over.

    Workers do this by themselves; use it when no worker runs.
    """
    target.announce()
    removed = target.run_app(lambda app, _store: app.prune_jobs())
    document = {**target.about(target.store()), "removed": removed}
    answer = f"Removed {count(removed, 'finished job')}." if removed else "Nothing to remove."
    target.screen.answer(document, Text(answer))
