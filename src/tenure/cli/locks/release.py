"""`tenure locks release`: take a lock away from its holder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from tenure.cli.locks.records import advice_for_damage, damage_of, leases_of
from tenure.cli.locks.table import holder_document, process_of
from tenure.cli.target import Target, store_command
from tenure.cli.text import duration, safe
from tenure.core.leases import Lease, check_name
from tenure.errors import ConfigError, StoreError
from tenure.stores.contract import Store

__all__ = ["release"]


@click.command(
    epilog="""\b
Examples:
  tenure locks release invoice:42 --fence 1794733200000000
  tenure locks release gpu --all --yes
  tenure locks release invoice:42 --force"""
)
@click.argument("name")
@click.option("--fence", type=int, help="Release the holder with this fence, which 'ls' shows.")
@click.option("--all", "all_holders", is_flag=True, help="Release all holders of this name.")
@click.option(
    "--force", is_flag=True, help="Remove a lock that cannot be read, with all its holders."
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@store_command
def release(
    target: Target, name: str, *, fence: int | None, all_holders: bool, force: bool, yes: bool
) -> None:
    """Take a lock away from its holder.

    A dead holder loses nothing by it. A holder that is alive keeps working until its next renewal,
    which comes within a third of its ttl, while another process may begin already. Until then,
    only writes that check the fence are safe. Waiters keep their places.
    """
    check_name(name, "the name")
    if [fence is not None, all_holders, force].count(True) != 1:
        raise click.UsageError(
            "Say which holder to release: --fence N, or --all. --force is for a lock that cannot "
            "be read."
        )
    target.announce()
    if force:
        _discard(target, name, yes=yes)
        return

    async def find(store: Store) -> tuple[list[Lease], str]:
        held = [lease for lease in await leases_of(store, name) if not lease.waiting]
        return held, damage_of(store, name)

    held, damage = target.run(find)
    target.screen.damaged.clear()  # reported below, with advice
    if damage and not held:
        raise StoreError(advice_for_damage(name, damage))
    chosen = _chosen(held, name, fence)
    if chosen and not yes:
        _ask(target, name, chosen)

    async def end(store: Store) -> tuple[dict[str, Any], list[bool]]:
        return target.about(store), await store.leases.release(chosen) if chosen else []

    about, ended = target.run(end)
    results = [*zip(chosen, ended, strict=True)]
    holders = [{**holder_document(lease), "released": was_held} for lease, was_held in results]
    target.screen.answer({**about, "name": name, "holders": holders}, *_lines(name, results))
    if damage and all_holders:
        target.screen.failure(StoreError.__name__, advice_for_damage(name, damage))
        raise click.exceptions.Exit(2)


def _discard(target: Target, name: str, *, yes: bool) -> None:
    """Remove the record of a lock that cannot be read."""

    async def find(store: Store) -> tuple[list[Lease], str]:
        return await leases_of(store, name), damage_of(store, name)

    readable, damage = target.run(find)
    target.screen.damaged.clear()
    if readable and not damage:
        msg = (
            f"{name!r} can be read, so --force is not needed. Say which holder to release: "
            "--fence N, or --all."
        )
        raise ConfigError(msg)
    if damage and not yes:
        _ask_to_discard(target, name, damage, readable)

    async def end(store: Store) -> tuple[dict[str, Any], bool]:
        return target.about(store), await store.leases.discard(name)

    about, was_there = target.run(end)
    answer = f"Removed {safe(name)}." if was_there else _not_held(name)
    target.screen.answer({**about, "name": name, "removed": was_there}, Text(answer))


def _ask_to_discard(target: Target, name: str, damage: str, readable: list[Lease]) -> None:
    click.echo(f"Cannot read {safe(name)}: {safe(damage)}.", err=True)
    for lease in readable:
        verb = "waits for" if lease.waiting else "holds"
        click.echo(f"{process_of(lease)} {verb} it.", err=True)
    click.echo("If a holder is alive, another process may begin while it still works.", err=True)
    _confirm(target, "Remove it?")


def _chosen(held: list[Lease], name: str, fence: int | None) -> list[Lease]:
    if fence is None:
        return held
    chosen = [lease for lease in held if lease.fence == fence]
    if not chosen:
        fences = ", ".join(str(lease.fence) for lease in held)
        others = f"Its holders have the fences {fences}." if held else "It is not held."
        msg = f"no holder of {name!r} has the fence {fence}. {others}"
        raise ConfigError(msg)
    return chosen


def _ask(target: Target, name: str, chosen: list[Lease]) -> None:
    """Say what will happen, and end the command unless the answer is yes."""
    wait = duration(max(lease.ttl for lease in chosen) * 0.3)
    for lease in chosen:
        click.echo(f"{process_of(lease)} holds {safe(name)}, fence {lease.fence}.", err=True)
    click.echo(
        f"If it is alive, it keeps working for up to {wait}, while another process may begin. "
        "Until then, only writes that check the fence are safe.",
        err=True,
    )
    _confirm(target, "Release it?" if len(chosen) == 1 else "Release them?")


def _confirm(target: Target, question: str) -> None:
    try:
        click.confirm(question, abort=True, err=True)
    except click.Abort:
        target.screen.failure("Aborted", "nothing was released. --yes skips the question.")
        raise click.exceptions.Exit(1) from None


def _lines(name: str, results: list[tuple[Lease, bool]]) -> Iterator[RenderableType]:
    if not results:
        yield Text(_not_held(name))
    for lease, was_held in results:
        done = "Released" if was_held else "Was no longer held:"
        yield Text(f"{done} {safe(name)}, fence {lease.fence}, of {process_of(lease)}.")


def _not_held(name: str) -> str:
    return f"{safe(name)} is not held."
