"""Pauses of queues and timers: the same options, words and document for all of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

from tenure.cli.options import point_in_time
from tenure.cli.text import duration, safe

__all__ = ["TIME", "because", "how_long", "length", "pause_options", "time_left"]

F = TypeVar("F", bound=Callable[..., Any])

TIME = "%Y-%m-%d %H:%M:%S"


def pause_options(command: F) -> F:
    """Let a command take --until or --for, which mean the same, and --reason."""
    command = click.option("--reason", default="", help="Why; shown with the pause.")(command)
    return click.option(
        "--until",
        "--for",
        "until",
        metavar="WHEN",
        callback=point_in_time,
        help="When it ends: after a time (2h), or at an instant (18:00, 2026-12-01) [default: when "
        "you end it].",
    )(command)


def how_long(until: datetime | None, now: datetime, otherwise: str) -> str:
    """Return when a pause ends, in full; `otherwise` if it has no end."""
    if until is None:
        return otherwise
    return f"until {until:{TIME}} UTC, for {length(until, now)}"


def time_left(until: datetime | None, now: datetime) -> str:
    """Return how long a pause lasts, for a column of a list."""
    return "until resumed" if until is None else f"for {length(until, now)}"


def because(reason: str) -> str:
    """Return a reason so that a sentence can end after it."""
    reason = safe(reason).rstrip(". ")
    return f": {reason}" if reason else ""


def length(later: datetime, earlier: datetime) -> str:
    """Return the time between two instants; 0 if they are in the wrong order."""
    return duration(max(0.0, (later - earlier).total_seconds()))
