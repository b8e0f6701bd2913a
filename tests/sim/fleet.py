"""The machines of a simulation and what happens to them: crashes, pauses, cuts, and the store's."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any

from tenure.observe import AttemptLost, HoldLost, ReplicaLost, TickSkipped, TicksMissed
from tenure.observe import Event as TenureEvent
from tests.sim.clock import MachineClock, StoreClock
from tests.sim.history import History
from tests.sim.link import Line, Link
from tests.sim.loop import Lane, VirtualLoop
from tests.sim.plan import CLOCKS, Event, Plan
from tests.sim.server import Server
from tests.sim.sink import Sink

__all__ = ["Fleet", "Machine", "Process", "current_process"]

current_process: ContextVar[Process] = ContextVar("tenure_sim_process")


class Process:
    """One start of a program on a machine, from its first step to its end or its crash."""

    def __init__(self, machine: Machine, number: int) -> None:
        self.machine = machine
        self.fleet = machine.fleet
        self.lane = Lane(f"{machine.name}.{number}")
        self.lane.context.run(current_process.set, self)
        self.clock = machine.clock
        self.stopping = asyncio.Event()
        """Set when it is asked to end."""

    @property
    def name(self) -> str:
        return self.lane.name

    def link(self) -> Link:
        """Return an unopened store object."""
        return Link(self.machine.line, self.lane, self.clock, self.fleet.loop)

    def say(self, what: str, **facts: Any) -> None:
        """Write down what it does. The dead say nothing."""
        if not self.lane.is_dead:
            self.fleet.history.add(self.fleet.loop.time(), self.name, what, **facts)

    def hear(self, event: TenureEvent) -> None:
        """Write down an event of the app."""
        facts: dict[str, Any] = {}
        if isinstance(event, HoldLost):
            facts = {"key": event.name, "fence": event.fence, "answer": event.reason}
        elif isinstance(event, AttemptLost):
            facts = {"job": event.job, "fence": event.fence}
        elif isinstance(event, ReplicaLost):
            facts = {"replica": event.replica, "ids": list(event.jobs)}
        elif isinstance(event, TickSkipped | TicksMissed):
            facts = {"key": event.timer, "answer": event.reason}
        self.say("event", detail=type(event).__name__, **facts)
        self.fleet.counts[type(event).__name__] += 1


class Machine:
    """A place where processes run, one at a time. Its clock and its network outlive them."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        self.fleet = fleet
        self.number = number
        self.name = f"m{number}"
        plan = fleet.plan
        self.clock = MachineClock(
            fleet.loop.time,
            seed=f"clock {plan.seed} {number}",
            offset=plan.offsets[number],
            rate=plan.rates[number],
        )
        self.dice = random.Random(f"work {plan.scenario} {plan.seed} {number}")
        """What its programs draw from."""
        dice = random.Random(f"line {plan.seed} {number}")
        self.line = Line(fleet.server, dice, plan, fleet.struck)
        self.process: Process | None = None
        self.is_finished = False
        """Whether its last process has come to its end, and no other one is wanted."""
        self._starts = 0
        self.memory: dict[str, Any] = {}
        """What its programs remember over crashes, as if on a disk of their own."""

    def start(self) -> None:
        """Start a process, unless one runs or none is wanted."""
        if self.process is None and not self.is_finished:
            self._starts += 1
            process = self.process = Process(self, self._starts)
            process.lane.on_fuse = self._die
            process.lane.context.run(self.fleet.loop.create_task, self._run(process))

    async def _run(self, process: Process) -> None:
        process.say("started")
        try:
            await self.fleet.program(process)
        except Exception as error:  # noqa: BLE001 - for the checkers
            process.say("fell", detail=repr(error))
        process.say("ended")
        self.process = None
        if not process.lane.is_dead:
            self.fleet.bury(process, is_dead=False)
            if self.is_finished or not process.stopping.is_set():
                self.is_finished = True
            else:
                self._start_after(0.05)

    def _start_after(self, seconds: float) -> None:
        loop = self.fleet.loop
        loop.call_later(seconds, self.start, context=loop.world.context)

    def crash(self, event: Event) -> None:
        """Kill the process some steps from now, and start another one later."""
        if self.process is not None:
            self._away = event.length
            self.process.lane.fuse = int(event.amount)

    def die_here(self) -> None:
        """Kill the process that calls this, with the end of the present step."""
        if self.process is not None and not self.fleet.is_calm:
            self._away = 0.05
            self.process.lane.fuse = 1

    def _die(self) -> None:
        process = self.process
        if process is None:
            return
        self.fleet.history.add(self.fleet.loop.time(), "world", "crash", detail=process.name)
        self.fleet.struck["crash"] += 1
        self.fleet.loop.kill(process.lane)
        self.fleet.bury(process, is_dead=True)
        for link in list(self.line.links):
            self.line.links.remove(link)
        self.process = None
        self._start_after(self._away if not self.fleet.is_calm else 0.05)

    def stop(self) -> None:
        """Ask the process to end."""
        if self.process is not None:
            self.process.stopping.set()

    def heal(self) -> None:
        self.line.mend()
        self.line.weather = {}
        if self.process is not None:
            self.process.lane.fuse = 0
            self.fleet.loop.resume(self.process.lane)


Program = Callable[[Process], Coroutine[Any, Any, None]]

# They come true some steps or writes later, or never.
_LATER = ("crash", "failover")


class Fleet:
    """Everything of one run: the loop, the store, the machines and what becomes of them."""

    def __init__(self, plan: Plan, program: Program) -> None:
        self.plan = plan
        self.program = program
        self.loop = VirtualLoop(random.Random(f"order {plan.scenario} {plan.seed}").random)
        self.history = History()
        self.counts: Counter[str] = Counter()
        self.struck: Counter[str] = Counter(one for one in CLOCKS if one in plan.faults)
        """How often each fault has come true, not how often it was planned."""
        self.server = Server(StoreClock(self.loop.time), self.history)
        self.server.listen(self._hear)
        dice = random.Random(f"sink {plan.seed}")
        self.sink = Sink(self.loop, self.history, dice, plan, self.struck)
        self.machines = [Machine(self, number) for number in range(plan.machines)]
        self.is_calm = False
        self.graveyard: list[Process] = []
        self.ended: list[Process] = []

    def bury(self, process: Process, *, is_dead: bool) -> None:
        (self.graveyard if is_dead else self.ended).append(process)

    def start(self) -> None:
        """Start all machines, and plan what goes wrong."""
        world = self.loop.world.context
        for machine in self.machines:
            self.loop.call_soon(machine.start, context=world)
        for event in self.plan.events:
            self.loop.call_at(event.at, self._happen, event, context=world)

    def calm(self) -> None:
        """Let everything go well from now on."""
        self.is_calm = True
        self.history.add(self.loop.time(), "world", "calm")
        self.server.come_back()
        self.server.slowness = 0.0
        self.server.forget_copy()
        self.sink.heal()
        for machine in self.machines:
            machine.heal()
            machine.start()

    @property
    def are_finished(self) -> bool:
        return all(one.is_finished and one.process is None for one in self.machines)

    def _hear(self, topic: Any) -> None:
        for machine in self.machines:
            for link in machine.line.links:
                link.hear(topic)

    def _happen(self, event: Event) -> None:
        if self.is_calm:
            return
        machine = self.machines[event.machine]
        in_vain = machine.process is None and event.what in ("pause", "stop")
        if not in_vain and event.what not in _LATER:
            self.struck[event.what] += 1
        if event.what != "crash":
            self.history.add(
                self.loop.time(),
                "world",
                event.what,
                number=event.machine,
                seconds=event.length,
                detail="" if machine.process is None else machine.process.name,
            )
        match event.what:
            case "crash":
                machine.crash(event)
            case "pause" if machine.process is not None:
                lane = machine.process.lane
                self.loop.pause(lane)
                self._later(event.length, self.loop.resume, lane)
            case "stop":
                machine.stop()
            case "break":
                machine.line.break_links()
            case "cut":
                machine.line.is_cut = True
                self._later(event.length, machine.line.mend)
            case "clock":
                machine.clock.step(event.amount)
            case _:
                self._happen_to_store(event)

    def _happen_to_store(self, event: Event) -> None:
        match event.what:
            case "slow":
                self.server.slowness = event.amount
                self._later(event.length, setattr, self.server, "slowness", 0.0)
            case "store clock":
                self.server.store_clock.step(event.amount)
                now = self.server.store_clock.wall()
                self.history.add(
                    self.loop.time(), "store", "stepped", seconds=event.amount, now=now
                )
            case "restart":
                self._take_away(event.length)
            case "empty":
                self._take_away(event.length)
                self.server.lose_everything()
            case "failover":

                def fall() -> None:
                    self.struck["failover"] += 1
                    self._take_away(event.length / 5)
                    self.server.lose_tail()

                self.server.lose_after(int(event.amount), fall)

    def _take_away(self, seconds: float) -> None:
        if self.is_calm:
            seconds = 0.0
        self.server.is_away = seconds > 0
        for machine in self.machines:
            machine.line.break_links()
        if seconds > 0:
            self._later(seconds, self.server.come_back)

    def _later(self, seconds: float, do: Callable[..., None], *values: Any) -> None:
        self.loop.call_later(seconds, do, *values, context=self.loop.world.context)
