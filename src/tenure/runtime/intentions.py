"""What a worker is there for, in words for its log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tenure.core.showing import safe
from tenure.core.ticking import Plan
from tenure.runtime.ticker import TIMERS_QUEUE

__all__ = ["intentions"]

_VERBS = (("timer", "runs the timers"), ("schedule", "keeps the schedules"))


def intentions(queues: Sequence[str], tasks: Iterable[str], plans: Sequence[Plan]) -> str:
    """Say what a worker does; timers by their own names, not as the tasks of a queue."""
    return "; it ".join(_parts(queues, tasks, plans))


def _parts(queues: Sequence[str], tasks: Iterable[str], plans: Sequence[Plan]) -> Iterator[str]:
    runs = {task for plan in plans for task in plan.own_tasks}
    known, served = _named(set(tasks) - runs), [one for one in queues if one != TIMERS_QUEUE]
    # An app that has nothing but timers has no use for words about jobs.
    if served and (known or not plans):
        yield f"takes jobs from {', '.join(map(safe, served))}"
        yield f"knows the tasks {known or '(none)'}"
    for kind, verb in _VERBS:
        names = _named(plan.name for plan in plans if plan.definition.kind == kind)
        if names:
            yield f"{verb} {names}"


def _named(names: Iterable[str]) -> str:
    return ", ".join(sorted(map(safe, names)))
