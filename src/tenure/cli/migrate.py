"""`tenure migrate`: bring the store's format up to date, or check whether it is."""

from __future__ import annotations

import asyncio
from typing import Any

import click
from rich.text import Text

from tenure.cli.target import Target, store_command
from tenure.errors import ConfigError
from tenure.stores.contract import Migrate

__all__ = ["migrate"]


@click.command(
    epilog="""\b
Examples:
  tenure migrate             a step of a deployment, before the new release starts
  tenure migrate --check     exits with 2 if a migration is needed"""
)
@click.option("--check", is_flag=True, help="Change nothing; exit with 2 if a migration is needed.")
@store_command
def migrate(target: Target, *, check: bool) -> None:
    """Bring the store's format up to date.

    Safe at any time: the previous release keeps working, and several processes may migrate at
    once. Apps migrate when they open the store, unless they are made with migrate="check".
    """
    target.announce()
    changed = asyncio.run(_migrate(target, check=check))
    document: dict[str, Any] = {**target.about(target.store()), "changed": changed}
    answer = "The format was brought up to date." if changed else "The format is up to date."
    target.screen.answer(document, Text(answer))


async def _migrate(target: Target, *, check: bool) -> bool:
    """Return whether something had to be changed."""
    try:
        await _open(target, "check")
    except ConfigError:
        if check:
            raise
        # Not up to date, or another mistake, which the second attempt raises again.
        await _open(target, "auto")
        return True
    return False


async def _open(target: Target, how: Migrate) -> None:
    store = target.store()
    await store.open(how)
    await store.close()
