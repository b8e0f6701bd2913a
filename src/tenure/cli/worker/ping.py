"""`tenure ping`: ask the worker on this machine how it is, for liveness and readiness probes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tenure.cli.options import span
from tenure.cli.screen import Screen
from tenure.cli.target import json_option
from tenure.cli.text import duration
from tenure.supervisor.health import ask_health

__all__ = ["health_option", "ping"]

# A younger process has just been started: its age says nothing.
_LEAST_AGE = 0.1

health_option = click.option(
    "--health",
    metavar="PATH",
    envvar="TENURE_HEALTH",
    type=click.Path(path_type=Path),
    help="The Unix socket at which a worker answers 'tenure ping' [default: $TENURE_HEALTH].",
)


@click.command(
    epilog="""\b
Examples:
  tenure ping --health /run/tenure.sock           liveness
  tenure ping --ready                             readiness, with TENURE_HEALTH set

Exit codes: 0 if the worker answers (and is ready), 1 if not, 2 without --health."""
)
@health_option
@click.option(
    "--ready",
    is_flag=True,
    help="Exit with 0 only if all worker processes have joined and the store answers.",
)
@click.option(
    "--timeout",
    metavar="TIME",
    callback=span,
    default="5s",
    show_default=True,
    help="How long the answer may take.",
)
@json_option
@click.pass_context
def ping(
    context: click.Context, *, health: Path | None, ready: bool, timeout: float, as_json: bool
) -> None:
    """Ask the worker on this machine whether it is alive.

    For the probes of container platforms. Start the worker with the same --health path. While the
    store cannot be reached, a worker is not ready, but alive.
    """
    screen = Screen(as_json=as_json)
    if health is None:
        raise click.UsageError("Name the socket of the worker: --health PATH, or TENURE_HEALTH.")
    try:
        status = ask_health(health, timeout)
    except OSError as error:
        screen.failure("NoAnswer", f"no worker answers at {health}: {error.strerror or error}.")
        context.exit(1)
    screen.answer(status, _in_words(status))
    context.exit(1 if ready and not status.get("ready") else 0)


def _in_words(status: dict[str, Any]) -> str:
    if status.get("stopping"):
        state = "stopping"
    elif status.get("ready"):
        state = "ready"
    elif status.get("waiting_for_store"):
        state = "waiting for its store"
    else:
        state = "starting" if status.get("last_beat_seconds_ago") is None else "not ready"
        state += _why_not(status)
    children = status.get("children", [])
    age = max((child["age_seconds"] for child in children), default=0.0)
    oldest = f", the oldest for {duration(age)}" if age >= _LEAST_AGE else ""
    running = sum(child["running"] for child in children)
    return (
        f"worker {status.get('pid')} is {state}; worker processes: {len(children)}{oldest}; "
        f"running jobs: {running}"
    )


def _why_not(status: dict[str, Any]) -> str:
    """Return what keeps a worker from being ready, as far as its answer shows that."""
    children = [child for child in status.get("children", []) if not child.get("isolated")]
    stopped = [child["pid"] for child in children if not child.get("alive", True)]
    if stopped:
        return f": paused or dead: {_named(stopped)}"
    absent = [child["pid"] for child in children if child.get("replica") is None]
    if absent:
        return f": not joined yet: {_named(absent)}"
    processes = status.get("processes", 0)
    if len(children) < processes:
        return f": {len(children)} of {processes} worker processes have started"
    beat_age = status.get("last_beat_seconds_ago")
    return "" if beat_age is None else f": the store last answered {duration(beat_age)} ago"


def _named(pids: list[int]) -> str:
    return f"process {', '.join(map(str, pids))}"
