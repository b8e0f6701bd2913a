"""Groups of commands that answer a mistyped command with the one that was meant."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import click

__all__ = ["CommandGroup"]


class CommandGroup(click.Group):
    """A group that names the right command for an unknown one.

    `instead` has advice for names that other tools use, such as "list". `aliases` has other names
    of commands, which work and are not listed.
    """

    def __init__(
        self,
        *arguments: Any,
        instead: Mapping[str, str] | None = None,
        aliases: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._instead = instead or {}
        self._aliases = aliases or {}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of this name, or with this alias."""
        return super().get_command(ctx, self._aliases.get(cmd_name, cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command. Raises UsageError with advice for an unknown one."""
        name = args[0]
        if name.startswith("-") or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        path = ctx.command_path
        msg = f"There is no command '{path} {name}'. {self._advice(path, name)}"
        raise click.UsageError(msg, ctx)

    def _advice(self, path: str, name: str) -> str:
        if advice := self._instead.get(name):
            return advice
        if name == "list" and "ls" in self.commands:
            return f"Use '{path} ls'."
        if close := get_close_matches(name, self.commands, n=1):
            return f"Did you mean '{path} {close[0]}'?"
        return f"'{path} --help' lists the commands."
