"""The supervisor: keeps worker processes running, beats for them, and buries the dead at once.

Each child is a replica of its own. The supervisor renews all their records in one call, for every
child whose process exists and is not stopped, so that blocked loops and C code that keeps the
interpreter lose nothing. A child that exits is buried at once: what it had begun counts a loss,
what it had only claimed goes back.

A child does not need the supervisor: after two beats of silence it beats for itself, and when the
line to the supervisor ends it finishes and leaves.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from tenure.app import Tenure
from tenure.core.policy import UNWIND_SECONDS
from tenure.core.records import Beat
from tenure.errors import TenureError
from tenure.observe.events import Events
from tenure.runtime.caretaking import Caretaker
from tenure.runtime.patience import Patience
from tenure.runtime.recovery import Recovery
from tenure.runtime.replica import pause_after
from tenure.runtime.words import Beaten, HandOver, InDoubt, Joined, Retire, Stop, TakenOver
from tenure.stores.contract import Store
from tenure.supervisor.children import Child
from tenure.supervisor.spec import ChildSpec

__all__ = ["Supervisor", "SupervisorOptions"]

log = logging.getLogger("tenure")

# How often children are looked at.
_LOOK_EVERY = 0.2
# A child that lived for less gets its successor later and later.
_SHORT_LIFE = 10.0
_RESTART_FIRST = 0.5
_RESTART_MAX = 30.0
# How long the last steps of a child that was told to stop may take, beyond its grace period.
_LAST_STEPS = UNWIND_SECONDS + 12.0
# A child whose line has ended has nothing left to do.
_EXIT_PATIENCE = 10.0
# Threads that do not run for so long have their stacks shown.
_SILENT_AFTER = 5.0
# How long stacks take to be written before the kill.
_DUMP_SECONDS = 0.3
# An attempt past its time-out by so much has its child replaced, as it will have to be killed.
_OVERDUE_AFTER = 1.0
# Above its limit a child is replaced when its jobs are done; above this much of it, at once.
_MEMORY_HARD = 1.5
# The exit code of a child that could not even start.
_UNUSABLE = 2


class SupervisorOptions(Struct, frozen=True, kw_only=True):
    """How many children, and when they are replaced."""

    processes: int = 1
    max_jobs: int | None = None
    max_memory: int | None = None


class Supervisor:
    """Runs children until it is stopped. Made and run on one event loop, with an open app."""

    def __init__(self, app: Tenure, spec: ChildSpec, options: SupervisorOptions) -> None:
        services, settings = app._services(), app.settings  # noqa: SLF001 - of the same house
        self._store: Store = services.store
        self._clock = self._store.clock
        self._ttl = settings.replica_ttl
        self._spec = spec
        self._options = options
        self._events: Events = app._events  # noqa: SLF001 - of the same house
        self._patience = Patience(self._clock, self._events)
        self._recovery = Recovery(settings, self._clock, self._events)
        self._caretaker = Caretaker(self._store, settings, self._events)
        self._children: set[Child] = set()
        self._farewells: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._stop_by = 0.0
        self._has_joined = False
        self._last_beat: float | None = None
        self._name = f"supervisor {os.getpid()}"
        self.exit_code = 0

    async def run(self) -> None:
        """Keep all seats filled until `stop` is called and the last child has ended."""
        helping = [
            asyncio.ensure_future(self._beat_for_all()),
            asyncio.ensure_future(self._look_after_all()),
        ]
        try:
            await asyncio.gather(*(self._fill_seat() for _ in range(self._options.processes)))
            while self._farewells:
                await asyncio.wait(self._farewells)
        finally:
            for child in self._children:
                child.kill()
            for task in helping:
                task.cancel()
            await asyncio.wait(helping)
            self._caretaker.close()

    def stop(self) -> None:
        """Let children finish within their grace period; called again, hand all back at once."""
        hurry = self._stopping.is_set()
        self._stopping.set()
        grace = 0.0 if hurry else self._spec.grace
        self._stop_by = self._clock.boot() + grace + _LAST_STEPS
        for child in self._children:
            child.order(Stop(hurry))

    # Seats: one child each.

    async def _fill_seat(self) -> None:
        resumed: HandOver | None = None
        short_lives = 0
        while not self._stopping.is_set():
            try:
                child = await self._start(resumed)
            except OSError as error:
                log.warning("a worker process cannot be started: %s", error)
                await self._give_back(resumed)
                resumed, short_lives = None, short_lives + 1
            else:
                await child.vacated.wait()
                resumed = child.heir
                lived = self._clock.boot() - child.started
                expected = child.is_retiring or resumed is not None
                short_lives = 0 if expected or lived >= _SHORT_LIFE else short_lives + 1
            if short_lives and not self._stopping.is_set():
                await self._clock.wait(self._stopping, self._restart_delay(short_lives))
        await self._give_back(resumed)

    def _restart_delay(self, short_lives: int) -> float:
        delay = min(_RESTART_MAX, _RESTART_FIRST * 2.0 ** (short_lives - 1))
        return delay * (0.5 + self._clock.random() / 2)

    async def _start(self, resumed: HandOver | None) -> Child:
        spec = msgspec.structs.replace(self._spec, resumed=resumed)
        child = await Child.spawn(spec, self._clock.boot())
        if resumed is not None:
            child.replica = resumed.replica  # beats go on meanwhile
        self._children.add(child)
        farewell = asyncio.ensure_future(self._accompany(child))
        self._farewells.add(farewell)
        farewell.add_done_callback(self._farewells.discard)
        if self._stopping.is_set():
            child.order(Stop())
        return child

    async def _accompany(self, child: Child) -> None:
        """Listen to a child until it has ended, and see to what it leaves behind."""
        async for report in child.reports():
            if isinstance(report, Joined):
                child.replica, self._has_joined = report.replica, True
                self._changed.set()
            else:
                child.heir = report
        code = await child.ended(_EXIT_PATIENCE)
        self._tell_end(child, code)
        # A replica that is handed over lives on: its next process is about to start.
        lives_on = code == 0 and not child.is_retiring and not self._stopping.is_set()
        if not lives_on:
            child.heir = None
        self._children.discard(child)
        child.vacated.set()
        try:
            if child.heir is None and child.replica is not None:
                await self._bury(child.replica, child.board.started())
        finally:
            child.close()

    def _tell_end(self, child: Child, code: int) -> None:
        if code == 0:
            return
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        log.warning("worker process %s %s", child.pid, how)
        if code == _UNUSABLE and not self._has_joined:
            self.exit_code = _UNUSABLE
            self.stop()

    async def _bury(self, replica: str, started: list[str]) -> None:
        delays = self._recovery.delays
        bury = partial(self._store.bury, replica, started, delays=delays)
        try:
            recovered = await self._patience.until_answered("bury", bury, give_up=self._stopping)
        except TenureError as error:
            log.warning("others recover the jobs of worker %s later: %s", replica[:8], error)
        else:
            if recovered:
                self._recovery.tell(recovered, self._name)

    async def _give_back(self, resumed: HandOver | None) -> None:
        """Give up a job that was to be handed over, when there is nobody to take it."""
        if resumed is not None:
            await self._bury(resumed.replica, [])

    # Beats: one call for all.

    async def _beat_for_all(self) -> None:
        while True:
            self._changed.clear()
            alive = {child.replica: child for child in self._living() if child.replica}
            if not alive:
                await self._clock.wait(self._changed, self._ttl / 3)
                continue
            if self._last_beat is None:
                begin = partial(self._caretaker.begin, list(alive))
                await self._patience.until_answered("replicas", begin)
            async with self._store.watch(*(("replica", name) for name in alive)) as bell:
                pause = await self._beat(alive)
                await _first(bell.wait(pause), self._changed.wait())

    def _living(self) -> list[Child]:
        now = self._clock.boot()
        return [child for child in self._children if child.lives(now, self._ttl)]

    async def _beat(self, alive: dict[str, Child]) -> float:
        """Renew them all, tell each of them, and return how long to wait for the next time."""
        sent = self._clock.boot()

        async def beat() -> list[Beat | None]:
            nonlocal sent
            sent = self._clock.boot()
            try:
                return await self._store.beat(list(alive), ttl=self._ttl)
            except TenureError:
                for child in alive.values():
                    child.order(InDoubt())
                raise

        answers = await self._patience.until_answered("beat", beat)
        late = self._caretaker.beaten(sent)
        self._last_beat = sent
        pause = self._ttl / 3
        for (replica, child), answer in zip(alive.items(), answers, strict=True):
            if answer is None:
                child.replica = None
                child.order(TakenOver(replica))
                continue
            child.order(Beaten(replica, answer.cancels, late))
            self._caretaker.look(self._name, answer)
            chance = self._clock.random()
            pause = min(pause, pause_after(answer, self._ttl, chance, self._caretaker))
        return pause

    # Looking after children.

    async def _look_after_all(self) -> None:
        while True:
            await self._clock.sleep(_LOOK_EVERY)
            now = self._clock.boot()
            for child in list(self._children):
                if self._stopping.is_set() and now > self._stop_by:
                    log.error("worker process %s did not stop in time", child.pid)
                    await self._kill(child)
                else:
                    await self._look_after(child, now)

    async def _look_after(self, child: Child, now: float) -> None:
        overdue = {job: now - deadline for job, deadline in child.board.deadlines().items()}
        worst = max(overdue, key=overdue.__getitem__, default=None)
        memory = child.memory() if self._options.max_memory is not None else 0
        if worst is not None and overdue[worst] > max(self._spec.grace, _OVERDUE_AFTER):
            log.error("job %s does not stop at its time-out", worst)
            await self._kill(child)
        elif self._options.max_memory and memory > _MEMORY_HARD * self._options.max_memory:
            log.error("worker process %s takes %s MB", child.pid, memory // 1_000_000)
            await self._kill(child)
        elif worst is not None and overdue[worst] > min(_OVERDUE_AFTER, self._spec.grace / 2):
            self._retire(child, f"job {worst} does not stop at its time-out")
        elif self._options.max_memory and memory > self._options.max_memory:
            self._retire(child, f"it takes {memory // 1_000_000} MB")
        elif self._options.max_jobs and child.board.ended >= self._options.max_jobs:
            self._retire(child, f"it has run {child.board.ended} jobs")
        self._watch_ticks(child, now)

    def _retire(self, child: Child, why: str) -> None:
        """Let a child finish what it runs, while another one takes its seat."""
        if not child.is_retiring and not self._stopping.is_set():
            log.info("worker process %s is replaced: %s", child.pid, why)
            child.is_retiring = True
            child.order(Retire())
            child.vacated.set()

    async def _kill(self, child: Child) -> None:
        log.error("worker process %s is killed; its stacks follow", child.pid)
        child.dump_stacks()
        await self._clock.sleep(_DUMP_SECONDS)
        child.kill()

    def _watch_ticks(self, child: Child, now: float) -> None:
        """Show once what keeps the threads of a child from running. It does no harm by itself."""
        silent = child.board.ticked > 0 and now - child.board.ticked > _SILENT_AFTER
        if silent and not child.dumped and child.lives(now, self._ttl):
            log.warning(
                "no thread of worker process %s has run for %.0f s; its stacks follow",
                child.pid,
                now - child.board.ticked,
            )
            child.dump_stacks()
        child.dumped = silent

    def status(self) -> dict[str, Any]:
        """Return how things stand, for probes."""
        now = self._clock.boot()
        beat_age = None if self._last_beat is None else round(now - self._last_beat, 3)
        children = [_shown(child, now) for child in self._children]
        joined = sum(child["replica"] is not None for child in children)
        stopping = self._stopping.is_set()
        all_work = joined >= self._options.processes and (beat_age or 0.0) < self._ttl
        return {
            "pid": os.getpid(),
            "stopping": stopping,
            "ready": all_work and not stopping,
            "last_beat_seconds_ago": beat_age,
            "children": children,
        }


def _shown(child: Child, now: float) -> dict[str, Any]:
    return {
        "pid": child.pid,
        "replica": child.replica,
        "retiring": child.is_retiring,
        "running": len(child.board.started()),
        "ended": child.board.ended,
        "memory": child.memory() or None,
        "age_seconds": round(now - child.started, 1),
    }


async def _first(*waits: Any) -> None:
    tasks = [asyncio.ensure_future(one) for one in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in tasks:
            one.cancel()
