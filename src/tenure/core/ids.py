"""Ids of jobs: UUIDv7, made by whoever asks for the job, so that asking twice is harmless."""

from __future__ import annotations

import re

__all__ = ["is_job_id", "job_id"]

_FORM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def job_id(wall: int, token: str) -> str:
    """Return an id for the instant `wall` (microseconds) with 74 of the 128 random bits of `token`.

    Ids sort by their millisecond, and nobody can guess one.
    """
    time = f"{wall // 1000:012x}"
    variant = "89ab"[int(token[3], 16) & 3]
    return f"{time[:8]}-{time[8:]}-7{token[:3]}-{variant}{token[4:7]}-{token[7:19]}"


def is_job_id(text: str) -> bool:
    """Return whether `text` has the form of an id; what has not need not be looked up."""
    return _FORM.fullmatch(text) is not None
