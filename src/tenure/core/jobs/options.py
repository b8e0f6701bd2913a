"""Options of a job that only `core` reads. Stores keep them as one opaque text.

So a new option needs no change in any store.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

__all__ = ["JobOptions", "read_options", "with_headers", "write_options"]


class JobOptions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options of a job that stores do not interpret."""

    retry: str = ""
    """Its retries, as `policy.write_backoff` writes them; empty: those of its task."""
    rerun: bool = True
    """Whether it may run again after it was lost or interrupted."""
    headers: dict[str, str] = {}
    """What travels with the job beside its arguments, as `check_headers` has returned it."""


_DEFAULT = JobOptions()
# Unreadable options may have said that a second run does harm.
_UNREADABLE = JobOptions(rerun=False)
_decoder = msgspec.json.Decoder(JobOptions)


def write_options(
    *, retry: str = "", rerun: bool = True, headers: Mapping[str, str] | None = None
) -> str:
    """Return the stored form of options; empty if all have their defaults."""
    return _written(JobOptions(retry=retry, rerun=rerun, headers=dict(headers or {})))


def with_headers(text: str, headers: Mapping[str, str]) -> str:
    """Return stored options with these headers in place of theirs."""
    return _written(replace(read_options(text), headers=dict(headers)))


def _written(options: JobOptions) -> str:
    return "" if options == _DEFAULT else msgspec.json.encode(options).decode()


def read_options(text: str) -> JobOptions:
    """Read stored options. With unreadable options a job does not run again after a loss."""
    if not text:
        return _DEFAULT
    try:
        return _decoder.decode(text)
    except (ValueError, RecursionError):
        return _UNREADABLE
