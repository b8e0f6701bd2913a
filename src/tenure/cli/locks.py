"""`tenure locks`: who holds what, who waits for it, and taking it away."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from tenure.cli.output import Cell, Shrinking, duration, safe, table
from tenure.cli.target import Target, store_command
from tenure.core.leases import Lease, check_name
from tenure.errors import ConfigError, StoreError
from tenure.stores.contract import Store

__all__ = ["locks"]


@click.group(
    epilog="""\b
Examples:
  tenure locks ls
  tenure locks ls invoice: --waiting
  tenure locks show invoice:42
  tenure locks release invoice:42 --fence 1794733200000000"""
)
def locks() -> None:
    """See who holds and who waits for locks and semaphores."""


@locks.command(
    epilog="""\b
Examples:
  tenure locks ls                    all of them
  tenure locks ls invoice:           those whose name starts with "invoice:"
  tenure locks ls --json | jq -r '.locks[] | select(.waiting != []) | .name'"""
)
@click.argument("prefix", default="")
@click.option("--waiting", is_flag=True, help="List those who wait as well, not only their number.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Holders and waiters to look at.",
)
@store_command
def ls(target: Target, prefix: str, *, waiting: bool, limit: int) -> None:
    """List the locks that are held now."""
    target.announce()

    async def look(store: Store) -> tuple[dict[str, Any], list[Lease]]:
        return target.about(store), await store.leases.find(prefix, limit=limit)

    about, leases = target.run(look)
    document = {**about, "prefix": prefix, "locks": [*map(_document, _by_name(leases))]}
    if target.screen.damaged and not leases:
        target.screen.answer(document, Text("No lock that can be read is held."))
        return
    target.screen.answer(document, _listed(leases, prefix, waiting=waiting))
    if len(leases) == limit:
        target.screen.aside(f"Only the first {limit}; name a prefix, or a larger --limit.")


@locks.command(
    epilog="""\b
Example:
  tenure locks show invoice:42"""
)
@click.argument("name")
@store_command
def show(target: Target, name: str) -> None:
    """Tell all about one lock: holders, and who waits."""
    check_name(name, "the name")
    target.announce()

    async def look(store: Store) -> tuple[dict[str, Any], list[Lease]]:
        leases = await _leases_of(store, name)
        if not leases and (why := _damage_of(store, name)):
            raise StoreError(_advice(name, why))
        return target.about(store), leases

    about, leases = target.run(look)
    target.screen.answer({**about, **_document((name, leases))}, *_shown(name, leases))


@locks.command(
    epilog="""\b
Examples:
  tenure locks release invoice:42 --fence 1794733200000000
  tenure locks release gpu --all --yes
  tenure locks release invoice:42 --force"""
)
@click.argument("name")
@click.option("--fence", type=int, help="Which holder: the fence that 'ls' shows.")
@click.option("--all", "everybody", is_flag=True, help="All holders of this name.")
@click.option(
    "--force", is_flag=True, help="Remove a lock that cannot be read, with all its holders."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_command
def release(
    target: Target, name: str, *, fence: int | None, everybody: bool, force: bool, yes: bool
) -> None:
    """Take a lock away from its holder.

    A holder that is dead loses nothing by it. One that is alive goes on working until its next
    renewal, which comes within a third of its ttl, while somebody else may begin already. Only
    writes that check the fence are safe meanwhile. Those who wait keep their places.
    """
    check_name(name, "the name")
    if [fence is not None, everybody, force].count(True) != 1:
        raise click.UsageError(
            "Say which holder: --fence N, or --all; or --force for a lock that cannot be read."
        )
    target.announce()
    if force:
        _discard(target, name, yes=yes)
        return

    async def find(store: Store) -> tuple[list[Lease], str]:
        held = [lease for lease in await _leases_of(store, name) if not lease.waiting]
        return held, _damage_of(store, name)

    held, damage = target.run(find)
    target.screen.damaged.clear()  # told below, with what to do
    if damage and not held:
        raise StoreError(_advice(name, damage))
    chosen = _chosen(held, name, fence)
    if chosen and not yes:
        _ask(target, name, chosen)

    async def end(store: Store) -> tuple[dict[str, Any], list[bool]]:
        return target.about(store), await store.leases.release(chosen) if chosen else []

    about, ended = target.run(end)
    answers = [*zip(chosen, ended, strict=True)]
    done = [{**_holder(lease), "released": was_held} for lease, was_held in answers]
    target.screen.answer({**about, "name": name, "holders": done}, *_released(name, answers))
    if damage and everybody:
        target.screen.failure(StoreError.__name__, _advice(name, damage))
        raise click.exceptions.Exit(2)


def _discard(target: Target, name: str, *, yes: bool) -> None:
    """Remove what is stored for a lock that cannot be read."""

    async def find(store: Store) -> tuple[list[Lease], str]:
        return await _leases_of(store, name), _damage_of(store, name)

    readable, damage = target.run(find)
    target.screen.damaged.clear()
    if readable and not damage:
        msg = f"all of {name!r} can be read. Say which holder to release: --fence N, or --all."
        raise ConfigError(msg)
    if damage and not yes:
        _ask_to_discard(target, name, damage, readable)

    async def end(store: Store) -> tuple[dict[str, Any], bool]:
        return target.about(store), await store.leases.discard(name)

    about, was_there = target.run(end)
    told = f"Removed {safe(name)}." if was_there else f"Nobody holds {safe(name)}."
    target.screen.answer({**about, "name": name, "removed": was_there}, Text(told))


def _ask_to_discard(target: Target, name: str, damage: str, readable: list[Lease]) -> None:
    click.echo(f"{safe(name)} cannot be read: {safe(damage)}.", err=True)
    for lease in readable:
        click.echo(f"{_who(lease)} {'waits for' if lease.waiting else 'holds'} it.", err=True)
    click.echo("If a holder is alive, another process may begin while it works.", err=True)
    _confirm(target, "Remove it?")


def _damage_of(store: Store, name: str) -> str:
    """Return what is wrong with a lock, and where; nothing if all of it could be read."""
    wrong = (
        f"{one.why} (in {one.where})"
        for one in store.damage
        if one.kind in ("lock", "waiter") and one.name == name
    )
    return next(wrong, "")


def _advice(name: str, damage: str) -> str:
    return (
        f"{name!r} cannot be read: {damage}. It counts as held. If its holder is gone, remove it "
        f"with 'tenure locks release {name} --force'."
    )


def _chosen(held: list[Lease], name: str, fence: int | None) -> list[Lease]:
    if fence is None:
        return held
    chosen = [lease for lease in held if lease.fence == fence]
    if not chosen:
        fences = ", ".join(str(lease.fence) for lease in held)
        others = f"Its holders have other fences: {fences}." if held else "Nobody holds it."
        msg = f"no holder of {name!r} has the fence {fence}. {others}"
        raise ConfigError(msg)
    return chosen


def _ask(target: Target, name: str, chosen: list[Lease]) -> None:
    """Say what is about to happen, and end the command unless the answer is yes."""
    wait = duration(max(lease.ttl for lease in chosen) * 0.3)
    for lease in chosen:
        click.echo(f"{_who(lease)} holds {safe(name)}, fence {lease.fence}.", err=True)
    click.echo(
        f"If alive, it works on for up to {wait} and somebody else may begin meanwhile: only "
        "writes that check the fence are safe.",
        err=True,
    )
    _confirm(target, "Release it?" if len(chosen) == 1 else "Release them?")


def _confirm(target: Target, question: str) -> None:
    try:
        click.confirm(question, abort=True, err=True)
    except click.Abort:
        target.screen.failure("Aborted", "nothing was released. To answer beforehand, use --yes.")
        raise click.exceptions.Exit(1) from None


async def _leases_of(store: Store, name: str) -> list[Lease]:
    # Names come in order, and no other name that starts with this one comes before it.
    return [lease for lease in await store.leases.find(name, limit=100_000) if lease.key == name]


def _by_name(leases: Iterable[Lease]) -> Iterator[tuple[str, list[Lease]]]:
    for name, group in groupby(leases, lambda lease: lease.key):
        yield name, list(group)


def _document(lock: tuple[str, list[Lease]]) -> dict[str, Any]:
    name, leases = lock
    return {
        "name": name,
        "holders": [_holder(lease) for lease in leases if not lease.waiting],
        "waiting": [_waiter(lease) for lease in leases if lease.waiting],
    }


def _holder(lease: Lease) -> dict[str, Any]:
    return {
        "holder": lease.holder,
        "fence": lease.fence,
        "limit": lease.limit,
        "ttl": lease.ttl,
        "held_for": lease.held_for,
        "expires_in": lease.expires_in,
        "meta": dict(lease.meta),
    }


def _waiter(lease: Lease) -> dict[str, Any]:
    return {
        "holder": lease.holder,
        "limit": lease.limit,
        "ttl": lease.ttl,
        "waits_for": lease.held_for,
        "meta": dict(lease.meta),
    }


def _who(lease: Lease) -> str:
    """Return host and process of a holder, or its id if it does not say."""
    host, pid = lease.meta.get("host"), lease.meta.get("pid")
    return safe(f"{host}:{pid}" if host and pid else lease.holder)


def _listed(leases: list[Lease], prefix: str, *, waiting: bool) -> RenderableType:
    if not leases:
        those = f' whose name starts with "{safe(prefix)}"' if prefix else ""
        return Text(f"Nobody holds anything{those}.")
    rows: list[list[Cell]] = []
    for name, group in _by_name(leases):
        held = [lease for lease in group if not lease.waiting]
        line = [lease for lease in group if lease.waiting]
        places = f"{len(held)} of {min((lease.limit for lease in held), default=1)}"
        for lease in held:
            times = [duration(lease.held_for), duration(lease.expires_in)]
            start: list[Cell] = [safe(name), Shrinking(_who(lease)), str(lease.fence)]
            rows.append([*start, *times, places, str(len(line))])
        if waiting or not held:
            rows += (
                [
                    safe(name),
                    Shrinking(_who(lease)),
                    Text("waits", "yellow"),
                    duration(lease.held_for),
                ]
                for lease in line
            )
    columns = ("NAME", "HOLDER", "FENCE", "HELD", "LEFT", "PLACES", "WAITING")
    return table(rows, columns, right=columns[3:])


def _shown(name: str, leases: list[Lease]) -> Iterator[RenderableType]:
    held = [lease for lease in leases if not lease.waiting]
    line = [lease for lease in leases if lease.waiting]
    if not leases:
        yield Text(f"Nobody holds {safe(name)}, and nobody waits for it.")
        return
    limit = min((lease.limit for lease in held), default=1)
    yield Text.assemble((safe(name), "bold"), f"  {len(held)} of {limit} held, {len(line)} waiting")
    for lease in held:
        yield Text()
        yield table(
            [
                ["holder", _who(lease)],
                ["fence", str(lease.fence)],
                ["held for", duration(lease.held_for)],
                ["left", f"{duration(lease.expires_in)} of {duration(lease.ttl)} unless renewed"],
                ["id", safe(lease.holder)],
                *([safe(key), safe(value)] for key, value in _further(lease)),
            ]
        )
    if line:
        yield Text()
        yield table(
            [
                [str(at), Shrinking(_who(one)), duration(one.held_for)]
                for at, one in enumerate(line, 1)
            ],
            ("PLACE", "WAITS", "FOR"),
            right=("FOR",),
        )


def _further(lease: Lease) -> Iterator[tuple[str, str]]:
    """Yield what the holder says about itself, beyond what names it."""
    named = {"host", "pid"} if "host" in lease.meta and "pid" in lease.meta else set()
    for key, value in sorted(lease.meta.items()):
        if key not in named:
            yield key, value


def _released(name: str, answers: list[tuple[Lease, bool]]) -> Iterator[RenderableType]:
    if not answers:
        yield Text(f"Nobody holds {safe(name)}.")
    for lease, was_held in answers:
        did = "Released" if was_held else "Was no longer held:"
        yield Text(f"{did} {safe(name)}, fence {lease.fence}, of {_who(lease)}.")
