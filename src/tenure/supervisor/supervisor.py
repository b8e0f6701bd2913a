"""The supervisor itself: it keeps its seats filled, and recovers the jobs of ended children."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Coroutine
from functools import partial
from itertools import count
from typing import Any

import msgspec

from tenure.app import Tenure, engine_of
from tenure.core.recovery_policy import UNWIND_SECONDS
from tenure.errors import ConfigError, TenureError
from tenure.runtime.process_info import process_name, signal_name
from tenure.runtime.replica.recovery import Recovery, recover_replica
from tenure.runtime.store_retry import Outages, Retrier
from tenure.runtime.supervised.messages import (
    HandOver,
    IsolationJoined,
    IsolationLeft,
    IsolationOver,
    Joined,
    Stop,
)
from tenure.supervisor.beats import Heartbeats
from tenure.supervisor.child import CAN_SUPERVISE, Child
from tenure.supervisor.limits import Limits, SupervisorOptions
from tenure.supervisor.spec import ChildSpec

__all__ = ["Supervisor", "check_platform"]

log = logging.getLogger("tenure")

# How often children are looked at.
_LOOK_EVERY = 0.2
# A child that lived for less gets its successor later and later.
_SHORT_LIFE = 10.0
_RESTART_FIRST = 0.5
_RESTART_MAX = 30.0
# How long jobs go back if all processes beside the seats are taken.
_BUSY = 5.0
# How long the last steps of a child that was asked to stop may take, beyond its grace period.
_LAST_STEPS = UNWIND_SECONDS + 12.0
# A child whose line has ended has nothing left to do.
_EXIT_PATIENCE = 10.0
# What a child said before it ended has arrived, or never will.
_LAST_WORDS = 1.0
# How long stacks take to be written before the kill.
_DUMP_SECONDS = 0.3
# The exit code of a child that could not even start.
_UNUSABLE = 2


def check_platform() -> None:
    """Raise ConfigError on systems that have no sockets and signals to supervise with."""
    if not CAN_SUPERVISE:
        msg = (
            "a supervisor of worker processes needs Linux, macOS or another Unix: it passes "
            "sockets and signal masks on to them. Here, run the worker inside a program of "
            "yours: asyncio.run(app.run_worker())."
        )
        raise ConfigError(msg)


class Supervisor:
    """Runs children until it is stopped. Made and run on one event loop, with an open app."""

    def __init__(self, app: Tenure, spec: ChildSpec, options: SupervisorOptions) -> None:
        check_platform()
        engine = engine_of(app)
        settings, events = engine.work_settings, engine.events
        self._store = engine.services().store
        self._clock = self._store.clock
        self._ttl = settings.replica_ttl
        self._spec = spec
        self._options = options
        # What it recovers is marked with this. In containers many supervisors have one process id.
        self._id = self._clock.token()
        outages = Outages()
        self._retrier = Retrier(self._clock, events, outages)
        self._recovery = Recovery(settings, self._clock, events)
        self._children: set[Child] = set()
        self._numbers: set[int] = set()  # of the metrics files of children
        self._isolating: dict[str, None] = {}  # replicas whose processes are being started
        self._failed_starts = 0  # processes beside the seats, in a row, that began no job
        self._isolate_from = 0.0
        self._beats = Heartbeats(
            self._store,
            settings,
            events,
            self._children,
            self._id,
            second_replicas=lambda: self._second_replicas,
            outages=outages,
        )
        self._limits = Limits(options, grace=spec.grace, ttl=self._ttl)
        self._background: set[asyncio.Task[None]] = set()
        self._spawning = asyncio.Lock()
        self._stopping = asyncio.Event()
        self._stop_by = 0.0
        self._has_joined = False
        self.exit_code = 0

    async def run(self) -> None:
        """Keep all seats filled until `stop` is called and the last child has ended."""
        helping = [
            asyncio.ensure_future(self._beats.run()),
            asyncio.ensure_future(self._look_after_all()),
        ]
        try:
            await asyncio.gather(*(self._fill_seat() for _ in range(self._options.processes)))
            while self._background:
                await asyncio.wait(self._background)
        finally:
            for child in self._children:
                child.kill()
            for task in helping:
                task.cancel()
            await asyncio.wait(helping)

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        """Let children finish within their grace period; called again, hand all back at once."""
        now = self._stopping.is_set()
        self._stopping.set()
        grace = 0.0 if now else self._spec.grace
        self._stop_by = self._clock.boot() + grace + _LAST_STEPS
        for child in self._children:
            child.order(Stop(now))

    # Seats: one child each.

    async def _fill_seat(self) -> None:
        short_lives = 0
        while not self._stopping.is_set():
            try:
                child = await self._start()
            except OSError as error:
                log.warning("a worker process cannot be started: %s", error)
                short_lives += 1
            else:
                await child.vacated.wait()
                lived = self._clock.boot() - child.started
                expected = child.is_retiring and not child.is_too_large
                short_lives = 0 if expected or lived >= _SHORT_LIFE else short_lives + 1
            if short_lives and not self._stopping.is_set():
                delay = self._restart_delay(short_lives)
                log.warning("the next worker process starts in %.1f s", delay)
                await self._clock.wait(self._stopping, delay)

    def _restart_delay(self, short_lives: int) -> float:
        delay = min(_RESTART_MAX, _RESTART_FIRST * 2.0 ** (short_lives - 1))
        return delay * (0.5 + self._clock.random() / 2)

    async def _start(self, resumed: HandOver | None = None, owner: Child | None = None) -> Child:
        child = await self._spawn(resumed)
        if resumed is not None:
            child.replica, child.owner = resumed.replica, owner  # beats go on meanwhile
            child.jobs = resumed.jobs
        self._children.add(child)
        self._in_background(self._follow(child))
        if self._stopping.is_set():
            child.order(Stop())
        return child

    async def _spawn(self, resumed: HandOver | None) -> Child:
        """Start a child, with the lowest number that no other child has."""
        number = next(number for number in count() if number not in self._numbers)
        self._numbers.add(number)
        metrics = self._spec.metrics
        if metrics is not None:
            metrics = msgspec.structs.replace(metrics, number=number)
        spec = msgspec.structs.replace(self._spec, resumed=resumed, metrics=metrics)
        try:
            child = await Child.spawn(spec, self._clock.boot(), self._spawning)
        except BaseException:
            self._numbers.discard(number)
            raise
        child.number = number
        return child

    def _free_number(self, child: Child) -> None:
        """Let another child go on with the metrics files of one that has ended."""
        if (metrics := self._spec.metrics) is not None:
            from tenure.prometheus import processes  # noqa: PLC0415 - an extra package

            processes.process_ended(metrics.folder, child.number)
        self._numbers.discard(child.number)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that the end of this supervisor waits for."""
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _follow(self, child: Child) -> None:
        """Listen to a child until it has ended, then recover its jobs."""
        hearing = asyncio.ensure_future(self._read_reports(child))
        exiting = asyncio.ensure_future(child.exited())
        await asyncio.wait((hearing, exiting), return_when=asyncio.FIRST_COMPLETED)
        # Whatever a handler has forked may keep the line open for ever; and a process may hang
        # after its line has ended.
        await asyncio.wait([hearing], timeout=_LAST_WORDS if exiting.done() else None)
        hearing.cancel()
        await asyncio.wait([exiting], timeout=_EXIT_PATIENCE)
        child.kill()
        code = await exiting
        self._free_number(child)
        pause = self._pause_after(child, code)
        self._log_end(child, code, pause)
        self._children.discard(child)
        child.vacated.set()
        if child.owner is not None:
            child.owner.order(IsolationOver())
        try:
            if child.replica is not None:
                await self._recover_jobs_of(
                    child.replica, child.board.started(), pause, pid=child.pid
                )
            if child.second_replica is not None:
                await self._recover_jobs_of(child.second_replica, [])
        finally:
            child.close()

    async def _read_reports(self, child: Child) -> None:
        async for report in child.reports():
            match report:
                case Joined():
                    child.replica, self._has_joined = report.replica, True
                    self._beats.look_again()
                case IsolationJoined():
                    child.second_replica = report.replica
                    self._beats.look_again()
                case IsolationLeft():
                    child.second_replica = None
                case HandOver():
                    child.second_replica = None
                    self._isolating[report.replica] = None
                    self._in_background(self._isolate(report, child))

    async def _isolate(self, handed: HandOver, owner: Child) -> None:
        """Start a process for some jobs, beside the seats: as many at a time as there are seats."""
        named = f"jobs {', '.join(handed.jobs)}"
        extra = sum(child.owner is not None for child in self._children)
        is_started = False
        pause = max(0.0, self._isolate_from - self._clock.boot())
        try:
            if self._stopping.is_set():
                pause = 0.0
            elif extra >= self._options.processes:
                pause = max(pause, _BUSY)
            elif not pause:
                about = {"replica": handed.replica}
                log.info("%s: lost before, so run in a process of their own", named, extra=about)
                await self._start(handed, owner)
                is_started = True
        except OSError as error:
            pause = self._postpone_isolation()
            why = f"no process of their own can be started: {error}"
            about = {"replica": handed.replica}
            log.warning("%s: %s; tried again in %.1f s", named, why, pause, extra=about)
        finally:
            self._isolating.pop(handed.replica, None)
        if not is_started:
            owner.order(IsolationOver())
            await self._recover_jobs_of(handed.replica, [], pause)

    def _pause_after(self, child: Child, code: int) -> float:
        """Return how long jobs wait whose own process has ended before any of them began.

        Nothing counts that as a loss: without a pause they would be claimed and get the next
        process at once, for ever.
        """
        if child.owner is None or self._stopping.is_set():
            return 0.0
        if code == 0 or child.board.ended or child.board.started():
            self._failed_starts = 0
            return 0.0
        return self._postpone_isolation()

    def _postpone_isolation(self) -> float:
        """Start no process beside the seats for a while, longer each time; return how long."""
        self._failed_starts += 1
        pause = self._restart_delay(self._failed_starts)
        self._isolate_from = self._clock.boot() + pause
        return pause

    @property
    def _second_replicas(self) -> list[str]:
        """Replicas without a process of their own, for which the supervisor sends heartbeats."""
        replicas = [
            child.second_replica for child in self._children if child.second_replica is not None
        ]
        return [*replicas, *self._isolating]

    def _log_end(self, child: Child, code: int, pause: float) -> None:
        if code == 0:
            return
        more = ""
        if pause:
            named = ", ".join(child.jobs)
            more = f" before it began jobs {named}; they are tried again in {pause:.1f} s"
        fields = child.log_fields
        if code < 0:
            by = signal_name(-code)
            log.warning("worker process %s was killed by %s%s", child.pid, by, more, extra=fields)
        else:
            log.warning("worker process %s ended with %s%s", child.pid, code, more, extra=fields)
        if code == _UNUSABLE and not self._has_joined:
            self.exit_code = _UNUSABLE
            self.stop()

    async def _recover_jobs_of(
        self, replica: str, started: list[str], pause: float = 0.0, *, pid: int | None = None
    ) -> None:
        """Recover the jobs of a replica. With the `pid` of its worker, report its death, if it has
        not left.
        """
        delays = self._recovery.delays
        on_dead = None
        if pid is not None:
            processes = {replica: process_name(pid)}
            on_dead = partial(self._recovery.report_dead, processes=processes)
        recover = partial(
            recover_replica,
            self._store,
            replica,
            started,
            by=self._id,
            delays=delays,
            pause=pause,
            on_dead=on_dead,
            on_taken=self._recovery.report,
        )
        try:
            await self._retrier.until_answered("bury", recover, give_up=self._stopping)
        except TenureError as error:
            about = {"replica": replica, "outage": "recovery"}
            log.warning(
                "others recover the jobs of worker %s later: %s", replica[:8], error, extra=about
            )

    # Looking after children.

    async def _look_after_all(self) -> None:
        while True:
            await self._clock.sleep(_LOOK_EVERY)
            try:
                for child in self._children:
                    self._look_after(child)
            except Exception:
                log.exception("looking after worker processes failed; it goes on")

    def _look_after(self, child: Child) -> None:
        if child.is_being_killed:
            return
        now = self._clock.boot()
        why = self._limits.must_be_killed(child, now)
        if self._stopping.is_set() and now > self._stop_by:
            why = "it did not stop in time"
        if why:
            self._kill_with_stacks(child, why)

    def _kill_with_stacks(self, child: Child, why: str) -> None:
        """Have a child show its stacks, and kill it when they are written."""
        text = "worker process %s is killed: %s; its stacks follow"
        log.error(text, child.pid, why, extra=child.log_fields)
        child.is_being_killed = True
        child.dump_stacks()
        asyncio.get_running_loop().call_later(_DUMP_SECONDS, child.kill)

    def status(self) -> dict[str, Any]:
        """Return the state of all children, for probes."""
        now = self._clock.boot()
        last = self._beats.last
        beat_age = None if last is None else round(now - last, 3)
        children = [_shown(child, now, self._ttl) for child in self._children]
        joined = sum(
            child.replica is not None and child.owner is None and child.lives(now, self._ttl)
            for child in self._children
        )
        stopping = self._stopping.is_set()
        # Without any beat so far, a child that has just been started gets the time for one.
        started = max((child.started for child in self._children), default=now)
        silence = now - (started if last is None else last)
        all_work = joined >= self._options.processes and silence < self._ttl
        return {
            "pid": os.getpid(),
            "stopping": stopping,
            "ready": all_work and not stopping,
            "last_beat_seconds_ago": beat_age,
            "processes": self._options.processes,
            "children": children,
        }


def _shown(child: Child, now: float, ttl: float) -> dict[str, Any]:
    return {
        "pid": child.pid,
        "replica": child.replica,
        "alive": child.lives(now, ttl),
        "retiring": child.is_retiring,
        "isolated": child.owner is not None,
        "running": len(child.board.started()),
        "ended": child.board.ended,
        "memory": child.memory() or None,
        "age_seconds": round(now - child.started, 1),
    }
