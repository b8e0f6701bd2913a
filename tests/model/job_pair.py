"""Two stores under one clock that get the same job calls and are compared after every step."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from tenure.core.clock import Clock
from tenure.core.durations import micros
from tenure.core.jobs.records import (
    Claimed,
    JobRecord,
    NewJob,
    Note,
    QueueCounts,
    Settlement,
    Unique,
)
from tenure.core.jobs.replicas import STATS_FOR, ReplicaRecord, Stats
from tenure.core.jobs.states import MOVES
from tenure.stores.contract import Store
from tests.contract.job_calls import find_all, id_of, recover_all
from tests.model.pair import CLOSE, Pair
from tests.model.programs import Program
from tests.rig.endings import bury, leave, settlement

MILLISECOND = 0.001  # the precision of the next due time of a queue
_AGES = 1e9  # seconds for which no lock is idle

SAME_FIELDS = [field for field in JobRecord.__struct_fields__ if field not in ("fence", "revision")]
LEGAL = {(move.start, move.end) for move in MOVES}


class JobPair(Pair):
    """A memory store, which is right by definition, and another one.

    Fences need not be equal, but rise when those of the specification do; revisions grow with
    every change that can be seen.
    """

    def __init__(self, connect_to: Callable[[Clock], Store]) -> None:
        super().__init__(connect_to)
        self._inserted: dict[str, NewJob] = {}
        self._claimed: list[tuple[JobRecord, JobRecord]] = []
        self._settled: list[tuple[Settlement, Settlement]] = []
        self._claims: Counter[str] = Counter()
        self._last_claim: dict[str, dict[str, Any]] = {}
        # The last answers of get.
        self._seen: dict[str, tuple[JobRecord, JobRecord]] = {}
        self._fence_pairs: dict[tuple[str, int], int] = {}

    def run(self, program: Program) -> None:
        """Go through the program; raise AssertionError where the two differ."""
        for name, arguments in program:
            getattr(self, name)(**arguments)
            self.look()

    # Steps. A step that refers to something that does not exist yet does nothing.

    def insert(self, jobs: Sequence[dict[str, Any]]) -> None:
        """Insert; two different jobs with one id never meet in one call."""
        made = {job["number"]: self._make(**job) for job in reversed(jobs)}
        batch = [made[number] for number in dict.fromkeys(job["number"] for job in jobs)]
        self._same(lambda store: store.jobs.insert(batch))
        self._inserted.update((job.id, job) for job in batch)

    def insert_again(self, which: int) -> None:
        if jobs := [job for job in self._inserted.values() if not job.schedule]:
            self._same(lambda store: store.jobs.insert([jobs[-1 - which % len(jobs)]]))

    def join(self, replica: str, ttl: float) -> None:
        self._ends_after(ttl)
        meta = {"host": replica}
        self._same_beats(lambda store: store.jobs.beat([replica], ttl=ttl, meta=meta))

    def beat(self, replicas: Sequence[str], ttl: float) -> None:
        self._ends_after(ttl)
        self._ends_after(STATS_FOR)
        stats = Stats("".join(replicas), f"{ttl}".encode())
        self._same_beats(lambda store: store.jobs.beat(replicas, ttl=ttl, stats=stats))

    def _same_beats(self, call: Callable[[Store], Any]) -> None:
        # `now` is not compared: each store counts by its own clock.
        for ours, theirs in zip(*self._both(call), strict=True):
            if ours is None or theirs is None:
                equal(theirs, ours)
            else:
                equal(sorted(theirs.cancels), sorted(ours.cancels))
                equal((theirs.held, theirs.expired), (ours.held, ours.expired))

    def leave(self, replica: str) -> None:
        ours, theirs = self._both(lambda store: leave(store, replica))
        equal(sorted(theirs), sorted(ours))
        self._forget_claims(replica)

    def bury(self, replica: str, started: Sequence[int], delays: Sequence[float]) -> None:
        self._ends_after(*delays)
        ids = [id_of(number) for number in started]
        ours, theirs = self._both(lambda store: bury(store, replica, ids, delays=delays))
        equal(sorted(theirs, key=by_id), sorted(ours, key=by_id))
        self._forget_claims(replica)

    def claim(self, replica: str, queues: Sequence[str], limit: int) -> None:
        self._claims[replica] += 1
        self._last_claim[replica] = {"queues": queues, "limit": limit}
        ours, theirs = self._claim(replica, self._claims[replica])
        if ours is None or theirs is None:
            equal(theirs, ours)
            return
        equal([job.id for job in theirs.jobs], [job.id for job in ours.jobs])
        close(theirs.next_in, ours.next_in, "next_in")
        for our_job, their_job in zip(ours.jobs, theirs.jobs, strict=True):
            self._compare_records(our_job, their_job)
            self._claimed.append((our_job, their_job))
            self._ends_after(our_job.timeout or 0.0)

    def claim_again(self, replica: str) -> None:
        if replica in self._last_claim:
            ours, theirs = self._claim(replica, self._claims[replica])
            if ours is None or theirs is None:
                equal(theirs, ours)
                return
            pairs = zip(sorted(ours.jobs, key=by_id), sorted(theirs.jobs, key=by_id), strict=False)
            for our_job, their_job in pairs:
                self._compare_records(our_job, their_job)
            equal(len(theirs.jobs), len(ours.jobs))
            self._claimed += [  # an expired replica does not use up its number
                (our_job, their_job)
                for our_job, their_job in zip(ours.jobs, theirs.jobs, strict=True)
                if our_job.id == their_job.id
            ]

    def claim_with_an_older_number(self, replica: str) -> None:
        if self._claims[replica] > 1:
            ours, theirs = self._claim(replica, 1)
            equal(theirs is None, ours is None)

    def settle(self, settlements: Sequence[dict[str, Any]]) -> None:
        """Settle; of each job one attempt, as two of them never meet in one call of a worker."""
        made: list[tuple[Settlement, Settlement]] = []
        for ours, theirs in [self._settlement(**fields) for fields in settlements if self._claimed]:
            if all(ours.id != settled.id or ours.fence == settled.fence for settled, _ in made):
                made.append((ours, theirs))
        self._settle(made)

    def settle_again(self, which: int) -> None:
        if self._settled:
            self._settle([self._settled[-1 - which % len(self._settled)]])

    def note(self, notes: Sequence[dict[str, Any]]) -> None:
        made = [self._note_pair(**note) for note in notes if self._claimed]
        ours = self._run(self._spec.jobs.note([note for note, _ in made]))
        theirs = self._run(self._other.jobs.note([note for _, note in made]))
        equal(theirs, ours)

    def recover(self, delays: Sequence[float], grace: float, limit: int) -> None:
        """Recover until nothing is left: each store has its own order."""
        self._ends_after(*delays)
        self._same(lambda store: recover_all(store, delays=delays, grace=grace, limit=limit))
        registered = {record.id for record in self._run(self._spec.jobs.replicas())}
        for replica in set(self._claims) - registered:
            self._forget_claims(replica)

    def cancel(self, numbers: Sequence[int], reason: str) -> None:
        ids = [id_of(number) for number in numbers]
        self._same(lambda store: store.jobs.cancel(ids, reason=reason))

    def requeue(self, numbers: Sequence[int]) -> None:
        self._same(lambda store: store.jobs.requeue([id_of(number) for number in numbers]))

    def delete(self, numbers: Sequence[int]) -> None:
        self._same(lambda store: store.jobs.delete([id_of(number) for number in numbers]))

    def pause(self, queue: str, seconds: float | None) -> None:
        self._ends_after(seconds or 0.0)
        self._same(lambda store: store.jobs.pause(queue, seconds=seconds, reason=f"for {seconds}"))

    def resume(self, queue: str) -> None:
        self._same(lambda store: store.jobs.pause(queue, seconds=0))

    def prune(self) -> None:
        self._same(lambda store: store.prune(idle=_AGES))
        # An id may be used again; the clock alone keeps its new fences above the old ones.
        self._clock.shift(MILLISECOND)

    def find(self, filters: dict[str, Any], limit: int) -> None:
        ours, theirs = self._both(lambda store: find_all(store, limit=limit, **filters))
        equal([job.id for job in theirs], [job.id for job in ours])
        for our_job, their_job in zip(ours, theirs, strict=True):
            self._compare_records(our_job, their_job)

    # Comparisons after every step.

    def look(self, prefix: str = "", limit: int = 1000) -> None:
        del prefix, limit  # those of leases
        self._look_at_jobs()
        ours, theirs = self._both(find_all)
        equal([job.id for job in theirs], [job.id for job in ours])
        compare_replicas(*self._both(lambda store: store.jobs.replicas()))
        compare_counts(*self._both(lambda store: store.jobs.counts()))
        self._same(lambda store: store.jobs.stats())
        limits = {"unfinished": 2, "recent": 3, "within": 4.0}
        self._same(lambda store: store.jobs.count_tagged("s", **limits))
        self._same(lambda store: store.jobs.count_tagged("t", **limits))

    def _look_at_jobs(self) -> None:
        ids = list(self._inserted)
        both = self._both(lambda store: store.jobs.get(ids))
        for id_, ours, theirs in zip(ids, *both, strict=True):
            if ours is None or theirs is None:
                equal(theirs, ours)
                self._forget(id_)
                continue
            self._compare_records(ours, theirs)
            self._compare_with_before(ours, theirs)
            self._seen[id_] = (ours, theirs)

    def _forget(self, id_: str) -> None:
        self._seen.pop(id_, None)
        for pair in [pair for pair in self._fence_pairs if pair[0] == id_]:
            del self._fence_pairs[pair]

    def _compare_with_before(self, ours: JobRecord, theirs: JobRecord) -> None:
        if ours.id not in self._seen:
            return
        ours_before, before = self._seen[ours.id]
        if before.state != theirs.state:
            assert (before.state, theirs.state) in LEGAL, f"{before.state} to {theirs.state}"
        assert theirs.revision >= before.revision, "the revision fell"
        if changed(before, theirs):
            assert theirs.revision > before.revision, "a change without a new revision"
        if ours.revision == ours_before.revision:
            equal(theirs.revision, before.revision, "the revision")

    def _compare_records(self, ours: JobRecord, theirs: JobRecord) -> None:
        for field in SAME_FIELDS:
            mine, other = getattr(ours, field), getattr(theirs, field)
            assert other == mine, f"{field} of {ours.id} is {other!r}, not {mine!r}"
        expected_fence = self._fence_pairs.get((ours.id, ours.fence))
        if expected_fence is None:
            last = max(
                (
                    their_fence
                    for (id_, _), their_fence in self._fence_pairs.items()
                    if id_ == ours.id
                ),
                default=-1,
            )
            assert theirs.fence > last, f"the fence {theirs.fence} is not above {last}"
            assert theirs.fence >= ours.fence, "the fence is behind the clock"
            self._fence_pairs[ours.id, ours.fence] = theirs.fence
        else:
            assert theirs.fence == expected_fence, f"the fence {theirs.fence} was {expected_fence}"

    # Calls on both stores.

    def _same(self, call: Callable[[Store], Any]) -> None:
        ours, theirs = self._both(call)
        equal(theirs, ours)

    def _ends_after(self, *lengths: float) -> None:
        self._ends.update(self._clock.wall() + micros(length) for length in lengths)

    def _claim(self, replica: str, number: int) -> tuple[Claimed | None, Claimed | None]:
        last = self._last_claim[replica]
        return self._both(
            lambda store: store.jobs.claim(replica, number, last["queues"], last["limit"])
        )

    def _forget_claims(self, replica: str) -> None:
        self._claims.pop(replica, None)
        self._last_claim.pop(replica, None)

    def _make(
        self,
        number: int,
        at_in: float | None,
        key: str | None,
        digest: str,
        keep: float,
        **details: Any,
    ) -> NewJob:
        self._ends_after(details["delay"], at_in or 0.0, keep, details["retention"])
        # Failures have another retention than other outcomes.
        details.setdefault(
            "retention_failed", {0.0: 0.0, 4.0: 6.0, 60.0: 90.0}[details["retention"]]
        )
        self._ends_after(details["retention_failed"])
        # Every other key stays as long as its job.
        unique = Unique(key=key or "", digest=digest, keep=keep, with_job=number % 2 == 0)
        return NewJob(
            id=id_of(number),
            at=None if at_in is None else self._clock.wall() + micros(at_in),
            unique=None if key is None else unique,
            **details,
        )

    def _recent_claim(self, which: int) -> tuple[JobRecord, JobRecord]:
        return self._claimed[-1 - which % len(self._claimed)]

    def _settlement(self, which: int, **details: Any) -> tuple[Settlement, Settlement]:
        ours, theirs = self._recent_claim(which)
        self._ends_after(details["delay"], ours.retention, ours.retention_failed)
        return (
            settlement(id=ours.id, fence=ours.fence, **details),
            settlement(id=theirs.id, fence=theirs.fence, **details),
        )

    def _settle(self, made: Sequence[tuple[Settlement, Settlement]]) -> None:
        ours = self._run(self._spec.jobs.settle([settled for settled, _ in made]))
        theirs = self._run(self._other.jobs.settle([settled for _, settled in made]))
        equal(theirs, ours)
        self._settled += made

    def _note_pair(self, which: int, **details: Any) -> tuple[Note, Note]:
        ours, theirs = self._recent_claim(which)
        return (
            Note(id=ours.id, fence=ours.fence, **details),
            Note(id=theirs.id, fence=theirs.fence, **details),
        )


def compare_replicas(ours: list[ReplicaRecord], theirs: list[ReplicaRecord]) -> None:
    equal([record.joined for record in theirs], [record.joined for record in ours])
    in_order = zip(sorted(ours, key=by_join), sorted(theirs, key=by_join), strict=True)
    for our_record, their_record in in_order:
        for field in ("id", "meta", "joined", "dead", "held"):
            equal(getattr(their_record, field), getattr(our_record, field), field)
        assert their_record.ttl == pytest.approx(our_record.ttl, abs=CLOSE), "ttl"
        assert their_record.expires_in == pytest.approx(our_record.expires_in, abs=CLOSE), (
            "expires_in"
        )


def compare_counts(ours: list[QueueCounts], theirs: list[QueueCounts]) -> None:
    equal([count.queue for count in theirs], [count.queue for count in ours])
    for our_count, their_count in zip(ours, theirs, strict=True):
        for field in ("waiting", "running", "pause_reason"):
            equal(getattr(their_count, field), getattr(our_count, field), field)
        for field in ("oldest", "paused_for"):
            close(getattr(their_count, field), getattr(our_count, field), field)


def changed(before: JobRecord, after: JobRecord) -> bool:
    return any(getattr(before, field) != getattr(after, field) for field in SAME_FIELDS)


def by_id(record: Any) -> str:
    return record.id


def by_join(record: ReplicaRecord) -> tuple[int, str]:
    return record.joined, record.id


def equal(theirs: Any, ours: Any, what: str = "the answer") -> None:
    """Assert that the other store answered as the specification did."""
    assert theirs == ours, f"{what} is {shown(theirs)}, by the specification {shown(ours)}"


def close(theirs: float | None, ours: float | None, what: str) -> None:
    """Assert the same, up to a millisecond."""
    if ours is None or theirs is None:
        equal(theirs, ours, what)
    else:
        equal(theirs, pytest.approx(ours, abs=MILLISECOND), what)


def shown(answer: Any) -> str:
    return f"[{', '.join(map(repr, answer))}]" if isinstance(answer, Iterable) else repr(answer)
