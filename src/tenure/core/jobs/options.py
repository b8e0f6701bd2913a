"""What a job carries for `core` alone. Stores keep it as one opaque text, and never look into it.

So a new option needs no change in any store.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

__all__ = ["JobOptions", "read_options", "write_options"]


class JobOptions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options of a job that no store needs."""

    retry: str = ""
    """When it is tried again, as `policy.write_backoff` writes it; empty: as its task says."""
    rerun: bool = True
    """Whether it may run again after it was lost or interrupted."""


_DEFAULT = JobOptions()
# Options that cannot be read may have said that a second run does harm.
_UNREADABLE = JobOptions(rerun=False)
_decoder = msgspec.json.Decoder(JobOptions)


def write_options(*, retry: str = "", rerun: bool = True) -> str:
    """Return options as they are stored; empty if all have their defaults."""
    options = JobOptions(retry=retry, rerun=rerun)
    return "" if options == _DEFAULT else msgspec.json.encode(options).decode()


def read_options(text: str) -> JobOptions:
    """Return stored options. What cannot be read does not run again after a loss."""
    if not text:
        return _DEFAULT
    try:
        return _decoder.decode(text)
    except (ValueError, RecursionError):
        return _UNREADABLE
