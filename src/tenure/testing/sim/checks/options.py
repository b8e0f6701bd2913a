"""Checks the moves of a timer by the options of its definition: how many runs, and which ticks.

By what was declared, not by what a replica made of it when it asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final

import msgspec

from tenure.core.rules import Every
from tenure.core.ticking import CATCH_UP_MAX, Definition
from tenure.testing.sim.checks.runs import Runs
from tenure.testing.sim.history import Entry

__all__ = ["against_its_options", "declared"]

# Those of the last few ticks are made up for; the clock may be set back a little meanwhile.
_SURELY_LATE: Final = CATCH_UP_MAX // 2


@cache
def declared(text: str) -> Definition:
    """Return a definition as it was planted."""
    return msgspec.json.decode(text, type=Definition)


def against_its_options(entry: Entry, definition: Definition, runs: Runs) -> Iterator[str]:
    """Tell what a move does that its definition does not allow."""
    if entry.job:
        yield from _one_too_many(entry, definition, runs)
    elif entry.outcome == "skipped":
        yield from _skipped(entry, definition, runs)
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
    if entry.detail == "overlap":
        if definition.overlap != "skip":
            yield f"with overlap={definition.overlap!r} a tick waits"
        is_own = definition.each == "replica"
        here, all_ = runs.unfinished_on(entry.key, entry.replica), runs.unfinished(entry.key)
        if not (here if is_own else all_):
            yield "nothing is in its way"
    elif entry.detail == "limit":
        unfinished = runs.unfinished(entry.key)
        if definition.limit is None or unfinished < definition.limit:
            yield f"{unfinished} runs are unfinished, and {definition.limit} may be"


def _held(entry: Entry, definition: Definition, runs: Runs) -> Iterator[str]:
    """Tell of ticks that wait although they should not, or should have made room."""
    if entry.detail != "overlap" or entry.answer != "run" or definition.catch_up == "all":
        return
    if definition.overlap == "skip":
        yield "with overlap='skip' no tick waits"
    if definition.overlap == "cancel_previous" and (left := runs.undisturbed(entry.key)):
        yield f"{left} should have been cancelled"


def _not_made_up(entry: Entry, definition: Definition) -> Iterator[str]:
    """Tell of ticks that were passed by although they should be made up for."""
    rule = definition.rule
    if definition.catch_up != "all" or definition.within is not None or not entry.number:
        return
    assert isinstance(rule, Every)
    if entry.seen and entry.tick + _SURELY_LATE * rule.period_us > entry.now:
        yield f"{entry.number} ticks are not made up for"
