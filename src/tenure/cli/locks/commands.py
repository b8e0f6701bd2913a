"""`tenure locks`, `ls` and `show`: who holds locks and semaphores, and who waits for them."""

from __future__ import annotations

from typing import Any

import click
from rich.text import Text

from tenure.cli.locks.records import advice_for_damage, damage_of, leases_of
from tenure.cli.locks.release import release
from tenure.cli.locks.table import by_name, details, document, listed
from tenure.cli.options import span
from tenure.cli.target import Target, store_command, store_group
from tenure.core.leases import Lease, check_name
from tenure.errors import StoreError
from tenure.stores.contract import Store

__all__ = ["locks"]


@store_group(
    epilog="""\b
Examples:
  tenure locks ls
  tenure locks ls invoice: --waiting
  tenure locks show invoice:42
  tenure locks release invoice:42 --fence 1794733200000000""",
)
def locks() -> None:
    """List, show and release locks and semaphores."""


locks.add_command(release)


@locks.command(
    epilog="""\b
Examples:
  tenure locks ls                    all locks
  tenure locks ls invoice:           locks whose name starts with "invoice:"
  tenure locks ls --older 5m         only what is held, or waited for, for longer
  tenure locks ls --json | jq -r '.locks[] | select(.waiting != []) | .name'"""
)
@click.argument("prefix", default="")
@click.option("--waiting", is_flag=True, help="Also list each waiter, not only their number.")
@click.option(
    "--older",
    metavar="TIME",
    callback=span,
    help="Only holders and waiters of more than this time: 30s, 5m, 2h.",
)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="How many holders and waiters to read.",
)
@store_command
def ls(target: Target, prefix: str, *, waiting: bool, older: float | None, limit: int) -> None:
    """List the locks that are held now."""
    target.announce()

    async def look(store: Store) -> tuple[dict[str, Any], list[Lease]]:
        return target.about(store), await store.leases.find(prefix, limit=limit)

    about, leases = target.run(look)
    chosen = leases if older is None else [lease for lease in leases if lease.held_for > older]
    answer = {**about, "prefix": prefix, "locks": [*map(document, by_name(chosen))]}
    if older is not None:
        answer["older"] = older
    if target.screen.damaged and not leases:
        target.screen.answer(answer, Text("No readable lock is held."))
        return
    target.screen.answer(answer, listed(leases, prefix, waiting=waiting, older=older))
    if len(leases) == limit:
        target.screen.remark(f"Only the first {limit}. Use a prefix or a larger --limit.")


@locks.command(
    epilog="""\b
Example:
  tenure locks show invoice:42"""
)
@click.argument("name")
@store_command
def show(target: Target, name: str) -> None:
    """Show one lock: its holders, their fences and meta, and who waits."""
    check_name(name, "the name")
    target.announce()

    async def look(store: Store) -> tuple[dict[str, Any], list[Lease]]:
        leases = await leases_of(store, name)
        if not leases and (why := damage_of(store, name)):
            raise StoreError(advice_for_damage(name, why))
        return target.about(store), leases

    about, leases = target.run(look)
    target.screen.answer({**about, **document((name, leases))}, *details(name, leases))
