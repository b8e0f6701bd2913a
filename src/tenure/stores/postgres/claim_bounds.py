"""Where claims begin to look for jobs while an old snapshot is open.

PostgreSQL cannot remove the index entries of jobs that were claimed since an old snapshot was
taken. They come before the first waiting job, and a claim that begins at the first entry visits all
of them. `Bounds` remembers for each queue and priority up to which due time claims have taken all
jobs, and the next claim begins there.

Jobs can arrive before a bound: a job that is handed back keeps its due time, and a transaction can
stay open for long after it has enqueued a job. So bounds are used only after a claim from the
first entry on was expensive, and once a second a claim begins at the first entry all the same.
Bounds can delay such jobs, but lose none. `Jobs.claim` calls `begin` before each claim and `end`
after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Bounds", "Look", "expensive"]

_PRIORITIES: Final = 10
# A claim looks up the first jobs of each priority, twice, each through up to four pages of the
# index. One that needs more pages than these walks over entries of jobs that are gone.
_QUEUE_PAGES: Final = 100
_JOB_PAGES: Final = 4
# Claims from the first entry on come once a second, and take one hundredth of the time at most.
_WHOLE_EVERY: Final = 1.0
_WHOLE_SHARE: Final = 100
# Transactions that are open for longer hold no bound back, should they have enqueued a job.
_LONG_MICROS: Final = 1_000_000
_LOOKS_MAX: Final = 2000
_FIRST: Final = -(2**63)


def expensive(queues: int, limit: int) -> int:
    """Return the number of pages above which a claim for up to `limit` jobs is expensive."""
    return _QUEUE_PAGES * queues + _JOB_PAGES * limit


@dataclass(frozen=True, slots=True)
class Look:
    """What one claim has seen.

    `snapshot` has the number of the claim's transaction, and then the snapshot before the look, as
    the server writes it. `at` is an instant before the transaction had this number. `taken` has
    queue, priority and due time in microseconds of each job, in order. `moved` jobs had waited for
    their time until this look.
    """

    at: int
    snapshot: str
    open: Sequence[str]
    taken: Sequence[tuple[str, int, int]]
    limit: int
    moved: int = 0


@dataclass(slots=True, eq=False)
class _Line:
    """The bounds of a queue, in milliseconds."""

    later: int = _FIRST
    """Of jobs that wait for their time."""
    ready: list[int] = field(default_factory=lambda: [_FIRST] * _PRIORITIES)
    """Of the others, by priority."""


class Bounds:
    """The bounds of all queues that one store object claims from."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}  # empty unless claims are expensive
        self._whole_at = 0.0
        self._whole_pause = _WHOLE_EVERY
        # Recent claims: the instant, and the number that their transaction got after it.
        self._looks: deque[tuple[int, int]] = deque(maxlen=_LOOKS_MAX)

    def begin(self, queues: Sequence[str], now: float) -> list[str] | None:
        """Return where a claim at the local time `now` begins: 11 numbers for each queue.

        None: at the first entry.
        """
        if self.whole_in(now) <= 0 or any(queue not in self._lines for queue in queues):
            return None
        lines = [self._lines[queue] for queue in queues]
        return [str(start) for line in lines for start in (line.later, *line.ready)]

    def whole_in(self, now: float) -> float:
        """Return in how many seconds a claim begins at the first entry again."""
        return max(0.0, self._whole_at + self._whole_pause - now) if self._lines else 0.0

    def end(
        self,
        queues: Sequence[str],
        starts: list[str] | None,
        look: Look | None,
        began: float,
        now: float,
    ) -> None:
        """Learn from a claim from `starts` on, which took from `began` until `now`.

        `look` is None if the claim was not expensive and began at the first entry.
        """
        if look is None or (self._looks and look.at < self._looks[-1][0] - _LONG_MICROS):
            self._lines.clear()  # or the clock was set back
            self._looks.clear()
        if look is None:
            return
        if starts is None:
            self._whole_at = now
            self._whole_pause = max(_WHOLE_EVERY, _WHOLE_SHARE * (now - began))
            for queue in queues:
                self._lines.setdefault(queue, _Line())
        if self._lines and look.limit > 0:
            self._raise(look, self._complete_until(look))

    def _complete_until(self, look: Look) -> int | None:
        """Return a millisecond before which no job is due that a look could not see yet.

        A transaction gets its number before the jobs in it get their due times. So what has a
        higher number than an earlier look is due after that look. All other transactions must have
        ended before this look, except for those that are open for long: their jobs come late.
        """
        number, _, end, running = look.snapshot.split(":")
        self._looks.append((look.at, int(number)))
        while len(self._looks) > 1 and self._looks[1][0] <= look.at - _LONG_MICROS:
            self._looks.popleft()
        first_at, first_number = self._looks[0]
        not_long = first_number if first_at <= look.at - _LONG_MICROS else 0
        numbers = [int(other) for other in running.split(",") if other]
        least = min([other for other in numbers if other >= not_long], default=int(end))
        return max((at // 1000 for at, number in self._looks if number <= least), default=None)

    def _raise(self, look: Look, complete: int | None) -> None:
        """Move the bounds to `complete`, but not past jobs that may be left."""
        *_, (last_queue, last_priority, last_due) = look.taken or [("", 0, 0)]
        is_full = len(look.taken) >= look.limit
        for queue in look.open:
            line = self._lines.setdefault(queue, _Line())
            # A claim ends as many pauses as it may take jobs, in the same order.
            if look.moved < look.limit and complete is not None:
                line.later = complete
            for priority in range(_PRIORITIES):
                if complete is not None:
                    line.ready[priority] = complete
                if is_full and (queue, priority) == (last_queue, last_priority):
                    line.ready[priority] = min(line.ready[priority], last_due // 1000)
                    return  # the claim has not searched further
