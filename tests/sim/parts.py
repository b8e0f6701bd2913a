"""Leases, jobs and schedules of the simulated store: those of the memory store, with a diary.

Each call writes down what it answers, and then counts as a write, if it may have changed something:
after a write the store may lose what was written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tenure.core.jobs.records import (
    BATCH_MAX,
    Beat,
    Cancelled,
    Claimed,
    Inserted,
    NewJob,
    Note,
    Orphans,
    Settled,
    Settlement,
)
from tenure.core.leases import Acquired, Granted, Lease, Meta
from tenure.core.schedules.records import Commit, Committed, Declared, ScheduleList
from tenure.stores.memory.connection import Connection
from tenure.stores.memory.jobs import Jobs
from tenure.stores.memory.leases import Leases
from tenure.stores.memory.schedules import Schedules
from tests.sim.commits import Stored, names_in, told_by
from tests.sim.diary import Diary

__all__ = ["ServerJobs", "ServerLeases", "ServerSchedules"]

_NUMBER = re.compile(rb'"number":(\d+)')


class ServerLeases(Leases):
    """The lease part."""

    def __init__(self, connection: Connection, diary: Diary) -> None:
        super().__init__(connection)
        self._diary = diary

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
            self._diary.say("granted", fence=answer.lease.fence, ttl=ttl, **facts)
        else:
            self._diary.say("busy", ttl=waiting, **facts)
        self._diary.wrote()
        return answer

    async def renew(self, leases: Sequence[Lease]) -> list[bool | None]:
        answers = await super().renew(leases)
        for lease, answer in zip(leases, answers, strict=True):
            self._say_of(lease, "renewed", ok=bool(answer), ttl=lease.ttl)
        self._diary.wrote()
        return answers

    async def release(self, leases: Sequence[Lease]) -> list[bool]:
        answers = await super().release(leases)
        for lease, answer in zip(leases, answers, strict=True):
            self._say_of(lease, "released", ok=answer)
        self._diary.wrote()
        return answers

    async def mark(self, key: str, lease: Lease, value: str) -> bool:
        answer = await super().mark(key, lease, value)
        self._say_of(lease, "marked", ok=answer, detail=f"{key}={value}")
        self._diary.wrote()
        return answer

    def _say_of(self, lease: Lease, what: str, **facts: Any) -> None:
        self._diary.say(what, key=lease.key, holder=lease.holder, fence=lease.fence, **facts)


class ServerJobs(Jobs):
    """The job part."""

    def __init__(self, connection: Connection, diary: Diary) -> None:
        super().__init__(connection)
        self._diary = diary
        self._orphans: dict[tuple[str, int], tuple[str, float, int]] = {}
        """Where the attempts ran that a look found, its grace, and the instant that it went by."""

    def say_what_is_told(self, process: str, beats: Sequence[Beat | None]) -> None:
        """Write down that the answer to a beat has reached its process."""
        ids = [id_ for beat in beats if beat is not None for id_ in beat.cancels]
        if ids:
            self._diary.say_of(process, "told to cancel", ids=ids)

    def say_how_all_ended(self) -> None:
        """Write down all jobs as they are now."""
        for job in self._jobs.jobs.values():
            self._diary.say(
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
    ) -> list[Beat | None]:
        answers = await super().beat(replicas, ttl=ttl, meta=meta, ahead=ahead, count=count)
        for replica, answer in zip(replicas, answers, strict=True):
            if meta is not None and answer is not None:
                self._diary.say("joined", replica=replica, ttl=ttl, holder=self._diary.caller)
            facts: dict[str, Any] = {"ok": answer is not None, "seconds": ahead}
            facts["ids"] = [] if answer is None else answer.cancels
            self._diary.say("beaten", replica=replica, ttl=ttl, **facts)
        self._diary.wrote()
        return answers

    async def insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        answers = await super().insert(jobs)
        for job, answer in zip(jobs, answers, strict=True):
            unique = "" if job.unique is None else job.unique.key
            self._diary.say(
                "inserted",
                job=answer.id,
                answer=answer.outcome,
                key=unique,
                seconds=job.delay,
                ttl=job.timeout or 0.0,
                number=_number(job.payload),
                kept=job.unique is not None and job.unique.keep > 0,
            )
        self._diary.wrote()
        return answers

    async def claim(
        self, replica: str, claim_no: int, queues: Sequence[str], limit: int
    ) -> Claimed | None:
        answer = await super().claim(replica, claim_no, queues, limit)
        ids = [] if answer is None else [job.id for job in answer.jobs]
        self._diary.say("asked", replica=replica, number=claim_no, ok=answer is not None, ids=ids)
        for job in [] if answer is None else answer.jobs:
            self._diary.say(
                "claimed", replica=replica, job=job.id, fence=job.fence, attempt=job.attempt
            )
        self._diary.wrote()
        return answer

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        answers = await super().settle(settlements)
        for end, answer in zip(settlements, answers, strict=True):
            if end.outcome == "lost" and answer in ("settled", "cancelled"):
                self._say_recovered(end, answer)
                continue
            self._diary.say(
                "settled",
                holder=self._diary.caller,
                job=end.id,
                fence=end.fence,
                outcome=end.outcome,
                seconds=end.delay,
                answer=answer,
            )
        self._diary.wrote()
        return answers

    def _say_recovered(self, end: Settlement, answer: Settled) -> None:
        whose, grace, seen = self._orphans[end.id, end.fence]
        self._diary.say(
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
        caller = self._diary.caller
        for note, answer in zip(notes, answers, strict=True):
            self._diary.say("noted", holder=caller, job=note.id, fence=note.fence, ok=answer)
        self._diary.wrote()
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
        known = self._jobs.replicas
        living = {id_ for id_, one in known.items() if not one.dead}
        former = set(known)
        found = await super().orphans(by=by, replica=replica, grace=grace, limit=limit, as_of=as_of)
        seen = found.now if as_of is None else min(found.now, as_of)
        for id_ in sorted(living):
            if id_ not in known or known[id_].dead:
                self._diary.say("declared dead", replica=id_, seen=seen, ok=replica is not None)
        for id_ in sorted(former - set(known)):
            self._diary.say("removed", replica=id_)
        for job in found.jobs:
            self._orphans[job.id, job.fence] = (job.replica, grace, seen)
        self._diary.wrote()
        return found

    async def cancel(self, ids: Sequence[str], *, reason: str = "") -> list[Cancelled | None]:
        answers = await super().cancel(ids, reason=reason)
        self._diary.wrote()
        return answers

    def _cancel(self, id_: str, reason: str) -> Cancelled | None:
        answer = super()._cancel(id_, reason)
        self._diary.say("cancelled", job=id_, answer=answer or "")
        return answer


class ServerSchedules(Schedules):
    """The schedule part."""

    def __init__(self, connection: Connection, jobs: Jobs, diary: Diary) -> None:
        super().__init__(connection, jobs)
        self._diary = diary
        self._untold: dict[int, tuple[Committed, Commit]] = {}
        """Refused commits whose process has not heard of it, by the id of the answer."""

    def say_what_is_told(self, process: str, answers: Sequence[Committed]) -> None:
        """Write down that the answers to commits have reached their process."""
        for answer in answers:
            if id(answer) in self._untold:
                _, commit = self._untold.pop(id(answer))
                what = "told it is full" if answer.outcome == "full" else "told it was done"
                facts = {"key": commit.name, "job": commit.id, "ids": list(answer.blocking)}
                self._diary.say_of(process, what, **facts)

    async def read(
        self,
        names: Sequence[str] | None = None,
        *,
        after: str = "",
        limit: int = 1000,
        lines: int = 1,
    ) -> ScheduleList:
        answer = await super().read(names, after=after, limit=limit, lines=lines)
        self._diary.say("looked", holder=self._diary.caller, ids=list(names or ()))
        return answer

    async def declare(self, rulers: Sequence[tuple[str, str]]) -> Declared:
        answer = await super().declare(rulers)
        for name, ruler in rulers:
            is_lost = name in answer.lost
            self._diary.say(
                "declared", key=name, detail=ruler, holder=self._diary.caller, ok=not is_lost
            )
        self._diary.wrote()
        return answer

    async def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        answers = await super().commit(commits)
        self._diary.wrote()
        return answers

    def _commit(self, commit: Commit) -> Committed:
        before, is_repeat = self._documents(commit), commit.id in self._jobs.jobs
        answer = super()._commit(commit)
        after = self._documents(commit)
        for what, facts in told_by(commit, answer, before, after, is_repeat=is_repeat):
            self._diary.say(what, holder=self._diary.caller, **facts)
        run = answer.run
        if run is not None and run.replica and not is_repeat:
            self._diary.say("claimed", replica=run.replica, job=run.id, fence=run.fence, attempt=1)
        if answer.outcome == "full" or _is_own(commit, answer):
            self._untold[id(answer)] = (answer, commit)
        return answer

    def _documents(self, commit: Commit) -> dict[str, Stored]:
        known = self._schedules
        return {name: Stored.of(known[name]) for name in names_in(commit) if name in known}


def _is_own(commit: Commit, answer: Committed) -> bool:
    """Return whether a move is refused because it was carried out before."""
    is_move = commit.run is not None or bool(commit.lines)
    return is_move and any(found.version == commit.id for found in answer.heads)


def _number(payload: bytes) -> int:
    """Return the number of the order in a payload: it tells one request from another."""
    found = _NUMBER.search(payload)
    return int(found[1]) if found else 0
