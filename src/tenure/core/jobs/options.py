"""Options of a job that only `core` reads. Stores keep them as one opaque text.

So a new option needs no change in any store.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

__all__ = ["JobOptions", "read_options", "write_options"]


class JobOptions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options of a job that stores do not interpret."""

    retry: str = ""
    """Its retries, as `policy.write_backoff` writes them; empty: those of its task."""
    rerun: bool = True
    """Whether it may run again after it was lost or interrupted."""


_DEFAULT = JobOptions()
# Unreadable options may have said that a second run does harm.
_UNREADABLE = JobOptions(rerun=False)
_decoder = msgspec.json.Decoder(JobOptions)


def write_options(*, retry: str = "", rerun: bool = True) -> str:
    """Return the stored form of options; empty if all have their defaults."""
    options = JobOptions(retry=retry, rerun=rerun)
    return "" if options == _DEFAULT else msgspec.json.encode(options).decode()


def read_options(text: str) -> JobOptions:
    """Read stored options. With unreadable options a job does not run again after a loss."""
    if not text:
        return _DEFAULT
    try:
        return _decoder.decode(text)
    except (ValueError, RecursionError):
        return _UNREADABLE
