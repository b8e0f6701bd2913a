"""Checks the life of a timer's runs, from the answer that made one to its end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from tenure.core.durations import micros
from tests.sim.history import Entry

__all__ = ["Report", "Runs", "StoredRuns"]

Report: TypeAlias = Callable[[Entry, str], None]
_State: TypeAlias = Literal["waiting", "running", "finished"]


@dataclass(eq=False, slots=True)
class _Run:
    name: str
    tick: int
    again: bool
    state: _State = "waiting"
    fence: int = 0
    finished: int = 0
    """When it ended."""
    is_cancelling: bool = False
    is_gone: bool = False
    """Whether the store has lost it."""
    granted: dict[int, str] = field(default_factory=dict)
    """The replica of each fence."""
    lost: set[int] = field(default_factory=set)
    """The fences whose replica was taken for dead."""
    tries: dict[int, int] = field(default_factory=dict)
    """How often it has begun under each fence."""
    former: dict[int, str] = field(default_factory=dict)
    """The replica of each fence from before the store has lost it."""

    def fall_back(self, state: _State, fence: int, finished: int, *, is_cancelling: bool) -> None:
        """Fall back to what the store knows now; later claimers do not know that."""
        self.state, self.fence, self.finished = state, fence, finished
        self.is_cancelling = is_cancelling
        ever = self.former | self.granted
        self.granted = {number: replica for number, replica in ever.items() if number <= fence}
        self.former = {number: replica for number, replica in ever.items() if number > fence}
        self.lost |= set(self.former)


@dataclass(slots=True)
class StoredRuns:
    """What the store knows of runs and replicas."""

    runs: dict[str, tuple[_State, int, int, bool]] = field(default_factory=dict)
    expires: dict[str, int] = field(default_factory=dict)


class Runs:
    """All runs of a history so far."""

    def __init__(self, report: Report, may_run: Callable[[str, str, str], bool]) -> None:
        self._report = report
        self._may_run = may_run
        """Whether a process that runs one timer may begin a run of another name as that one.

        A run may outlive the name that it was made under.
        """
        self._runs: dict[str, _Run] = {}
        self._unfinished: defaultdict[str, set[str]] = defaultdict(set)
        self._owners: dict[str, str] = {}
        """The process of each replica."""
        self._expires: dict[str, int] = {}
        """When each replica is taken for dead, unless it is heard of before."""
        self._notified: set[tuple[str, str]] = set()
        """Processes, and replicas that they know to be lost."""

    def unfinished(self, name: str) -> int:
        """Return how many runs of a timer there are that have not ended."""
        return len(self._unfinished[name])

    def unfinished_on(self, name: str, replica: str) -> int:
        """Return how many of them run on a replica."""
        live = [self._runs[job] for job in self._unfinished[name]]
        return sum(run.state == "running" and run.granted[run.fence] == replica for run in live)

    def ended(self, job: str) -> int | None:
        """Return when a run has ended; None if it has not, and 0 if the store does not know it."""
        run = self._runs.get(job)
        if run is None or run.is_gone:
            return 0
        return run.finished if run.state == "finished" else None

    def stored(self) -> StoredRuns:
        """Return what the store knows now."""
        runs = {
            id_: (run.state, run.fence, run.finished, run.is_cancelling)
            for id_, run in self._runs.items()
            if not run.is_gone
        }
        return StoredRuns(runs, dict(self._expires))

    def fall_back(self, stored: StoredRuns) -> None:
        """Know what the store knows after a loss."""
        self._expires = dict(stored.expires)
        self._unfinished.clear()
        for id_, run in self._runs.items():
            run.is_gone = id_ not in stored.runs
            state, fence, ended, is_cancelling = stored.runs.get(id_, ("finished", 0, 0, False))
            run.fall_back(state, fence, ended, is_cancelling=is_cancelling)
            if state != "finished":
                self._unfinished[run.name].add(id_)

    def see(self, entry: Entry) -> None:
        match entry.what:
            case "joined":
                self._owners[entry.replica] = entry.holder
                self._expires[entry.replica] = entry.now + micros(entry.ttl)
            case "beat" if entry.ok:
                self._expires[entry.replica] = entry.now + micros(entry.ttl)
            case "event" if entry.detail == "ReplicaLost":
                self._notified.add((entry.by, entry.replica))
            case "declared dead":
                self._expires.pop(entry.replica, None)
            case _ if entry.job in self._runs:
                self._see_run(entry, self._runs[entry.job])
            case "ticked":
                self._report(entry, "nobody was given this run")

    def born(self, entry: Entry) -> None:
        """Take notice of a new run; who got it is told by the entry that follows."""
        if entry.replica and self._expires.get(entry.replica, 0) <= entry.now:
            self._report(entry, "its replica is dead")
        run = _Run(entry.key, entry.tick, entry.again)
        if (gone := self._runs.get(entry.job)) is not None:
            # A move that the store has lost arrives once more.
            run.former, run.lost, run.tries = gone.former, gone.lost, gone.tries
        self._runs[entry.job] = run
        self._unfinished[entry.key].add(entry.job)

    def _see_run(self, entry: Entry, run: _Run) -> None:
        match entry.what:
            case "claimed":
                self._claimed(entry, run)
            case "settled" if entry.answer in ("settled", "cancelled"):
                self._settled(entry, run)
            case "recovered":
                self._recovered(entry, run)
            case "cancelled" if entry.answer == "requested":
                run.is_cancelling = True
            case "cancelled" if entry.answer == "cancelled":
                self._end(run, entry)
            case "ticked":
                self._began(entry, run)

    def _claimed(self, entry: Entry, run: _Run) -> None:
        if run.granted.get(entry.fence) == entry.replica and run.fence == entry.fence:
            return  # a repeat
        if run.state != "waiting":
            self._report(entry, f"it is {run.state}, and is given out once more")
        if run.granted and not run.again:
            self._report(entry, "this run may not run again")
        if entry.fence <= run.fence:
            self._report(entry, f"its fence was {run.fence}")
        run.state, run.fence = "running", entry.fence
        run.granted[entry.fence] = entry.replica

    def _settled(self, entry: Entry, run: _Run) -> None:
        if run.state != "running" or run.fence != entry.fence:
            self._report(entry, f"it is {run.state} under the fence {run.fence}")
        if entry.outcome in ("retry", "handed back"):
            self._comes_back(run, entry)
        else:
            self._end(run, entry)

    def _recovered(self, entry: Entry, run: _Run) -> None:
        run.lost.add(run.fence)
        if entry.outcome == "waiting":
            if not run.again:
                self._report(entry, "this run may not run again")
            run.state = "waiting"
        else:
            self._end(run, entry)

    def _comes_back(self, run: _Run, entry: Entry) -> None:
        if run.again and not run.is_cancelling:
            run.state = "waiting"
        else:
            self._end(run, entry)

    def _end(self, run: _Run, entry: Entry) -> None:
        run.state, run.finished = "finished", entry.now
        self._unfinished[run.name].discard(entry.job)

    def _began(self, entry: Entry, run: _Run) -> None:
        replica = run.granted.get(entry.fence) or run.former.get(entry.fence)
        is_this = run.tick == entry.tick and self._may_run(entry.by, entry.key, run.name)
        if replica is None or not is_this:
            self._report(entry, "nobody was given this run")
            return
        if self._owners.get(replica) != entry.by:
            self._report(entry, f"{self._owners.get(replica)} was given this run")
        if entry.number != run.tries.get(entry.fence, 0) + 1:
            self._report(
                entry, f"it has begun {run.tries.get(entry.fence, 0)} times under this fence"
            )
        run.tries[entry.fence] = entry.number
        self._is_live(entry, run, replica)

    def _is_live(self, entry: Entry, run: _Run, replica: str) -> None:
        """Demand that a run is under way as it begins.

        Only whose replica was taken for dead may begin it all the same, and not know better.
        """
        if run.state == "running" and run.fence == entry.fence:
            return
        if entry.fence not in run.lost:
            self._report(entry, f"it begins while it is {run.state}, under the fence {run.fence}")
        elif (entry.by, replica) in self._notified:
            self._report(entry, "it begins although its replica is known to be lost")
