"""`tenure migrate`: bring the store's format up to date before replicas start, or only look."""

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
  tenure migrate             as a step of a deployment, before the replicas start
  tenure migrate --check     is there anything to do? Ends with 2 if so"""
)
@click.option("--check", is_flag=True, help="Change nothing; end with 2 if it is not up to date.")
@store_command
def migrate(target: Target, *, check: bool) -> None:
    """Bring the store's format up to date.

    Safe at any time: releases before this one work on, and any number of replicas may do the
    same at once. Apps do it themselves when they open the store, unless they are told
    migrate="check".
    """
    target.announce()
    changed = asyncio.run(_migrate(target, check=check))
    document: dict[str, Any] = {**target.about(target.store()), "changed": changed}
    done = "The format was brought up to date." if changed else "The format is up to date."
    target.screen.answer(document, Text(done))


async def _migrate(target: Target, *, check: bool) -> bool:
    """Return whether something had to be changed."""
    try:
        await _open(target, "check")
    except ConfigError:
        if check:
            raise
        # Not up to date, or something else that the second try raises again.
        await _open(target, "auto")
        return True
    return False


async def _open(target: Target, how: Migrate) -> None:
    store = target.store()
    await store.open(how)
    await store.close()
