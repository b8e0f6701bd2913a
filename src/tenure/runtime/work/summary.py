"""Describes in one line of the log what a worker does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tenure.core.safe_text import safe
from tenure.core.schedules.definition import Plan

__all__ = ["intentions"]

_VERBS = (("timer", "runs the timers"), ("schedule", "keeps the schedules"))


def intentions(
    queues: Sequence[str], weights: Sequence[int], tasks: Iterable[str], plans: Sequence[Plan]
) -> str:
    """Return what a worker does. Timers appear by name, not as tasks of a queue."""
    return "; it ".join(_parts(queues, weights, tasks, plans)) or "has nothing to do"


def _parts(
    queues: Sequence[str], weights: Sequence[int], tasks: Iterable[str], plans: Sequence[Plan]
) -> Iterator[str]:
    runs = {task for plan in plans for task in plan.own_tasks}
    tasks_named = _named(set(tasks) - runs)
    # An app that has only timers needs no text about jobs.
    if queues and (tasks_named or not plans):
        yield f"takes jobs from {_served(queues, weights)}"
        yield f"knows the tasks {tasks_named or '(none)'}"
    for kind, verb in _VERBS:
        names = _named(plan.name for plan in plans if plan.definition.kind == kind)
        if names:
            yield f"{verb} {names}"


def _served(queues: Sequence[str], weights: Sequence[int]) -> str:
    """Return the served queues, and their order if there are several."""
    names = [*map(safe, queues)]
    if len(names) == 1:
        return names[0]
    if not weights:
        return " before ".join(names)
    if len(set(weights)) > 1:
        pairs = zip(names, weights, strict=True)
        names = [f"{name} (weight {weight})" for name, weight in pairs]
    return f"{', '.join(names)} in turn"


def _named(names: Iterable[str]) -> str:
    return ", ".join(sorted(map(safe, names)))
