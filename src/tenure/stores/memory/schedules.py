"""Schedules in memory: the specification that the other stores are compared with.

A commit is a list of checks, then writes. The first check that fails answers; a commit that passes
all of them writes its documents, its history and its run in one step. The content of a document is
opaque here: rules of timers are in `core.schedules`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenure.core.jobs.records import COUNT_MAX, JobRecord, NewJob
from tenure.core.schedules.records import (
    BLOCKING_MAX,
    Commit,
    Committed,
    Declared,
    Expected,
    Room,
    ScheduleHead,
    ScheduleList,
    ScheduleRecord,
    TickLine,
    Write,
)
from tenure.stores.memory.connection import Connection, Part
from tenure.stores.memory.job_tables import Job, JobTables
from tenure.stores.memory.jobs import Jobs
from tenure.stores.memory.schedule_table import Schedule

__all__ = ["Schedules"]


class Schedules(Part):
    """The schedule part of the contract."""

    def __init__(self, connection: Connection, jobs: Jobs) -> None:
        super().__init__(connection)
        self._work = jobs

    async def read(
        self,
        names: Sequence[str] | None = None,
        *,
        after: str = "",
        limit: int = 1000,
        lines: int = 1,
    ) -> ScheduleList:
        with self._lock:
            schedules = self._schedules
            if names is None:
                names = [name for name in schedules if name > after]
            listed = {name for name in names if name in schedules}
            # Python orders text by code points, which is the order of the UTF-8 bytes.
            records = [self._as_record(schedules[name], lines) for name in sorted(listed)[:limit]]
            return ScheduleList(self._clock.wall(), records)

    def _as_record(self, schedule: Schedule, lines: int) -> ScheduleRecord:
        live = min(COUNT_MAX, len(self._unfinished_runs(schedule.name)))
        return schedule.as_record(live, lines)

    async def declare(self, rulers: Sequence[tuple[str, str]]) -> Declared:
        """Note that replicas with these rulers are alive; return the names that others rule."""
        with self._lock:
            now = self._clock.wall()
            lost: list[str] = []
            for name, ruler in rulers:
                schedule = self._schedules.get(name)
                if schedule is not None and schedule.ruler == ruler:
                    schedule.declare(now)
                else:
                    lost.append(name)
            return Declared(now, lost)

    async def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        with self._lock:
            return [self._commit(commit) for commit in commits]

    def _commit(self, commit: Commit) -> Committed:
        now = self._clock.wall()
        return (
            self._repeated(commit, now)
            or self._stale(commit, now)
            or self._early(commit, now)
            or self._without_replica(commit, now)
            or self._full(commit, now)
            or self._carried_out(commit, now)
        )

    # The checks, in the order of the contract. Each returns an answer, or None if it passes.

    def _repeated(self, commit: Commit, now: int) -> Committed | None:
        """Answer a repeat as the first time: the id of a commit is the id of its run."""
        job = None if commit.run is None else self._jobs.jobs.get(commit.id)
        return None if job is None else Committed(outcome="done", now=now, run=job.as_record())

    def _stale(self, commit: Commit, now: int) -> Committed | None:
        """Refuse a commit that was planned from other versions, and return the present ones."""
        changed = [self._unlike(expected, now) for expected in commit.expects]
        heads = tuple(head for head in changed if head is not None)
        return Committed(outcome="stale", now=now, heads=heads) if heads else None

    def _unlike(self, expected: Expected, now: int) -> ScheduleHead | None:
        """Return a schedule as it is now, or None if that is as expected."""
        schedule = self._schedules.get(expected.name)
        if schedule is None:
            return ScheduleHead(expected.name, "") if expected.version else None
        return None if schedule.is_as(expected, now) else schedule.as_head()

    def _early(self, commit: Commit, now: int) -> Committed | None:
        """Refuse a tick that is not due by the store's clock; the caller's clock runs ahead."""
        return Committed(outcome="early", now=now) if commit.not_before > now else None

    def _without_replica(self, commit: Commit, now: int) -> Committed | None:
        """Refuse to start a run on a replica that is dead, unknown or has expired."""
        if commit.run is None or not commit.start_on:
            return None
        replica = self._work.alive(commit.start_on)
        if replica is None:
            return Committed(outcome="gone", now=now)
        return Committed(outcome="expired", now=now) if replica.has_expired(now) else None

    def _full(self, commit: Commit, now: int) -> Committed | None:
        """Answer if a room has as many unfinished runs as it may: the first such room decides.

        With `instead`, everything but the run is written; otherwise nothing is.
        """
        for number, room in enumerate(commit.rooms):
            runs = self._runs_in(room, commit.name)
            if len(runs) < room.most:
                continue
            if room.instead is not None:
                self._write_all(commit, room.instead, now)
                return Committed(outcome="instead", now=now, room=number)
            blocking = tuple(job.id for job in runs[:BLOCKING_MAX])
            return Committed(outcome="full", now=now, room=number, blocking=blocking)
        return None

    def _carried_out(self, commit: Commit, now: int) -> Committed:
        """Write all of a commit that has passed the checks."""
        self._write_all(commit, commit.run_line, now)
        run = None if commit.run is None else self._make_run(commit, commit.run, now)
        return Committed(outcome="done", now=now, run=run)

    # What a commit changes.

    def _write_all(self, commit: Commit, last_line: TickLine | None, now: int) -> None:
        """Write the documents, then the lines of the history."""
        for write in commit.writes:
            self._write(write, commit.id, now)
        schedule = self._schedules.get(commit.name)
        if schedule is None:
            return  # this commit has deleted it
        if commit.declares:
            schedule.declared = now
        for line in commit.lines:
            schedule.add_line(line, now)
        if last_line is not None:
            schedule.add_line(last_line, now)

    def _write(self, write: Write, version: str, now: int) -> None:
        """Write a document, or delete its schedule if the document is None."""
        if write.standing is None:
            self._schedules.pop(write.name, None)
            return
        schedule = self._schedules.setdefault(write.name, Schedule(write.name, declared=now))
        schedule.write(write, write.standing, version)
        for name in write.above:
            if name in self._schedules:
                schedule.go_on_from(self._schedules[name])

    def _make_run(self, commit: Commit, new: NewJob, now: int) -> JobRecord:
        """Make the run: started on a replica at once, or waiting in its queue.

        A started run gets a fence above those of all earlier runs of its schedule that started so.
        Runs that never run at the same time can use it as the fence of a resource.
        """
        job = Job(new, created=now, due=commit.not_before if commit.start_on else now)
        self._jobs.add(job)
        schedule = self._schedules.get(commit.name)
        if commit.start_on:
            job.fence = 0 if schedule is None else schedule.last_fence
            self._work.start(job, self._jobs.replicas[commit.start_on], now)
            job.claim_no = 0  # a repeat of the last claim must not return it
        else:
            self._work.wake_workers(job, now)
        if schedule is not None:
            schedule.last_run, schedule.last_job = commit.tick, job.id
            schedule.last_fence = max(schedule.last_fence, job.fence)
        return job.as_record()

    def _runs_in(self, room: Room, name: str) -> list[Job]:
        runs = self._unfinished_runs(name)
        return [job for job in runs if room.on in ("", job.replica)]

    def _unfinished_runs(self, name: str) -> list[Job]:
        """Return the unfinished runs of a schedule, in order of id."""
        jobs = (job for job in self._jobs.unfinished.values() if job.new.schedule == name)
        return sorted(jobs, key=lambda job: job.id)

    @property
    def _jobs(self) -> JobTables:
        return self._data.jobs

    @property
    def _schedules(self) -> dict[str, Schedule]:
        return self._data.schedules
