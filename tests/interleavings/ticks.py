"""Compares the answers that replicas got about their ticks with the state afterwards.

An order that explains each call does not show how replicas use the answers. These checks hold for
any order: a tick runs once, its replica learns of the run, even after a lost reply, and no cursor
goes back.
"""

from collections import defaultdict
from collections.abc import Iterable

from tenure.core.jobs.records import JobRecord
from tenure.core.schedules.documents import read_standing
from tenure.core.schedules.records import ScheduleList
from tenure.core.schedules.ticks import Advance, Advanced
from tests.interleavings.timer_calls import Errand

__all__ = ["Ticks"]


class Ticks:
    """The moves of all replicas, and the answers to them."""

    def __init__(self) -> None:
        self._moves: dict[str, Advance] = {}
        self._answers: dict[str, list[Advanced]] = defaultdict(list)
        self._uncertain: set[str] = set()
        self._runs: dict[tuple[str, int], str] = {}
        self._cursors: dict[str, int] = {}

    def ended(self, errand: Errand) -> None:
        """Note the answer of an errand, or that it was tried without an answer."""
        if errand.name == "forget":
            self._cursors.clear()  # the next schedule of that name starts over
        if not isinstance(errand.about, Advance):
            return
        move = errand.about
        self._moves[move.id] = move
        if errand.is_uncertain or errand.has_failed:
            self._uncertain.add(move.id)
        else:
            assert isinstance(errand.answer, Advanced)
            self._answers[move.id].append(errand.answer)

    def problems(self, answer: object) -> Iterable[str]:
        """Return what is wrong with the state, now that no call is in flight."""
        if isinstance(answer, ScheduleList):
            yield from self._problems_of_cursors(answer)
        elif isinstance(answer, list):
            for job in answer:
                if isinstance(job, JobRecord) and job.id in self._moves:
                    yield from self._problems_of_run(job, self._moves[job.id])

    def _problems_of_run(self, job: JobRecord, move: Advance) -> Iterable[str]:
        answers = self._answers[move.id]
        if move.id not in self._uncertain and not any(
            answer.outcome == "done" for answer in answers
        ):
            yield f"the run {job.id} is there, and its replica was told {answers}"
        if move.seen is not None and not move.forced:
            other = self._runs.setdefault((job.schedule, move.to), job.id)
            if other != job.id:
                yield f"the tick {move.to} of {job.schedule!r} has two runs: {other}, {job.id}"

    def _problems_of_cursors(self, schedules: ScheduleList) -> Iterable[str]:
        cursors: dict[str, int] = {}
        for record in schedules.records:
            standing = read_standing(record.standing)
            if standing is None:
                yield f"the standing of {record.name!r} cannot be read: {record.standing}"
                continue
            cursors[record.name] = standing.cursor
            before = self._cursors.get(record.name, standing.cursor)
            if standing.cursor < before:
                yield f"the cursor of {record.name!r} went back from {before}"
        self._cursors = cursors
