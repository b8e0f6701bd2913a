"""The command `tenure` and its subcommands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from tenure import __version__
from tenure.cli.doctor.command import doctor
from tenure.cli.jobs.commands import jobs
from tenure.cli.locks import locks
from tenure.cli.migrate import migrate
from tenure.cli.output import Screen
from tenure.cli.queues import queues
from tenure.cli.replicas import prune, recover, replicas
from tenure.cli.target import store_options
from tenure.cli.timers.commands import timers
from tenure.cli.worker import ping, worker

__all__ = ["tenure"]


class _Command(click.Group):
    """Who asks for JSON gets one document also for a command line that makes no sense."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> NoReturn:
        args = [*(sys.argv[1:] if args is None else args)]
        options = args[: args.index("--")] if "--" in args else args
        if "--json" not in options:
            super().main(args, *rest, **extra)
        screen = Screen(as_json=True)
        try:
            sys.exit(super().main(args, *rest, **{**extra, "standalone_mode": False}))
        except click.UsageError as error:
            screen.failure("UsageError", error.format_message())
            sys.exit(error.exit_code)
        except click.Abort:
            screen.failure("Aborted", "interrupted")
            sys.exit(1)


@click.group(
    cls=_Command,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  tenure worker shop.tasks:app                 run jobs
  tenure jobs ls --state failed                what went wrong
  tenure locks ls                              who holds what
  tenure timers ls                             what runs when
  tenure --url redis://cache/0 doctor          is this store set up well?
  TENURE_URL=postgresql://db/app tenure migrate

Every command but worker takes --json. It ends with 0 if done, with 1 if you answered no (or
doctor --strict has warnings), with 2 if something is wrong.
Keep passwords out of the command line: put the URL into TENURE_URL.""",
)
@click.version_option(__version__, prog_name="tenure", message="%(prog)s %(version)s")
@store_options
def tenure(url: str | None, namespace: str | None) -> None:
    """Run jobs, and look after the store that the replicas of a service share."""
    del url, namespace  # commands find them in the context


for command in (
    *(worker, ping, jobs, queues, timers, replicas, recover, prune, locks, migrate, doctor),
):
    tenure.add_command(command)
