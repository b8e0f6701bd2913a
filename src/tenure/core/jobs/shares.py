"""Shares: in which order a worker asks its queues, and for how many jobs at a time.

A claim takes jobs from the first queue until that one is empty or the claim is full. So the order
decides which queue is served. With shares, each queue has a virtual time that advances by
1 / weight with every job that it gives, and the queue that is furthest behind is asked first. A
queue that has been empty catches up with the others, so that it saves up no claim to later slots.

The bound: between two jobs of a queue that always has jobs waiting, every other such queue gives
at most its weight's share, one slice, and what one claim takes from a queue that was empty before.
Workers decide each for itself, and no state of this is stored.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct

from tenure.core.leases import check_name
from tenure.errors import ConfigError

__all__ = ["Shares", "Turn", "check_queues", "check_weights"]

_WEIGHT_MAX = 1000
# While several queues have jobs, a claim asks for one queue's part of the free slots, but for so
# many at the least: with fifty busy queues a claim per job would cost more than the jobs.
_SLICE = 10


class Turn(Struct, frozen=True):
    """What to ask the store for."""

    queues: tuple[str, ...]
    limit: int


@dataclass(slots=True)
class _Queue:
    name: str
    weight: int
    served: float
    """Its virtual time: jobs it gave, divided by its weight."""
    is_empty: bool = False
    """Whether it gave nothing when it was last looked at."""


class Shares:
    """The turns of one worker. Without weights the order of the queues is strict."""

    def __init__(
        self, queues: Sequence[str], weights: Sequence[int] = (), chances: Sequence[float] = ()
    ) -> None:
        """`chances` in [0, 1), one per queue, decide which one is the first.

        Processes that live for a few jobs only would all begin with the same queue otherwise.
        """
        self.names = tuple(queues)
        starts = chances or [0.0] * len(weights)
        self._queues = (
            {
                name: _Queue(name, weight, chance / weight)
                for name, weight, chance in zip(queues, weights, starts, strict=True)
            }
            if weights
            else {}
        )

    def turn(self, want: int) -> Turn:
        """Return what to ask for next if `want` more jobs could start."""
        if not self._queues:
            return Turn(self.names, want)
        queues = list(self._queues.values())
        busy = [queue for queue in queues if not queue.is_empty]
        if busy:
            now = min(queue.served for queue in busy)
            for queue in queues:
                queue.served = max(queue.served, now)
        queues.sort(key=lambda queue: (queue.served, not queue.is_empty))
        limit = want
        if len(busy) > 1:
            total = sum(queue.weight for queue in busy)
            limit = min(want, max(_SLICE, math.ceil(want * queues[0].weight / total)))
        return Turn(tuple(queue.name for queue in queues), limit)

    def took(self, turn: Turn, jobs: Iterable[str], *, is_full: bool) -> None:
        """Learn from which queues the jobs of a claim came; `is_full` if it got all it asked for.

        A full claim has looked no further than the last queue that gave a job.
        """
        if not self._queues:
            return
        counts = Counter(jobs)
        serving = [place for place, name in enumerate(turn.queues) if counts[name]]
        looked = max(serving, default=-1) + 1 if is_full else len(turn.queues)
        for name in turn.queues[:looked]:
            queue = self._queues[name]
            queue.served += counts[name] / queue.weight
            queue.is_empty = not counts[name]
        if all(queue.is_empty for queue in self._queues.values()):
            for queue in self._queues.values():
                queue.served = 0.0


def check_queues(queues: object) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the names and the weights of queues as users give them; no weights: strict order."""
    if isinstance(queues, Mapping) and queues:
        return check_weights(queues)
    if isinstance(queues, str) or not isinstance(queues, Sequence) or not queues:
        msg = (
            "queues must be a list of one name or more, such as ['default'], or names with "
            f"weights, such as {{'urgent': 3, 'default': 1}}, not {queues!r}."
        )
        raise ConfigError(msg)
    return tuple(dict.fromkeys(check_name(name, "queue") for name in queues)), ()


def check_weights(weights: Mapping[str, int]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the names and weights of queues that share a worker."""
    for name, weight in weights.items():
        check_name(name, "queue")
        if type(weight) is not int or not 1 <= weight <= _WEIGHT_MAX:
            msg = (
                f"the weight of queue {name!r} must be a whole number from 1 to {_WEIGHT_MAX:,}, "
                f"not {weight!r}."
            )
            raise ConfigError(msg)
    return tuple(weights), tuple(weights.values())
