"""The entry point of the command `tenure`. Imports only what a base install has."""

from __future__ import annotations

import io
import sys

__all__ = ["entry"]

_EXTRA = ("click", "rich")


def entry() -> None:
    """Run the command line. Without the extra `cli`, say how to install it and exit with 2."""
    try:
        from tenure.cli.commands import tenure  # noqa: PLC0415 - a base install lacks its imports
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        sys.stderr.write("tenure: the command line needs an extra: pip install 'tenure[cli]'\n")
        sys.exit(2)
    for stream in (sys.stdout, sys.stderr):
        # A name that this terminal cannot show must not end the command.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    tenure(prog_name="tenure")
