"""The store of a simulation: the memory store, which writes down all that it answers.

It can be away, come back without its data, or come back without its last writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

from tenure.core.model import Acquired, Granted, Lease, Meta, Pong, Topic
from tenure.core.records import (
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
from tenure.core.schedules.records import Commit, Committed, Declared, ScheduleList
from tenure.stores.contract import Migrate
from tenure.stores.memory import MemoryStore
from tenure.stores.memory.jobs import Jobs
from tenure.stores.memory.leases import Leases
from tenure.stores.memory.schedules import Schedules
from tenure.stores.memory.world import Space, World
from tests.sim.clock import StoreClock
from tests.sim.commits import Stored, names_in, told_by
from tests.sim.history import History

__all__ = ["Server"]

NAMESPACE = "sim"
_NUMBER = re.compile(rb'"number":(\d+)')


class Server(MemoryStore):
    """One store for all machines."""

    def __init__(self, clock: StoreClock, history: History) -> None:
        self.world = World()
        super().__init__("memory://", namespace=NAMESPACE, clock=clock, world=self.world)
        self.leases = _Leases(self)
        self.jobs = _Jobs(self)
        self.schedules = _Schedules(self, self.jobs)
        self._current = self.world.space(NAMESPACE)
        self.store_clock = clock
        self._history = history
        self.is_away = False
        self.slowness = 0.0
        """How much longer than usual everything takes, in seconds."""
        self.caller = ""
        """The process whose request is being carried out."""
        self.writes = 0
        self.lost_writes = 0
        self._copy: tuple[int, Space] | None = None
        self._loses_after = 0
        self._on_loss: Callable[[], None] | None = None
        self.orphans: dict[tuple[str, int], tuple[str, float, int]] = {}
        """Where the attempts ran that a look found, its grace, and the instant that it went by."""
        self.untold: dict[int, tuple[Committed, Commit]] = {}
        """Refused commits that nobody has been told of, by the id of the answer."""

    async def open(self, migrate: Migrate = "auto") -> None:
        # One listener for all, set by who made this: those of the world have no order.
        if self._loop is None:
            listeners = self.world.listeners.copy()
            await super().open(migrate)
            self.world.listeners.clear()
            self.world.listeners.update(listeners)

    def listen(self, hear: Callable[[Topic], None]) -> None:
        self.world.listeners.add(lambda _, topic: hear(topic))

    @property
    def space(self) -> Space:
        """All that it has. Looked up very often, and there is only one."""
        return self._current

    def come_back(self) -> None:
        self.is_away = False

    def next_edge(self, time: float) -> float:
        """Return the next time, within half a second, at which something ends or is due."""
        space, clock = self.space, self.store_clock
        instants = [one.expires for key in space.keys.values() for one in key.grants.values()]
        instants += [one.expires for key in space.keys.values() for one in key.line.values()]
        instants += [one.renewed + one.ttl for one in space.jobs.replicas.values()]
        instants += [one.due for one in space.jobs.jobs.values() if one.state == "waiting"]
        times = (clock.time_of(instant) for instant in instants)
        return min((one for one in times if time <= one < time + 0.5), default=time)

    def answered(self, process: str, call: str, answer: Any) -> None:
        """Write down what a process is told and has to do something about."""
        match call:
            case "beat":
                ids = [id_ for beat in answer if beat is not None for id_ in beat.cancels]
                if ids:
                    self._tell(process, "told to cancel", ids=ids)
            case "commit":
                for committed in answer:
                    if id(committed) in self.untold:
                        self._tell_of_refusal(process, committed)

    def _tell_of_refusal(self, process: str, answer: Committed) -> None:
        _, commit = self.untold.pop(id(answer))
        what = "told it is full" if answer.outcome == "full" else "told it was done"
        ids = list(answer.blocking)
        self._tell(process, what, key=commit.name, job=commit.id, ids=ids)

    def sent_cancel(self, process: str, ids: Sequence[str]) -> None:
        """Write down that a process wants jobs to end, whatever becomes of its request."""
        self._tell(process, "asks to cancel", ids=list(ids))

    def _tell(self, process: str, what: str, **facts: Any) -> None:
        self._history.add(self.store_clock.boot(), process, what, **facts)

    # Losing data.

    def lose_everything(self) -> None:
        self.lost_writes += self.writes
        self._replace(Space())
        self.say("emptied")

    def lose_after(self, writes: int, then: Callable[[], None]) -> None:
        """After so many more writes, lose them: call `then`, which calls `lose_tail`."""
        self._copy = (self.writes, deepcopy(self.space))
        self._loses_after = self.writes + writes
        self._on_loss = then
        self.say("copied")

    def lose_tail(self) -> None:
        """Go back to the copy, if there is one that was not used."""
        if self._copy is not None:
            writes, space = self._copy
            self._copy = self._on_loss = None
            self.lost_writes += self.writes - writes
            self._replace(space)
            self.say("fell back")

    def forget_copy(self) -> None:
        """Lose nothing any more."""
        self._copy = self._on_loss = None

    def _replace(self, space: Space) -> None:
        self._current = space

    def say(self, what: str, **facts: Any) -> None:
        clock = self.store_clock
        self._history.add(clock.boot(), "store", what, now=clock.wall(), **facts)

    def wrote(self) -> None:
        self.writes += 1
        if self._on_loss is not None and self.writes >= self._loses_after:
            self._on_loss()

    async def ping(self) -> Pong:
        pong = await super().ping()
        self.say("looked", holder=self.caller)
        return pong

    def leases_left(self) -> list[str]:
        """Return who holds or waits, as whoever asks would see it."""
        now = self.store_clock.wall()
        self.say("listed")
        left: list[str] = []
        for name, key in self.space.keys.items():
            key.settle(now)
            left += [f"{name} {holder[:8]}" for holder in (*key.grants, *key.line)]
        return left

    def say_how_jobs_ended(self) -> None:
        """Write down all jobs as they are now."""
        for job in self.space.jobs.jobs.values():
            self.say(
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


class _Leases(Leases):
    """Leases that write down what they answer."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._server = server

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
            self._server.say("granted", fence=answer.lease.fence, ttl=ttl, **facts)
        else:
            self._server.say("busy", ttl=waiting, **facts)
        self._server.wrote()
        return answer

    async def renew(self, leases: Sequence[Lease]) -> list[bool | None]:
        answers = await super().renew(leases)
        for lease, answer in zip(leases, answers, strict=True):
            self._say_of(lease, "renewed", ok=bool(answer), ttl=lease.ttl)
        self._server.wrote()
        return answers

    async def release(self, leases: Sequence[Lease]) -> list[bool]:
        answers = await super().release(leases)
        for lease, answer in zip(leases, answers, strict=True):
            self._say_of(lease, "released", ok=answer)
        self._server.wrote()
        return answers

    async def mark(self, key: str, lease: Lease, value: str) -> bool:
        answer = await super().mark(key, lease, value)
        self._say_of(lease, "marked", ok=answer, detail=f"{key}={value}")
        self._server.wrote()
        return answer

    def _say_of(self, lease: Lease, what: str, **facts: Any) -> None:
        self._server.say(what, key=lease.key, holder=lease.holder, fence=lease.fence, **facts)


class _Jobs(Jobs):
    """Jobs that write down what they answer."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._server = server

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
        if meta is not None:
            for replica in replicas:
                self._server.say("joined", replica=replica, ttl=ttl, holder=self._server.caller)
            self._server.wrote()
            return answers
        for replica, answer in zip(replicas, answers, strict=True):
            facts: dict[str, Any] = {"ok": answer is not None, "seconds": ahead}
            facts["ids"] = [] if answer is None else answer.cancels
            self._server.say("beaten", replica=replica, ttl=ttl, **facts)
        self._server.wrote()
        return answers

    async def insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        answers = await super().insert(jobs)
        for job, answer in zip(jobs, answers, strict=True):
            unique = "" if job.unique is None else job.unique.key
            self._server.say(
                "inserted",
                job=answer.id,
                answer=answer.outcome,
                key=unique,
                seconds=job.delay,
                ttl=job.timeout or 0.0,
                number=_number(job.payload),
                kept=job.unique is not None and job.unique.keep > 0,
            )
        self._server.wrote()
        return answers

    async def claim(
        self, replica: str, claim_no: int, queues: Sequence[str], limit: int
    ) -> Claimed | None:
        answer = await super().claim(replica, claim_no, queues, limit)
        ids = [] if answer is None else [job.id for job in answer.jobs]
        self._server.say("asked", replica=replica, number=claim_no, ok=answer is not None, ids=ids)
        for job in [] if answer is None else answer.jobs:
            self._server.say(
                "claimed", replica=replica, job=job.id, fence=job.fence, attempt=job.attempt
            )
        self._server.wrote()
        return answer

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        answers = await super().settle(settlements)
        for end, answer in zip(settlements, answers, strict=True):
            if end.outcome == "lost" and answer in ("settled", "cancelled"):
                self._say_recovered(end, answer)
                continue
            self._server.say(
                "settled",
                holder=self._server.caller,
                job=end.id,
                fence=end.fence,
                outcome=end.outcome,
                seconds=end.delay,
                answer=answer,
            )
        self._server.wrote()
        return answers

    def _say_recovered(self, end: Settlement, answer: Settled) -> None:
        whose, grace, seen = self._server.orphans[end.id, end.fence]
        self._server.say(
            "recovered",
            replica=whose,
            job=end.id,
            fence=end.fence,
            outcome="cancelled" if answer == "cancelled" else end.state,
            number=self._server.space.jobs.jobs[end.id].losses,
            seconds=grace,
            seen=seen,
            ttl=end.delay,
        )

    async def note(self, notes: Sequence[Note]) -> list[bool]:
        answers = await super().note(notes)
        for sent, answer in zip(notes, answers, strict=True):
            self._server.say("noted", job=sent.id, fence=sent.fence, ok=answer)
        self._server.wrote()
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
        known = self._server.space.jobs.replicas
        living = {id_ for id_, one in known.items() if not one.dead}
        former = set(known)
        found = await super().orphans(by=by, replica=replica, grace=grace, limit=limit, as_of=as_of)
        seen = found.now if as_of is None else min(found.now, as_of)
        for id_ in sorted(living):
            if id_ not in known or known[id_].dead:
                self._server.say("declared dead", replica=id_, seen=seen, ok=replica is not None)
        for id_ in sorted(former - set(known)):
            self._server.say("removed", replica=id_)
        for job in found.jobs:
            self._server.orphans[job.id, job.fence] = (job.replica, grace, seen)
        self._server.wrote()
        return found

    async def cancel(self, ids: Sequence[str], *, reason: str = "") -> list[Cancelled | None]:
        answers = await super().cancel(ids, reason=reason)
        self._server.wrote()
        return answers

    def _cancel(self, id_: str, reason: str) -> Cancelled | None:
        answer = super()._cancel(id_, reason)
        self._server.say("cancelled", job=id_, answer=answer or "")
        return answer


class _Schedules(Schedules):
    """Schedules that write down what they answer."""

    def __init__(self, server: Server, jobs: Jobs) -> None:
        super().__init__(server, jobs)
        self._server = server

    async def read(
        self,
        names: Sequence[str] | None = None,
        *,
        after: str = "",
        limit: int = 1000,
        lines: int = 1,
    ) -> ScheduleList:
        answer = await super().read(names, after=after, limit=limit, lines=lines)
        self._server.say("looked", holder=self._server.caller, ids=list(names or ()))
        return answer

    async def declare(self, rulers: Sequence[tuple[str, str]]) -> Declared:
        answer = await super().declare(rulers)
        for name, ruler in rulers:
            is_lost = name in answer.lost
            self._server.say(
                "declared", key=name, detail=ruler, holder=self._server.caller, ok=not is_lost
            )
        self._server.wrote()
        return answer

    async def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        answers = await super().commit(commits)
        self._server.wrote()
        return answers

    def _commit(self, commit: Commit) -> Committed:
        before, is_repeat = self._documents(commit), commit.id in self._server.space.jobs.jobs
        answer = super()._commit(commit)
        after = self._documents(commit)
        for what, facts in told_by(commit, answer, before, after, is_repeat=is_repeat):
            self._server.say(what, holder=self._server.caller, **facts)
        run = answer.run
        if run is not None and run.replica and not is_repeat:
            self._server.say("claimed", replica=run.replica, job=run.id, fence=run.fence, attempt=1)
        if answer.outcome == "full" or _is_own(commit, answer):
            self._server.untold[id(answer)] = (answer, commit)
        return answer

    def _documents(self, commit: Commit) -> dict[str, Stored]:
        known = self._server.space.schedules
        return {name: Stored.of(known[name]) for name in names_in(commit) if name in known}


def _is_own(commit: Commit, answer: Committed) -> bool:
    """Return whether a move is refused because it was carried out before."""
    is_move = commit.run is not None or bool(commit.lines)
    return is_move and any(found.version == commit.id for found in answer.found)


def _number(payload: bytes) -> int:
    """Return the number of the order in a payload: it tells one request from another."""
    found = _NUMBER.search(payload)
    return int(found[1]) if found else 0
