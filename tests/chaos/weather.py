"""The faults of a storm: each kind comes at random, in its own time."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle

from tests.chaos.brood import Brood, Member
from tests.chaos.places import Place
from tests.chaos.tally import Tally
from tests.process.site import no_write
from tests.rig.sizes import Storm

_PAUSED_AT_ONCE = 3
_SHORTEST_PAUSE = 2.2
_TRIES = 40
_AWAY_AT_MOST = 1.5
# In turns, so that a short storm has some of both: those that cut, and those that hold up.
_CUTS = ("cut", "half open")
_HOLDS = ("freeze", "to_server", "to_client", "slow")

Strike = Callable[[], Awaitable[None]]


@dataclass
class Weather:
    """The faults of one storm, and the connections they hit."""

    place: Place
    brood: Brood
    tally: Tally
    size: Storm
    chance: random.Random
    ttl: float
    replace: Callable[[Member], None]
    """Starts another process in the place of one that is gone."""
    _pausing: set[asyncio.Task[None]] = field(default_factory=set)
    _leaving: set[asyncio.Task[None]] = field(default_factory=set)
    _breaks: "cycle[tuple[str, ...]]" = field(
        default_factory=lambda: cycle((_CUTS, _HOLDS, _HOLDS))
    )

    async def rage(self, over: asyncio.Event) -> None:
        """Let everything go wrong until it is over; nothing is left broken then."""
        size = self.size
        kinds: list[tuple[Strike, float]] = [
            (self._kill_one, size.kill_every),
            (self._pause_one, size.pause_every),
            (self._terminate_some, size.terminate_every),
        ]
        if self.place.server is not None:
            kinds.append((self._lose_the_server, size.restart_every))
        if self.place.network is not None:
            kinds.append((self._break_the_network, size.network_every))
        try:
            await asyncio.gather(*(self._again(over, *kind) for kind in kinds))
            await asyncio.gather(*self._pausing, *self._leaving)
        finally:
            await self._clear_up()

    async def _again(self, over: asyncio.Event, strike: Strike, every: float) -> None:
        while not over.is_set():
            await strike()
            # Never two at once by chance, and never none for long.
            with suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), self.chance.uniform(0.3, 1.7) * every)

    async def _clear_up(self) -> None:
        if self.place.network is not None:
            self.place.network.heal()
        server = self.place.server
        if server is not None:
            await asyncio.to_thread(server.resume if server.running else server.start)

    # Processes.

    async def _kill_one(self) -> None:
        role = self.chance.choices(["worker", "producer", "holder"], [4, 4, 2])[0]
        victim = self.brood.sample(self.chance, role)
        if victim is not None and await self.brood.kill(victim):
            self.tally.add("kills")
            self.replace(victim)

    async def _pause_one(self) -> None:
        if len(self._pausing) >= _PAUSED_AT_ONCE:
            return
        deaf = ["grind", "book"] if self.place.has_tables else ["grind"]
        role = self.chance.choice(["worker", "holder"])
        _in_background(self._pausing, self._pause(role, self.chance.choice(deaf)))

    async def _pause(self, role: str, task: str) -> None:
        # Long enough for others to take over what it had, and to finish it.
        seconds = self.ttl * self.chance.uniform(_SHORTEST_PAUSE, self.size.longest_pause)
        for _ in range(_TRIES):
            living = self.brood.living(role)
            busy = [member for member in living if member.is_busy(task)] if len(living) > 1 else []
            # A process without work in hand when it stops may go at once.
            no_writing = partial(no_write, self.place.family, self.place.url)
            if busy and await self.brood.pause(self.chance.choice(busy), seconds, no_writing, task):
                self.tally.add("pauses")
                return
            await asyncio.sleep(0.05)

    async def _terminate_some(self) -> None:
        """One worker or holder, or now and then all workers at once, as a bad roll-out does it."""
        role = self.chance.choice(["worker", "worker", "holder"])
        victims = self.brood.living(role)
        number = len(victims) if self.chance.random() < 0.2 else 1
        for victim in self.chance.sample(victims, min(number, len(victims))):
            self.brood.terminate(victim)
            self.tally.add("terminations")
            _in_background(self._leaving, self._leave(victim))

    async def _leave(self, victim: Member) -> None:
        code = await self.brood.ended(victim)
        if code != 0:
            self.tally.violate(f"{victim.by} ended with {code} after SIGTERM:\n{victim.story()}")
        self.replace(victim)

    # The store.

    async def _lose_the_server(self) -> None:
        server = self.place.server
        assert server is not None
        away = self.chance.uniform(0, _AWAY_AT_MOST)
        how = self.chance.choice(["kill", "kill", "stop", "pause"])
        if how == "pause":
            await asyncio.to_thread(server.pause)
            await asyncio.sleep(away)
            await asyncio.to_thread(server.resume)
            self.tally.add("server pauses")
            return
        await asyncio.to_thread(server.kill if how == "kill" else server.stop)
        await asyncio.sleep(away)
        await asyncio.to_thread(server.start)
        self.tally.add("restarts")

    async def _break_the_network(self) -> None:
        """Cut the connections of remote processes; the others go on and take over."""
        network = self.place.network
        assert network is not None
        seconds = self.chance.uniform(0.2, 2.5 * self.ttl)
        kind = self.chance.choice(next(self._breaks))
        cut, held_up = network.cut, network.held_up
        if kind == "cut":
            network.cut_all()
        elif kind in ("freeze", "half open"):
            network.freeze()
        elif kind == "slow":
            network.delay(self.chance.uniform(0.02, 0.3))
        else:
            network.one_way("to_server" if kind == "to_server" else "to_client")
        await asyncio.sleep(0 if kind == "cut" else seconds)
        if kind == "half open":
            # What was sent meanwhile is lost, and each side learns of the end by itself.
            network.cut_all()
        network.heal()
        # As the proxy has seen it: what hit no connection is no fault.
        cut, held_up = network.cut - cut, network.held_up - held_up
        self.tally.add("proxy faults", bool(cut or held_up))
        self.tally.add("connections cut", cut)
        self.tally.add("messages held up", held_up)


def _in_background(tasks: set[asyncio.Task[None]], work: Awaitable[None]) -> None:
    task = asyncio.ensure_future(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
