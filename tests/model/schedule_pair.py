"""Two stores under one clock that get the same schedule calls and are compared after each step.

These are the calls of the contract, with any commit; `scheduling_pair` has the calls that Tenure
itself makes. Runs are jobs, so all steps about jobs apply to runs as well.
"""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from msgspec.structs import replace

from tenure.core.clock import Clock
from tenure.core.durations import micros
from tenure.core.jobs.records import NewJob
from tenure.core.schedules.records import (
    DECLARED_ANEW_AFTER,
    Commit,
    Committed,
    Declared,
    Expected,
    Room,
    TickLine,
    Write,
)
from tenure.stores.contract import Store
from tests.contract.job_calls import id_of
from tests.model.job_pair import JobPair, equal
from tests.rig.lookups import decisions

FIRST_RUN = 1000  # ordinary jobs have smaller numbers


class RunPair(JobPair):
    """A pair that also compares schedules and their runs."""

    def __init__(self, connect_to: Callable[[Clock], Store]) -> None:
        super().__init__(connect_to)
        self._run_numbers = count(FIRST_RUN)

    # Steps. A step that refers to something that does not exist yet does nothing.

    def look_for(self, names: Sequence[str] | None, after: str, limit: int) -> None:
        self._same(lambda store: store.schedules.read(names, after=after, limit=limit))
        for name in names or ():
            self._same(lambda store, name=name: decisions(store, name, limit=limit))

    def cancel_run(self, which: int, reason: str) -> None:
        if ids := self._recent_run(which):
            self._same(lambda store: store.jobs.cancel(ids, reason=reason))

    def requeue_run(self, which: int) -> None:
        if ids := self._recent_run(which):
            self._same(lambda store: store.jobs.requeue(ids))

    def _recent_run(self, which: int) -> list[str]:
        runs = [job.id for job in self._inserted.values() if job.schedule]
        return [runs[-1 - which % len(runs)]] if runs else []

    # Comparisons after every step.

    def look(self, prefix: str = "", limit: int = 1000) -> None:
        super().look(prefix, limit)
        ours, theirs = self._both(lambda store: store.schedules.read())
        equal(theirs.now, ours.now, "now")
        names = [record.name for record in ours.records]
        equal([record.name for record in theirs.records], names)
        for our_record, their_record in zip(ours.records, theirs.records, strict=True):
            equal(their_record, our_record, f"the schedule {our_record.name}")
        for name in names:
            self._same(lambda store, name=name: decisions(store, name))

    def _versions(self) -> dict[str, str]:
        """Return the version of each schedule in the specification."""
        records = self._run(self._spec.schedules.read()).records
        return {record.name: record.version for record in records}


class SchedulePair(RunPair):
    """A memory store, which is right by definition, and another one.

    The fence of a run that starts at once is above those of all such runs before it, also of those
    that its schedule had under a former name.
    """

    def __init__(self, connect_to: Callable[[Clock], Store]) -> None:
        super().__init__(connect_to)
        self._commits: list[Commit] = []
        self._first_versions: dict[str, str] = {}
        # By schedule.
        self._last_fences: dict[str, int] = {}
        self.answers: list[Committed] = []
        """The answers of the specification."""

    # Steps.

    def commit(self, commits: Sequence[dict[str, Any]]) -> None:
        """Send commits planned from the current state; `commits` say how they differ from it."""
        versions = self._versions()
        self._first_versions = {**versions, **self._first_versions}
        made = []
        for details in commits:
            self._ends_after(*lengths_of(details))
            number, now = next(self._run_numbers), self._clock.wall()
            made.append(planned(number, now, versions, self._first_versions, details))
            versions |= written_by(made[-1])
        self._commit(made)

    def commit_again(self, which: int) -> None:
        if self._commits:
            self._commit([self._commits[-1 - which % len(self._commits)]])

    def declare(self, rulers: Sequence[tuple[str, str]]) -> None:
        self._ends_after(DECLARED_ANEW_AFTER)
        ours, theirs = self._both(lambda store: store.schedules.declare(rulers))
        equal(_in_order(theirs), _in_order(ours))

    # Calls on both stores.

    def _commit(self, commits: Sequence[Commit]) -> None:
        ours, theirs = self._both(lambda store: store.schedules.commit(commits))
        self._commits += commits
        self.answers += ours
        for commit, our_answer, their_answer in zip(commits, ours, theirs, strict=True):
            equal(_bare(their_answer), _bare(our_answer), f"the answer to {commit.id}")
            self._follow_fences(commit, our_answer, their_answer)
            if our_answer.run is None or their_answer.run is None or commit.run is None:
                equal(their_answer.run, our_answer.run, "the run")
                continue
            self._inserted[our_answer.run.id] = commit.run
            self._compare_records(our_answer.run, their_answer.run)
            if our_answer.run.state == "running":
                self._claimed.append((our_answer.run, their_answer.run))

    def _follow_fences(self, commit: Commit, ours: Committed, theirs: Committed) -> None:
        if ours.outcome not in ("done", "instead") or commit.id in self._seen:
            return
        last = self._last_fences
        for write in commit.writes:
            if write.standing is None:
                last.pop(write.name, None)
            else:
                last[write.name] = max(last.get(name, 0) for name in (write.name, *write.above))
        # A commit can make runs of a schedule that it does not create; their fences do not count.
        if commit.start_on and theirs.run is not None and commit.name in last:
            assert theirs.run.fence > last[commit.name], "a fence that does not rise"
            last[commit.name] = theirs.run.fence


def planned(
    number: int,
    now: int,
    versions: dict[str, str],
    first_versions: dict[str, str],
    details: dict[str, Any],
) -> Commit:
    """Return the commit of a step, for schedules with these versions."""
    name, run = details["name"], details["run"]
    expects = {
        expected: Expected(
            expected,
            {"here": versions.get(expected, ""), "before": first_versions.get(expected, "")}.get(
                which, ""
            ),
            silent_for,
        )
        for expected, which, silent_for in details["expects"]
    }
    tick = now + micros(details["tick_in"])
    return Commit(
        id=id_of(number),
        name=name,
        expects=tuple(expects.values()),
        writes=tuple(_write(**write, expects=expects) for write in details["writes"]),
        declares=details["declares"],
        not_before=now + micros(details["not_before_in"]),
        run=None if run is None else NewJob(id=id_of(number), schedule=name, **run),
        tick=tick,
        start_on=details["start_on"],
        rooms=tuple(
            Room(most, on, None if like is None else _line(tick, like, 1, "instead"))
            for most, on, like in details["rooms"]
        ),
        lines=tuple(_line(tick, like, ticks, "passed") for like, ticks in details["lines"]),
        run_line=None if run is None else _line(tick, "", 1, "ran"),
    )


def written_by(commit: Commit) -> dict[str, str]:
    """Return the versions of what a commit writes, if it is carried out."""
    return {write.name: "" if write.standing is None else commit.id for write in commit.writes}


def lengths_of(details: dict[str, Any]) -> tuple[float, ...]:
    """Return the durations after which something about a commit may end."""
    silences = (silent_for or 0.0 for _, _, silent_for in details["expects"])
    timeout = (details["run"] or {}).get("timeout") or 0.0
    return details["not_before_in"], timeout, *silences


def _write(
    name: str,
    standing: str | None,
    ruler: str,
    definition: str | None,
    above: Sequence[str],
    expects: dict[str, Expected],
) -> Write:
    if standing is not None and not expects[name].version:
        definition = definition or "d"  # an unknown schedule has none to keep
    return Write(name, standing, ruler, definition, tuple(above))


def _line(tick: int, like: str, ticks: int, body: str) -> TickLine:
    return TickLine(like=like, first=tick - ticks + 1, last=tick, ticks=ticks, body=body)


def _bare(answer: Committed) -> Committed:
    """Return an answer without its run, and in one order."""
    heads = tuple(sorted(answer.heads, key=lambda head: head.name))
    return replace(answer, run=None, blocking=tuple(sorted(answer.blocking)), heads=heads)


def _in_order(answer: Declared) -> Declared:
    return Declared(answer.now, sorted(answer.lost))
