"""Turns a step of a program into the call that a client would make at that moment.

The programs are those of `tests.model`. A step names what it is about by how recent it is, so that
it can be drawn before anything has happened.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tenure.core.durations import micros
from tenure.core.jobs.loss_policy import lost
from tenure.core.jobs.records import Claimed, JobRecord, NewJob, Note, Settlement, Unique
from tenure.core.jobs.replicas import RESERVED_FOR, Orphans
from tenure.core.leases import Granted, Lease
from tenure.testing import ManualClock
from tests.contract.job_calls import id_of
from tests.interleavings.orders import Op
from tests.interleavings.readings import Call, locked
from tests.interleavings.spec import AGES
from tests.interleavings.timer_calls import TimerCalls
from tests.model.job_programs import REPLICAS
from tests.rig.endings import settlement


class Calls(TimerCalls):
    """The knowledge of clients: all answers so far. A step that refers to nothing makes no call."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self._grants: list[Lease] = []
        self._acquires: list[Call] = []
        self._claimed: list[JobRecord] = []
        self._settled: list[Settlement] = []
        self._orphans: list[tuple[str, list[JobRecord]]] = []
        self._looks = 0
        self._claim_numbers: Counter[str] = Counter()
        self._last_claims: dict[str, Call] = {}
        self.inserted: dict[str, NewJob] = {}
        self.keys: set[str] = set()

    def made_of(self, name: str, arguments: dict[str, Any]) -> Call | None:
        """Return the call of a step."""
        made: Call | None = getattr(self, f"_{name}")(**arguments)
        return made

    def looks(self) -> list[Call]:
        """Return the calls that read the whole state."""
        if self.keys:
            return [Call("leases.find"), Call("leases.marked", (sorted(self.keys),))]
        looks = [Call("jobs.get", (sorted(self.jobs),)), Call("jobs.replicas"), Call("jobs.counts")]
        return looks + (self.timer_looks() if self.names else [])

    @property
    def jobs(self) -> list[str]:
        """The ids of all jobs that may exist."""
        return [*self.inserted, *self.runs]

    def last_looks(self) -> list[Call]:
        """Return the reads that also change something: a heartbeat of each replica."""
        return [] if self.keys else [self._beat([replica], 3.0) for replica in REPLICAS]

    def learn(self, op: Op) -> None:
        """Remember an answer."""
        answer = op.answer
        self._claimed += self.learn_of_timers(op.call, answer)
        if isinstance(answer, Granted) and answer.lease not in self._grants:
            self._grants.append(answer.lease)
        elif isinstance(answer, Orphans) and answer.jobs:
            self._orphans.append((op.call.details["by"], answer.jobs))
        elif isinstance(answer, Claimed):
            self._claimed += answer.jobs
            self._ends_after(*(job.timeout or 0.0 for job in answer.jobs))

    # Leases.

    def _acquire(self, key: str, holder: str, **wishes: Any) -> Call:
        self._ends_after(wishes["ttl"], wishes["waiting"])
        self.keys.add(key)
        call = Call("leases.acquire", (key,), {"holder": holder, **wishes})
        self._acquires.append(call)
        return call

    def _acquire_again(self, which: int) -> Call | None:
        return self._acquires[-1 - which % len(self._acquires)] if self._acquires else None

    def _come_and_go(self, key: str, holder: str, times: int) -> Call:
        del times
        return self._release_by_holder(key, holder)

    def _renew(self, which: Sequence[int]) -> Call | None:
        leases = self._recent(which)
        self._ends_after(*(lease.ttl for lease in leases))
        return Call("leases.renew", (leases,)) if leases else None

    def _release(self, which: Sequence[int]) -> Call | None:
        leases = self._recent(which)
        return Call("leases.release", (leases,)) if leases else None

    def _release_by_holder(self, key: str, holder: str) -> Call:
        return Call("leases.release", ([Lease(key=key, holder=holder)],))

    def _mark(self, which: int, value: str) -> Call | None:
        leases = self._recent([which])
        # Under the lease's own key, because fences of two keys do not compare.
        return Call("leases.mark", (leases[0].key, leases[0], value)) if leases else None

    def _look(self, **_: Any) -> Call | None:
        return Call("leases.marked", (sorted(self.keys),)) if self.keys else None

    def _recent(self, which: Sequence[int]) -> list[Lease]:
        """Return grants, counted from the last one, each once."""
        chosen = [self._grants[-1 - number % len(self._grants)] for number in which if self._grants]
        return list({(lease.key, lease.fence): lease for lease in chosen}.values())

    # Jobs.

    def _insert(self, jobs: Sequence[dict[str, Any]]) -> Call:
        numbers = {job["number"]: job for job in jobs}
        for number, job in numbers.items():
            if id_of(number) not in self.inserted:  # an id never stands for two different jobs
                self.inserted[id_of(number)] = self._new(**job)
        return Call("jobs.insert", ([self.inserted[id_of(number)] for number in numbers],))

    def _insert_again(self, which: int) -> Call | None:
        jobs = list(self.inserted.values())
        return Call("jobs.insert", ([jobs[-1 - which % len(jobs)]],)) if jobs else None

    def _join(self, replica: str, ttl: float) -> Call:
        self._ends_after(ttl)
        return Call("jobs.beat", ([replica],), {"ttl": ttl, "meta": {"host": replica}})

    def _beat(self, replicas: Sequence[str], ttl: float) -> Call:
        self._ends_after(ttl)
        return Call("jobs.beat", (replicas,), {"ttl": ttl})

    def _leave(self, replica: str) -> Call:
        return self._orphans_of(replica, by=replica)

    def _bury(self, replica: str, started: Sequence[int], delays: Sequence[float]) -> Call:
        del started
        return self._settled_orphans(delays) or self._orphans_of(replica, by="undertaker")

    def _orphans_of(self, replica: str, *, by: str) -> Call:
        self._ends_after(RESERVED_FOR)
        return Call("jobs.orphans", (), {"by": by, "replica": replica})

    def _settled_orphans(self, delays: Sequence[float]) -> Call | None:
        """Settle the orphans of an earlier look."""
        if not self._orphans:
            return None
        by, jobs = self._orphans.pop(0)
        self._ends_after(*delays)
        return Call("jobs.settle", ([lost(job, by=by, at=0, delays=delays) for job in jobs],))

    def _claim(self, replica: str, queues: Sequence[str], limit: int) -> Call:
        # Numbers only grow, even if the replica was removed meanwhile.
        self._claim_numbers[replica] += 1
        call = Call("jobs.claim", (replica, self._claim_numbers[replica], queues, limit))
        self._last_claims[replica] = call
        return call

    def _claim_again(self, replica: str) -> Call | None:
        last = self._last_claims.get(replica)
        return last and repeated(last)

    def _claim_with_an_older_number(self, replica: str) -> Call | None:
        if self._claim_numbers[replica] < 2:  # there is none
            return None
        return Call("jobs.claim", (replica, 1, ["a"], 1))

    def _settle(self, settlements: Sequence[dict[str, Any]]) -> Call | None:
        made: dict[str, Settlement] = {}
        for fields in settlements if self._claimed else ():
            details = dict(fields)
            job = self._claimed[-1 - details.pop("which") % len(self._claimed)]
            self._ends_after(details["delay"], job.retention, job.retention_failed)
            # Of each job one attempt, as two of them never meet in one call of a worker.
            made.setdefault(job.id, settlement(id=job.id, fence=job.fence, **details))
        self._settled += made.values()
        return Call("jobs.settle", (list(made.values()),)) if made else None

    def _settle_again(self, which: int) -> Call | None:
        if not self._settled:
            return None
        return Call("jobs.settle", ([self._settled[-1 - which % len(self._settled)]],))

    def _note(self, notes: Sequence[dict[str, Any]]) -> Call | None:
        made: list[Note] = []
        for fields in notes if self._claimed else ():
            details = dict(fields)
            job = self._claimed[-1 - details.pop("which") % len(self._claimed)]
            made.append(Note(id=job.id, fence=job.fence, **details))
        return Call("jobs.note", (made,)) if made else None

    def _recover(self, delays: Sequence[float], grace: float, limit: int) -> Call:
        del limit  # with a small limit, each store chooses which orphans come first
        if (settled := self._settled_orphans(delays)) is not None:
            return settled
        self._ends_after(RESERVED_FOR)
        self._looks += 1
        by = f"rescuer {self._looks % 2}"
        return Call("jobs.orphans", (), {"by": by, "grace": grace, "limit": 100})

    def _cancel(self, numbers: Sequence[int], reason: str) -> Call:
        return Call("jobs.cancel", ([id_of(number) for number in numbers],), {"reason": reason})

    def _requeue(self, numbers: Sequence[int]) -> Call:
        return Call("jobs.requeue", ([id_of(number) for number in numbers],))

    def _delete(self, numbers: Sequence[int]) -> Call:
        return Call("jobs.delete", ([id_of(number) for number in numbers],))

    def _pause(self, queue: str, seconds: float | None) -> Call:
        self._ends_after(seconds or 0.0)
        return Call("jobs.pause", (queue,), {"seconds": seconds, "reason": f"for {seconds}"})

    def _resume(self, queue: str) -> Call:
        return Call("jobs.pause", (queue,), {"seconds": 0})

    def _prune(self, **details: Any) -> Call:
        return Call("prune", (), details or {"idle": AGES})

    def _find(self, **_: Any) -> Call | None:
        return Call("jobs.get", (sorted(self.jobs),)) if self.jobs else None

    def _new(
        self,
        number: int,
        at_in: float | None,
        key: str | None,
        digest: str,
        keep: float,
        **details: Any,
    ) -> NewJob:
        # An id that comes again after a prune has no fences yet; a second later than the old ones
        # they are larger by the clock alone.
        details["retention"] = details["retention_failed"] = max(1.0, details["retention"])
        self._ends_after(details["delay"], at_in or 0.0, keep, details["retention"])
        return NewJob(
            id=id_of(number),
            at=None if at_in is None else self._clock.wall() + micros(at_in),
            unique=None if key is None else Unique(key=key, digest=digest, keep=keep),
            **details,
        )


def repeated(call: Call) -> Call:
    """Return the repeat of a call, as after a lost reply."""
    return Call(call.name, call.arguments, call.details, is_repeat=True)


def undoing(call: Call) -> Call:
    """Return the calls of a client that was cancelled during this call."""
    if call.name != "leases.acquire":
        return repeated(call)
    (key,) = call.arguments
    return Call("leases.release", ([Lease(key=key, holder=call.details["holder"])],))


def touched(op: Op, everything: frozenset[str]) -> frozenset[str]:
    """Return the jobs, replicas and schedules that a call may have locked for a moment."""
    schedules = frozenset[str]()
    if op.call.name == "schedules.commit":
        (commits,) = op.call.arguments
        writes = [write for commit in commits for write in commit.writes]
        schedules = frozenset(locked(write.name) for write in writes)
    if op.fate != "answered" or op.call.name in ("jobs.orphans", "prune"):
        return everything | schedules
    names: Sequence[str] = ()
    match op.call.name, op.call.arguments:
        case ("jobs.beat" | "jobs.cancel" | "jobs.requeue", [items]):
            names = items
        case ("jobs.claim", [replica, *_]):
            names = [replica]
        case ("jobs.settle" | "jobs.note", [items]):
            names = [item.id for item in items]
        case ("schedules.commit", [commits]):
            names = [name for commit in commits for name in (commit.id, commit.start_on)]
    return frozenset(names) | schedules
