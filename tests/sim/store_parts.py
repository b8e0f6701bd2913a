"""Leases, jobs and schedules of the simulated store: the parts of the memory store, with a record.

Each call records its answer. If it may have changed data, it then counts as a write, after which
the store may lose that write.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tenure.core.jobs.records import (
    BATCH_MAX,
    Cancelled,
    Claimed,
    Inserted,
    NewJob,
    Note,
    Settled,
    Settlement,
)
from tenure.core.jobs.replicas import Beat, Orphans, Stats
from tenure.core.leases import Acquired, Granted, Lease, Meta
from tenure.core.schedules.records import Commit, Committed, Declared, ScheduleList
from tenure.stores.memory.connection import Connection
from tenure.stores.memory.jobs import Jobs
from tenure.stores.memory.leases import Leases
from tenure.stores.memory.schedules import Schedules
from tests.sim.commit_entries import StoredSchedule, entries_of, names_in
from tests.sim.recorder import Recorder

__all__ = ["ServerJobs", "ServerLeases", "ServerSchedules"]

_NUMBER = re.compile(rb'"number":(\d+)')


class ServerLeases(Leases):
    """Records each answer about leases and waiters."""

    def __init__(self, connection: Connection, recorder: Recorder) -> None:
        super().__init__(connection)
        self._recorder = recorder

    async def acquire(
        self,
        key: str,
        *,
        holder: str,
        limit: int,
        ttl: float,
        meta: Meta,
        waiting: float = 0.0,
    ) -> Acquired:
        answer = await super().acquire(
            key, holder=holder, limit=limit, ttl=ttl, meta=meta, waiting=waiting
        )
        facts = {"key": key, "holder": holder, "limit": limit}
        if isinstance(answer, Granted):
            self._recorder.record("granted", fence=answer.lease.fence, ttl=ttl, **facts)
        else:
            self._recorder.record("busy", ttl=waiting, **facts)
        self._recorder.count_write()
        return answer

    async def renew(self, leases: Sequence[Lease]) -> list[bool | None]:
        answers = await super().renew(leases)
        for lease, answer in zip(leases, answers, strict=True):
            self._record_lease(lease, "renewed", ok=bool(answer), ttl=lease.ttl)
        self._recorder.count_write()
        return answers

    async def release(self, leases: Sequence[Lease]) -> list[bool]:
        answers = await super().release(leases)
        for lease, answer in zip(leases, answers, strict=True):
            self._record_lease(lease, "released", ok=answer)
        self._recorder.count_write()
        return answers

    async def mark(self, key: str, lease: Lease, value: str) -> bool:
        answer = await super().mark(key, lease, value)
        self._record_lease(lease, "marked", ok=answer, detail=f"{key}={value}")
        self._recorder.count_write()
        return answer

    async def find(self, prefix: str = "", *, limit: int = 1000) -> list[Lease]:
        self._recorder.record("listed", key=prefix)
        return await super().find(prefix, limit=limit)

    def prune(self, idle: float, limit: int) -> int:
        self._recorder.record("listed")
        return super().prune(idle, limit)

    def _record_lease(self, lease: Lease, what: str, **facts: Any) -> None:
        self._recorder.record(what, key=lease.key, holder=lease.holder, fence=lease.fence, **facts)


class ServerJobs(Jobs):
    """Records each answer about jobs and replicas."""

    def __init__(self, connection: Connection, recorder: Recorder) -> None:
        super().__init__(connection)
        self._recorder = recorder
        self._orphans: dict[tuple[str, int], tuple[str, float, int]] = {}
        """By attempt that `orphans` returned: replica, grace, and the time of the call."""

    def record_received(self, process: str, beats: Sequence[Beat | None]) -> None:
        """Record that the answer to a beat, with jobs to cancel, has reached its process."""
        ids = [id_ for beat in beats if beat is not None for id_ in beat.cancels]
        if ids:
            self._recorder.record_for(process, "received cancel", ids=ids)

    def record_final_states(self) -> None:
        """Record the present state of all jobs."""
        for job in self._jobs.jobs.values():
            self._recorder.record(
                "final",
                job=job.id,
                outcome=job.state,
                fence=job.settled[0],
                attempt=job.attempt,
                failures=job.failures,
                losses=job.losses,
                number=_number(job.new.payload),
                detail=job.reason,
            )

    async def beat(
        self,
        replicas: Sequence[str],
        *,
        ttl: float,
        meta: Meta | None = None,
        ahead: float = 0.0,
        count: bool = True,
        stats: Stats | None = None,
    ) -> list[Beat | None]:
        answers = await super().beat(
            replicas, ttl=ttl, meta=meta, ahead=ahead, count=count, stats=stats
        )
        for replica, answer in zip(replicas, answers, strict=True):
            if meta is not None and answer is not None:
                self._recorder.record(
                    "joined", replica=replica, ttl=ttl, holder=self._recorder.caller
                )
            facts: dict[str, Any] = {"ok": answer is not None, "seconds": ahead}
            facts["ids"] = [] if answer is None else answer.cancels
            self._recorder.record("beat", replica=replica, ttl=ttl, **facts)
        self._recorder.count_write()
        return answers

    async def insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        answers = await super().insert(jobs)
        for job, answer in zip(jobs, answers, strict=True):
            unique = "" if job.unique is None else job.unique.key
            self._recorder.record(
                "inserted",
                job=answer.id,
                answer=answer.outcome,
                key=unique,
                seconds=job.delay,
                ttl=job.timeout or 0.0,
                number=_number(job.payload),
                kept=job.unique is not None and job.unique.keep > 0,
            )
        self._recorder.count_write()
        return answers

    async def claim(
        self, replica: str, claim_no: int, queues: Sequence[str], limit: int
    ) -> Claimed | None:
        answer = await super().claim(replica, claim_no, queues, limit)
        ids = [] if answer is None else [job.id for job in answer.jobs]
        self._recorder.record(
            "claim call", replica=replica, number=claim_no, ok=answer is not None, ids=ids
        )
        for job in [] if answer is None else answer.jobs:
            self._recorder.record(
                "claimed", replica=replica, job=job.id, fence=job.fence, attempt=job.attempt
            )
        self._recorder.count_write()
        return answer

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        answers = await super().settle(settlements)
        for end, answer in zip(settlements, answers, strict=True):
            if end.outcome == "lost" and answer in ("settled", "cancelled"):
                self._record_recovered(end, answer)
                continue
            self._recorder.record(
                "settled",
                holder=self._recorder.caller,
                job=end.id,
                fence=end.fence,
                outcome=end.outcome,
                seconds=end.delay,
                answer=answer,
            )
        self._recorder.count_write()
        return answers

    def _record_recovered(self, end: Settlement, answer: Settled) -> None:
        whose, grace, seen = self._orphans[end.id, end.fence]
        self._recorder.record(
            "recovered",
            replica=whose,
            job=end.id,
            fence=end.fence,
            outcome="cancelled" if answer == "cancelled" else end.state,
            number=self._jobs.jobs[end.id].losses,
            seconds=grace,
            seen=seen,
            ttl=end.delay,
        )

    async def note(self, notes: Sequence[Note]) -> list[bool]:
        answers = await super().note(notes)
        caller = self._recorder.caller
        for note, answer in zip(notes, answers, strict=True):
            self._recorder.record("noted", holder=caller, job=note.id, fence=note.fence, ok=answer)
        self._recorder.count_write()
        return answers

    async def orphans(
        self,
        *,
        by: str,
        replica: str | None = None,
        grace: float = 0.0,
        limit: int = BATCH_MAX,
        as_of: int | None = None,
    ) -> Orphans:
        replicas = self._jobs.replicas
        living = {id_ for id_, record in replicas.items() if not record.dead}
        former = set(replicas)
        orphans = await super().orphans(
            by=by, replica=replica, grace=grace, limit=limit, as_of=as_of
        )
        seen = orphans.now if as_of is None else min(orphans.now, as_of)
        if replica is None:
            self._recorder.record("looked", seen=seen)
        for id_ in sorted(living):
            if id_ not in replicas or replicas[id_].dead:
                self._recorder.record(
                    "declared dead", replica=id_, seen=seen, ok=replica is not None
                )
        for id_ in sorted(former - set(replicas)):
            self._recorder.record("removed", replica=id_)
        for job in orphans.jobs:
            self._orphans[job.id, job.fence] = (job.replica, grace, seen)
        self._recorder.count_write()
        return orphans

    async def cancel(self, ids: Sequence[str], *, reason: str = "") -> list[Cancelled | None]:
        answers = await super().cancel(ids, reason=reason)
        self._recorder.count_write()
        return answers

    def _cancel(self, id_: str, reason: str) -> Cancelled | None:
        answer = super()._cancel(id_, reason)
        self._recorder.record("cancelled", job=id_, answer=answer or "")
        return answer


class ServerSchedules(Schedules):
    """Records each answer about timers and schedules."""

    def __init__(self, connection: Connection, jobs: Jobs, recorder: Recorder) -> None:
        super().__init__(connection, jobs)
        self._recorder = recorder
        self._unanswered: dict[int, tuple[Committed, Commit]] = {}
        """Refused commits whose answer has not reached its process, by the id of the answer."""

    def record_received(self, process: str, answers: Sequence[Committed]) -> None:
        """Record that the answers to refused commits have reached their process."""
        for answer in answers:
            if id(answer) in self._unanswered:
                _, commit = self._unanswered.pop(id(answer))
                what = "received full" if answer.outcome == "full" else "received repeat"
                facts = {"key": commit.name, "job": commit.id, "ids": list(answer.blocking)}
                self._recorder.record_for(process, what, **facts)

    async def read(
        self,
        names: Sequence[str] | None = None,
        *,
        after: str = "",
        limit: int = 1000,
        lines: int = 1,
    ) -> ScheduleList:
        answer = await super().read(names, after=after, limit=limit, lines=lines)
        self._recorder.record("read schedules", holder=self._recorder.caller, ids=list(names or ()))
        return answer

    async def declare(self, rulers: Sequence[tuple[str, str]]) -> Declared:
        answer = await super().declare(rulers)
        for name, ruler in rulers:
            is_lost = name in answer.lost
            self._recorder.record(
                "declared", key=name, detail=ruler, holder=self._recorder.caller, ok=not is_lost
            )
        self._recorder.count_write()
        return answer

    async def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        answers = await super().commit(commits)
        self._recorder.count_write()
        return answers

    def _commit(self, commit: Commit) -> Committed:
        before, is_repeat = self._documents(commit), commit.id in self._jobs.jobs
        answer = super()._commit(commit)
        after = self._documents(commit)
        for what, facts in entries_of(commit, answer, before, after, is_repeat=is_repeat):
            self._recorder.record(what, holder=self._recorder.caller, **facts)
        run = answer.run
        if run is not None and run.replica and not is_repeat:
            self._recorder.record(
                "claimed", replica=run.replica, job=run.id, fence=run.fence, attempt=1
            )
        if answer.outcome == "full" or _is_own(commit, answer):
            self._unanswered[id(answer)] = (answer, commit)
        return answer

    def _documents(self, commit: Commit) -> dict[str, StoredSchedule]:
        schedules = self._schedules
        return {
            name: StoredSchedule.of(schedules[name])
            for name in names_in(commit)
            if name in schedules
        }


def _is_own(commit: Commit, answer: Committed) -> bool:
    """Return whether a move is refused because an earlier copy of it was executed."""
    is_move = commit.run is not None or bool(commit.lines)
    return is_move and any(head.version == commit.id for head in answer.heads)


def _number(payload: bytes) -> int:
    """Return the number in a payload, which tells one request from another; 0 without one."""
    match = _NUMBER.search(payload)
    return int(match[1]) if match else 0
