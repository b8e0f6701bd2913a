"""The machines of a simulation, their processes, and the faults that a plan injects into them.

A `Fleet` is everything of one run. Scenarios get a `Process` and act through it.
"""

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
from tests.sim.fenced_resource import FencedResource
from tests.sim.history import History
from tests.sim.loop import Lane, VirtualLoop
from tests.sim.plan import CLOCKS, Event, Plan
from tests.sim.server import Server
from tests.sim.store_connection import StoreConnection, StoreNetwork

__all__ = ["Fleet", "Machine", "Process", "current_process"]

current_process: ContextVar[Process] = ContextVar("tenure_sim_process")


class Process:
    """A process: one execution of the program on a machine, until it ends or crashes."""

    def __init__(self, machine: Machine, number: int) -> None:
        self.machine = machine
        self.fleet = machine.fleet
        self.lane = Lane(f"{machine.name}.{number}")
        self.lane.context.run(current_process.set, self)
        self.clock = machine.clock
        self.stopping = asyncio.Event()
        """Set when the process is asked to end, as by SIGTERM."""

    @property
    def name(self) -> str:
        return self.lane.name

    def connect(self) -> StoreConnection:
        """Return an unopened store object."""
        return StoreConnection(self.machine.network, self.lane, self.clock, self.fleet.loop)

    def record(self, what: str, **facts: Any) -> None:
        """Add an entry of this process to the history, unless it is dead."""
        if not self.lane.is_dead:
            self.fleet.history.add(self.fleet.loop.time(), self.name, what, **facts)

    def record_event(self, event: TenureEvent) -> None:
        """Record an event of the app."""
        facts: dict[str, Any] = {}
        if isinstance(event, HoldLost):
            facts = {"key": event.name, "fence": event.fence, "answer": event.reason}
        elif isinstance(event, AttemptLost):
            facts = {"job": event.job, "fence": event.fence}
        elif isinstance(event, ReplicaLost):
            facts = {"replica": event.replica, "ids": list(event.jobs)}
        elif isinstance(event, TickSkipped | TicksMissed):
            facts = {"key": event.timer, "answer": event.reason}
        self.record("event", detail=type(event).__name__, **facts)
        self.fleet.counts[type(event).__name__] += 1


class Machine:
    """Runs one process at a time. Its clock, its network and its disk outlive the processes."""

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
        self.rng = random.Random(f"work {plan.scenario} {plan.seed} {number}")
        """The random generator of its programs."""
        rng = random.Random(f"line {plan.seed} {number}")
        self.network = StoreNetwork(fleet.server, rng, plan, fleet.injected)
        self.process: Process | None = None
        self.is_finished = False
        """Whether its last process has ended, and no other one will start."""
        self._starts = 0
        self.disk: dict[str, Any] = {}
        """Data of its programs that survives crashes, as on a disk."""

    def start(self) -> None:
        """Start a process, unless one runs or the machine is finished."""
        if self.process is None and not self.is_finished:
            self._starts += 1
            process = self.process = Process(self, self._starts)
            process.lane.on_last_step = self._kill
            process.lane.context.run(self.fleet.loop.create_task, self._run(process))

    async def _run(self, process: Process) -> None:
        process.record("started")
        try:
            await self.fleet.program(process)
        except Exception as error:  # noqa: BLE001 - for the checkers
            process.record("raised", detail=repr(error))
        process.record("ended")
        self.process = None
        if not process.lane.is_dead:
            self.fleet.retire(process, is_dead=False)
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
            self.process.lane.steps_left = int(event.amount)

    def crash_now(self) -> None:
        """Kill the process that calls this, at the end of the present step."""
        if self.process is not None and not self.fleet.is_healed:
            self._away = 0.05
            self.process.lane.steps_left = 1

    def _kill(self) -> None:
        process = self.process
        if process is None:
            return
        self.fleet.history.add(self.fleet.loop.time(), "world", "crash", detail=process.name)
        self.fleet.injected["crash"] += 1
        self.fleet.loop.kill(process.lane)
        self.fleet.retire(process, is_dead=True)
        for connection in list(self.network.connections):
            self.network.connections.remove(connection)
        self.process = None
        self._start_after(self._away if not self.fleet.is_healed else 0.05)

    def stop(self) -> None:
        """Ask the process to end."""
        if self.process is not None:
            self.process.stopping.set()

    def heal(self) -> None:
        self.network.restore()
        self.network.call_faults = {}
        if self.process is not None:
            self.process.lane.steps_left = 0
            self.fleet.loop.resume(self.process.lane)


Program = Callable[[Process], Coroutine[Any, Any, None]]

# These strike some steps or writes after their time, or never.
_LATER = ("crash", "failover")


class Fleet:
    """Everything of one run: the loop, the store, the machines and the history."""

    def __init__(self, plan: Plan, program: Program) -> None:
        self.plan = plan
        self.program = program
        self.loop = VirtualLoop(random.Random(f"order {plan.scenario} {plan.seed}").random)
        self.history = History()
        self.counts: Counter[str] = Counter()
        self.injected: Counter[str] = Counter(fault for fault in CLOCKS if fault in plan.faults)
        """How often each fault was injected, which may be less often than planned."""
        self.server = Server(StoreClock(self.loop.time), self.history)
        self.server.listen(self._deliver_wake_up)
        rng = random.Random(f"sink {plan.seed}")
        self.resource = FencedResource(self.loop, self.history, rng, plan, self.injected)
        self.machines = [Machine(self, number) for number in range(plan.machines)]
        self.is_healed = False
        self.killed: list[Process] = []
        self.ended: list[Process] = []

    def retire(self, process: Process, *, is_dead: bool) -> None:
        (self.killed if is_dead else self.ended).append(process)

    def start(self) -> None:
        """Start all machines, and schedule the faults of the plan."""
        world = self.loop.world.context
        for machine in self.machines:
            self.loop.call_soon(machine.start, context=world)
        for event in self.plan.events:
            self.loop.call_at(event.at, self._inject, event, context=world)

    def heal(self) -> None:
        """End all faults: from now on everything goes well."""
        self.is_healed = True
        self.history.add(self.loop.time(), "world", "healed")
        self.server.bring_up()
        self.server.slowness = 0.0
        self.server.forget_copy()
        self.resource.heal()
        for machine in self.machines:
            machine.heal()
            machine.start()

    @property
    def are_finished(self) -> bool:
        return all(machine.is_finished and machine.process is None for machine in self.machines)

    def _deliver_wake_up(self, topic: Any) -> None:
        for machine in self.machines:
            for connection in machine.network.connections:
                connection.deliver_wake_up(topic)

    def _inject(self, event: Event) -> None:
        if self.is_healed:
            return
        machine = self.machines[event.machine]
        has_no_target = machine.process is None and event.what in ("pause", "stop")
        if not has_no_target and event.what not in _LATER:
            self.injected[event.what] += 1
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
                machine.network.disconnect_all()
            case "cut":
                machine.network.is_cut = True
                self._later(event.length, machine.network.restore)
            case "clock":
                machine.clock.step(event.amount)
            case _:
                self._inject_into_store(event)

    def _inject_into_store(self, event: Event) -> None:
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
                self._bring_down(event.length)
            case "empty":
                self._bring_down(event.length)
                self.server.lose_everything()
            case "failover":

                def fail_over() -> None:
                    self.injected["failover"] += 1
                    self._bring_down(event.length / 5)
                    self.server.lose_tail()

                self.server.lose_after(int(event.amount), fail_over)

    def _bring_down(self, seconds: float) -> None:
        if self.is_healed:
            seconds = 0.0
        self.server.is_down = seconds > 0
        for machine in self.machines:
            machine.network.disconnect_all()
        if seconds > 0:
            self._later(seconds, self.server.bring_up)

    def _later(self, seconds: float, do: Callable[..., None], *values: Any) -> None:
        self.loop.call_later(seconds, do, *values, context=self.loop.world.context)
