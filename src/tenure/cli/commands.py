"""The command `tenure` and its subcommands."""

from __future__ import annotations

import click

from tenure import __version__
from tenure.cli.doctor import doctor
from tenure.cli.locks import locks
from tenure.cli.migrate import migrate
from tenure.cli.target import store_options

__all__ = ["tenure"]


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  tenure locks ls                              who holds what
  tenure --url redis://cache/0 doctor          is this store set up well?
  TENURE_URL=postgresql://db/app tenure migrate

Every command takes --json, and ends with 0, or with 2 if something is wrong.
Keep passwords out of the command line: put the URL into TENURE_URL.""",
)
@click.version_option(__version__, prog_name="tenure", message="%(prog)s %(version)s")
@store_options
def tenure(url: str | None, namespace: str | None) -> None:
    """Look after the store that the replicas of a service share."""
    del url, namespace  # commands find them in the context


tenure.add_command(locks)
tenure.add_command(migrate)
tenure.add_command(doctor)
