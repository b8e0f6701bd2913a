"""Weighted fair sharing of a worker between its queues: the order and size of claims.

A claim takes jobs from its first queue until that is empty or the claim is full, so the order
decides which queue is served. Each queue has a virtual time that advances by 1 / weight with every
job, and the queue with the lowest virtual time comes first. The virtual time of an empty queue
follows the others, so that it collects no credit.

Bound: between two jobs of a queue that always has waiting jobs, every other such queue gets at most
its weight's share, one slice, and what one claim takes from a queue that was empty before. Each
worker decides for itself, and none of this is stored.
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
# While several queues have jobs, a claim requests one queue's part of the free slots, but at least
# this many: with fifty busy queues a claim per job would cost more than the jobs.
_SLICE = 10


class Turn(Struct, frozen=True):
    """The queues and the size of a claim."""

    queues: tuple[str, ...]
    limit: int


@dataclass(slots=True)
class _Queue:
    name: str
    weight: int
    served: float
    """Its virtual time: the jobs it gave, divided by its weight."""
    is_empty: bool = False
    """Whether its last claim returned no job."""


class Shares:
    """Computes the claims of one worker. Without weights the order of the queues is strict."""

    def __init__(
        self, queues: Sequence[str], weights: Sequence[int] = (), chances: Sequence[float] = ()
    ) -> None:
        """`chances` in [0, 1), one per queue, decide which queue comes first.

        Otherwise processes that run only a few jobs would all begin with the same queue.
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
        """Return the next claim if `want` more jobs could start."""
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
        """Record the queues of the jobs that a claim returned. `is_full`: it got all it requested.

        A full claim has not visited the queues after the last one that gave a job.
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
    """Return the names and weights of a queues option; without weights the order is strict."""
    if isinstance(queues, Mapping) and queues:
        return check_weights(queues)
    if isinstance(queues, str) or not isinstance(queues, Sequence) or not queues:
        msg = (
            "queues must be a list of at least one name, such as ['default'], or names with "
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
