"""Checks the moves of a timer by the options of its definition: how many runs, and which ticks.

By what was declared, not by what a replica made of it when it asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final

import msgspec

from tenure.core.calendar.rules import Every
from tenure.core.durations import micros
from tenure.core.schedules.definition import Definition
from tenure.core.schedules.steps import CATCH_UP_MAX
from tests.sim.checks.runs import Runs
from tests.sim.history import Entry

__all__ = ["against_its_options", "declared"]

# Those of the last few ticks are made up for; the clock may be set back a little meanwhile.
_SURELY_LATE: Final = CATCH_UP_MAX // 2
# An end that is further in the future is one by a clock that was wrong.
_AHEAD: Final = micros(60.0)


@cache
def declared(text: str) -> Definition:
    """Return a definition as it was planted."""
    return msgspec.json.decode(text, type=Definition)


def against_its_options(
    entry: Entry, definition: Definition, runs: Runs, last_job: str
) -> Iterator[str]:
    """Tell what a move does that its definition does not allow.

    `last_job` is the last run; empty if there was none, or if it is not known how that stands.
    """
    if entry.job:
        yield from _one_too_many(entry, definition, runs)
        yield from _too_soon(entry, definition, runs, last_job)
    elif entry.outcome == "skipped":
        yield from _skipped(entry, definition, runs)
        if definition.rests and entry.detail == "overlap" and runs.ended(last_job) is None:
            yield f"with after='completion' a tick waits for the last run, {last_job}"
    elif entry.outcome == "held":
        yield from _held(entry, definition, runs)
    if entry.outcome != "held":
        yield from _not_made_up(entry, definition)


def _one_too_many(entry: Entry, definition: Definition, runs: Runs) -> Iterator[str]:
    most, unfinished = _most(definition), runs.unfinished(entry.key)
    if most is not None and unfinished >= most:
        yield f"{unfinished} runs are unfinished, {most} may be"
    most, unfinished = _most_here(definition), runs.unfinished_on(entry.key, entry.replica)
    if most is not None and entry.answer == "run" and unfinished >= most:
        yield f"{unfinished} runs are unfinished on this replica, {most} may be"


def _too_soon(entry: Entry, definition: Definition, runs: Runs, last_job: str) -> Iterator[str]:
    """Tell of a tick that does not wait for the end of the last run, and for its pause."""
    if not definition.rests or entry.answer != "run":
        return
    ended = runs.ended(last_job)
    if ended is None:
        yield f"the last run {last_job} has not ended"
    elif entry.now < ended + micros(definition.rest) and ended - entry.now <= _AHEAD:
        yield f"the last run {last_job} has ended at {ended}"
    if entry.now < entry.seen + micros(definition.rest):
        yield f"the last tick was decided at {entry.seen}"


def _most(definition: Definition) -> int | None:
    """Return how many runs may be unfinished, over all replicas."""
    is_one = definition.each == "cluster" and definition.overlap != "allow"
    return 1 if is_one else definition.limit


def _most_here(definition: Definition) -> int | None:
    """Return how many of them may be on the replica that has the tick; triggers do not count."""
    is_one = definition.each == "replica" and definition.overlap != "allow"
    return 1 if is_one else definition.per_replica


def _skipped(entry: Entry, definition: Definition, runs: Runs) -> Iterator[str]:
    """Tell of ticks that were let fall without need, or although they should wait."""
    here, all_ = runs.unfinished_on(entry.key, entry.replica), runs.unfinished(entry.key)
    is_own = definition.each == "replica"
    match entry.detail:
        case "overlap":
            if definition.overlap != "skip":
                yield f"with overlap={definition.overlap!r} a tick waits"
            if not (here if is_own else all_):
                yield "nothing is in its way"
        case "limit":
            if definition.limit is None or all_ < definition.limit:
                yield f"{all_} runs are unfinished, and {definition.limit} may be"
        case "per_replica":
            if not is_own or definition.per_replica is None or here < definition.per_replica:
                yield f"{here} runs are unfinished here, and {definition.per_replica} may be"


def _held(entry: Entry, definition: Definition, runs: Runs) -> Iterator[str]:
    """Tell of ticks that wait although they should not."""
    here, all_ = runs.unfinished_on(entry.key, entry.replica), runs.unfinished(entry.key)
    match entry.detail:
        case "full":
            most = _most(definition)
            if most is None or all_ < most:
                yield f"{all_} runs are unfinished, and {most} may be"
            never_waits = ("allow",) if definition.catch_up == "all" else ("allow", "skip")
            if entry.answer == "run" and definition.overlap in never_waits:
                yield f"with overlap={definition.overlap!r} no tick waits"
        case "per_replica":
            if definition.per_replica is None or here < definition.per_replica:
                yield f"{here} runs are unfinished here, and {definition.per_replica} may be"


def _not_made_up(entry: Entry, definition: Definition) -> Iterator[str]:
    """Tell of ticks that were passed by although they should be made up for."""
    rule = definition.rule
    if definition.catch_up != "all" or definition.within is not None or not entry.number:
        return
    assert isinstance(rule, Every)
    if entry.seen and entry.tick + _SURELY_LATE * rule.period_us > entry.now:
        yield f"{entry.number} ticks are not made up for"
