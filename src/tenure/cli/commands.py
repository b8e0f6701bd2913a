"""The command `tenure` and its subcommands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from tenure import __version__
from tenure.cli.dashboard import dashboard
from tenure.cli.doctor.command import doctor
from tenure.cli.groups import CommandGroup
from tenure.cli.jobs.commands import jobs
from tenure.cli.locks.commands import locks
from tenure.cli.maintenance import prune, recover
from tenure.cli.migrate import migrate
from tenure.cli.queues import queues
from tenure.cli.replicas import replicas
from tenure.cli.screen import Screen
from tenure.cli.target import store_options
from tenure.cli.timers.commands import timers
from tenure.cli.top.command import top
from tenure.cli.why import why
from tenure.cli.worker.command import worker
from tenure.cli.worker.ping import ping

__all__ = ["tenure"]


class _Program(CommandGroup):
    """The outermost group; with --json, usage errors are one JSON document too."""

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
    cls=_Program,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  tenure worker shop.tasks:app                  run jobs and timers
  tenure dashboard                              show everything in a browser
  tenure top                                    show everything in this terminal
  tenure jobs ls --state failed                 list failed jobs
  tenure locks ls                               list locks and their holders
  tenure timers ls                              list timers and their next ticks
  tenure why mail                               explain a job, timer, queue or lock
  tenure --url redis://cache/0 doctor           check a store and its workers
  TENURE_URL=postgresql://db/app tenure migrate

Every command except worker takes --json. Exit codes: 0 if done; 1 if you answered no, or if what
was asked about is not well; 2 after an error. 'jobs watch' has 3 and 4, too: see its --help.
Keep passwords out of the command line: put the URL into TENURE_URL.""",
)
@click.version_option(__version__, prog_name="tenure", message="%(prog)s %(version)s")
@store_options
def tenure(url: str | None, namespace: str | None, app_path: str | None) -> None:
    """Run workers, and operate jobs, queues, timers and locks of a store."""
    del url, namespace, app_path  # commands read them from the context


for command in (
    *(
        worker,
        dashboard,
        top,
        ping,
        jobs,
        queues,
        timers,
        replicas,
        recover,
        prune,
        locks,
        why,
        migrate,
        doctor,
    ),
):
    tenure.add_command(command)
