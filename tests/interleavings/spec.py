"""The memory store as a value: its next answer from each state that it may be in.

A state carries the fences that the store under test has given, as far as they are known. Where a
reply was lost, the fence is the specification's own until an answer tells the real one.
"""

import math
import pickle
from collections.abc import Iterable, Iterator
from itertools import chain, combinations
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tenure.core.durations import micros
from tenure.core.jobs.records import Claimed, JobRecord
from tenure.core.jobs.replicas import Beat
from tenure.core.jobs.states import FINISHED
from tenure.core.leases import Busy, Lease, Mark
from tenure.core.schedules.records import Committed, ScheduleList
from tenure.stores.memory import MemoryStore
from tenure.stores.memory.database import Key, Namespace, Waiter
from tenure.stores.memory.job_tables import Job
from tenure.testing import ManualClock
from tests.interleavings.readings import UNKNOWN, Call, readings

HELD_UP = 0.1  # seconds after which a caller on PostgreSQL should look again
CLOSE = 0.001  # seconds, the precision of the next due time of a queue
AGES = 1e9  # seconds for which no lock is idle
# Revisions of jobs differ between stores; fences are compared by `bind`.
_NOT_COMPARED = {JobRecord: ("fence", "revision"), Lease: ("fence",), Mark: ("fence",)}


class State:
    """The data of the specification, and which of its fences are those of the store under test."""

    __slots__ = ("bound", "data", "last")

    def __init__(self) -> None:
        self.data = Namespace()
        self.bound: set[tuple[str, int]] = set()
        self.last: dict[str, int] = {}

    def copy(self) -> "State":
        other = State.__new__(State)
        other.data, other.bound, other.last = pickle.loads(  # our own
            pickle.dumps((self.data, self.bound, self.last), pickle.HIGHEST_PROTOCOL)
        )
        return other

    def __getstate__(self) -> None:
        raise TypeError("copy it")

    @property
    def fingerprint(self) -> str:
        """Equal for two states that always give the same answers."""
        jobs = self.data.jobs
        parts = (
            sorted((name, repr(key)) for name, key in self.data.keys.items()),
            sorted(self.data.marks.items(), key=lambda item: item[0]),
            sorted((id_, _without_revision(job)) for id_, job in jobs.jobs.items()),
            sorted((id_, repr(record)) for id_, record in jobs.replicas.items()),
            sorted(jobs.keys.items(), key=lambda item: item[0]),
            sorted((name, pause.until, pause.reason) for name, pause in jobs.pauses.items()),
            sorted((name, repr(record)) for name, record in self.data.schedules.items()),
            sorted(self.bound),
            sorted(self.last.items()),
        )
        return repr(parts)

    def bind(self, name: str, ours: int, theirs: int) -> bool:
        """Adopt the store's fence for ours; return whether it is possible."""
        if (name, ours) in self.bound:
            return ours == theirs
        if theirs <= self.last.get(name, 0):
            return False
        self.last[name] = theirs
        self.bound.add((name, theirs))
        return True


def _without_revision(job: Job) -> str:
    revision, job.revision = job.revision, 0
    try:
        return repr(job)
    finally:
        job.revision = revision


class Spec:
    """Runs calls on states."""

    def __init__(self, clock: ManualClock) -> None:
        self._store = MemoryStore("memory://", namespace="spec", clock=clock)
        self._store._loop = self
        self.applied = 0

    def after(
        self,
        state: State,
        call: Call,
        answer: Any,
        *,
        held: Iterable[str] = (),
        strict: bool = True,
    ) -> Iterator[State]:
        """Return the states that the call can lead to with this answer.

        `held` are jobs, replicas and schedules that others may have locked, where the store does
        not wait for them. A call that is not `strict` may have read one thing earlier than another.
        """
        if call.name == "prune" and call.details["idle"] < AGES:
            # The number of forgotten locks differs between stores, and so do the expired leases
            # that are forgotten with them.
            expired = [name for name, key in state.data.keys.items() if key.expired]
            for names in _subsets(sorted(expired)):
                after = state.copy()
                for name in names:
                    after.data.keys[name].expired.clear()
                yield after
            return
        if not strict and _is_held_up(call, answer):
            yield _refused(state.copy(), call, self._store.clock.wall())
        for hidden in _subsets(self._relevant(state, call, held)):
            for decided, decided_answer in readings(call, answer, held, strict=strict):
                after = state.copy()
                self.applied += 1
                with_hidden = _Hidden(after.data, hidden)
                ours = self._answer(after.data, decided)
                with_hidden.put_back()
                if answer is UNKNOWN or _fits(after, call, decided_answer, ours, strict=strict):
                    yield after

    def answer(self, state: State, call: Call) -> Any:
        """Return what the specification answers, without a change."""
        return self._answer(state.copy().data, call)

    def _answer(self, data: Namespace, call: Call) -> Any:
        self._store._database._namespaces["spec"] = data
        try:
            call.made_on(self._store).send(None)
        except StopIteration as end:
            return end.value
        raise AssertionError("the memory store never waits")

    def _relevant(self, state: State, call: Call, held: Iterable[str]) -> list[str]:
        passed_states = PASSED_BY.get(call.name)
        if passed_states is None or (call.name == "jobs.orphans" and "replica" in call.details):
            return []
        jobs = state.data.jobs
        names = [
            name for name in held if name in jobs.jobs and jobs.jobs[name].state in passed_states
        ]
        if call.name == "jobs.orphans":
            names += [name for name in held if name in jobs.replicas]
        return sorted(names)[:_HELD_MAX]


_RUNNING = frozenset({"running"})
PASSED_BY: dict[str, frozenset[str]] = {
    "jobs.claim": frozenset({"waiting"}),
    "jobs.orphans": _RUNNING,
    "prune": FINISHED,
}
"""Calls that skip locked jobs on PostgreSQL, with the states of these jobs.

The orphans of one replica are waited for.
"""

_HELD_MAX = 6  # two to the power of it are tried


class _Hidden:
    """Jobs and replicas that a call does not see, because another call has them locked."""

    def __init__(self, data: Namespace, names: Iterable[str]) -> None:
        self._jobs = data.jobs
        self._replicas_before = dict(self._jobs.replicas)
        self._hidden_jobs = {n: self._jobs.jobs.pop(n) for n in names if n in self._jobs.jobs}
        self._hidden = {n: self._jobs.replicas.pop(n) for n in names if n in self._jobs.replicas}
        for name in self._hidden_jobs:
            self._jobs.unfinished.pop(name, None)

    def put_back(self) -> None:
        """Make them visible again; a replica that still has jobs stays, dead."""
        for name, job in self._hidden_jobs.items():
            self._jobs.jobs[name] = job
            if job.state not in FINISHED:
                self._jobs.unfinished[name] = job
        self._jobs.replicas.update(self._hidden)
        for job in self._hidden_jobs.values():
            replica = self._replicas_before.get(job.replica)
            if replica is not None and job.replica not in self._jobs.replicas:
                replica.dead = True
                self._jobs.replicas[replica.id] = replica


def _is_held_up(call: Call, answer: Any) -> bool:
    """Return whether an ended lease is in the way because a late call about it has it locked."""
    return call.name == "leases.acquire" and isinstance(answer, Busy) and answer.retry_in == HELD_UP


def _refused(state: State, call: Call, now: int) -> State:
    """Return the state after a refusal that only asks to look again soon."""
    holder, life = call.details["holder"], micros(call.details["waiting"])
    key = state.data.key(call.arguments[0], now)
    if life:
        place = key.line.get(holder)
        wish = (call.details["limit"], micros(call.details["ttl"]), call.details["meta"])
        arrived = place.arrived if place else now
        key.line[holder] = Waiter(holder, *wish, arrived, now, life)
    return state


def _subsets(names: list[str]) -> Iterator[tuple[str, ...]]:
    return chain.from_iterable(combinations(names, size) for size in range(len(names) + 1))


def _fits(after: State, call: Call, theirs: Any, ours: Any, *, strict: bool) -> bool:
    """Return whether the answer is that of the specification; adopt its fences."""
    if call.name == "jobs.replicas":
        theirs, ours = sorted(theirs, key=_by_id), sorted(ours, key=_by_id)
    elif call.name == "jobs.orphans":
        theirs, ours = sorted(theirs.jobs, key=_by_id), sorted(ours.jobs, key=_by_id)
    elif call.name == "schedules.commit":
        theirs, ours = [*map(_in_order, theirs)], [*map(_in_order, ours)]
    elif call.name == "schedules.read" and not strict:
        theirs, ours = _uncounted(theirs), _uncounted(ours)
    elif call.name == "schedules.declare":
        theirs, ours = (theirs.now, sorted(theirs.lost)), (ours.now, sorted(ours.lost))
    elif call.name == "jobs.beat":
        return _beats_fit(theirs, ours, strict=strict)
    elif call.name == "jobs.claim" and theirs is not None and ours is not None:
        if call.is_repeat:
            theirs = Claimed(sorted(theirs.jobs, key=_by_id), theirs.next_in)
            ours = Claimed(sorted(ours.jobs, key=_by_id), ours.next_in)
        if call.is_repeat or not strict:
            theirs, ours = theirs.jobs, ours.jobs
    return _same(after, theirs, ours)


def _uncounted(answer: ScheduleList) -> ScheduleList:
    """Leave out counts that were read a moment after the records."""
    return ScheduleList(answer.now, [replace(record, live=0) for record in answer.records])


def _in_order(answer: Committed) -> Committed:
    heads = tuple(sorted(answer.heads, key=lambda head: head.name))
    return replace(answer, heads=heads, blocking=tuple(sorted(answer.blocking)))


def _by_id(record: Any) -> str:
    id_: str = record.id
    return id_


def _beats_fit(theirs: list[Beat | None], ours: list[Beat | None], *, strict: bool) -> bool:
    if [beat is None for beat in theirs] != [beat is None for beat in ours]:
        return False
    return not strict or all(
        (sorted(their_beat.cancels), their_beat.held, their_beat.expired)
        == (sorted(our_beat.cancels), our_beat.held, our_beat.expired)
        for their_beat, our_beat in zip(theirs, ours, strict=True)
        if their_beat is not None and our_beat is not None
    )


def _same(after: State, theirs: Any, ours: Any) -> bool:
    if type(theirs) is not type(ours):
        return False
    if isinstance(theirs, list | tuple):
        return len(theirs) == len(ours) and all(
            _same(after, their_item, our_item)
            for their_item, our_item in zip(theirs, ours, strict=True)
        )
    if isinstance(theirs, float):
        return theirs == ours or math.isclose(theirs, ours, abs_tol=CLOSE)
    if not isinstance(theirs, Struct):
        return bool(theirs == ours)
    left_out = _NOT_COMPARED.get(type(theirs), ())
    names = [field for field in theirs.__struct_fields__ if field not in left_out]
    return all(
        _same(after, getattr(theirs, field), getattr(ours, field)) for field in names
    ) and _bound(after, theirs, ours)


def _bound(after: State, theirs: Any, ours: Any) -> bool:
    """Adopt the fence of a record; return whether it is possible."""
    if isinstance(theirs, Lease):
        if theirs.waiting:
            return True
        key = after.data.keys[theirs.key]
        if not after.bind(f"lease {theirs.key}", ours.fence, theirs.fence):
            return False
        _take_over(key, theirs.holder, theirs.fence)
    elif isinstance(theirs, JobRecord):
        job = after.data.jobs.jobs[theirs.id]
        if not (theirs.fence and ours.fence):
            return bool(theirs.fence == ours.fence)
        if not after.bind(f"job {theirs.id}", job.fence, theirs.fence):
            return False
        schedule = after.data.schedules.get(theirs.schedule)
        if schedule is not None and schedule.last_fence == job.fence:
            schedule.last_fence = theirs.fence
        job.fence = theirs.fence
    elif isinstance(theirs, Mark):
        return bool(theirs.fence == ours.fence)
    return True


def _take_over(key: Key, holder: str, fence: int) -> None:
    grant = key.grants.get(holder)
    if grant is not None and grant.fence != fence:
        if key.fence == grant.fence:
            key.fence = fence
        grant.fence = fence
