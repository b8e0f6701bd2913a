"""Virtual time on real stores: it passes when nothing is under way any more.

    async with Shift(world, clock, declare) as shift:
        await shift.start(10)
        await clock.advance(20)

A real store answers in real time, while the virtual clock stands still. `PacedClock` moves on only
when every call has been answered and everybody who had something to do with it has done it.
"""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

from tenure import Tenure
from tenure.core.clock import Clock
from tenure.core.durations import micros
from tenure.core.leases import Topic
from tenure.jobs.worker import EmbeddedWorker
from tenure.stores.contract import Store, Watch
from tenure.testing import Faults, FaultyStore, ManualClock
from tests.contract.worlds import World

# Who sleeps is woken at the next whole one of these; ticks are due at whole seconds.
_STEP = 0.01
# A chain of wake-ups from an answer to the next call is shorter than that.
_TURNS = 30
_PATIENCE = 30.0


class PacedClock(ManualClock):
    """A virtual clock that waits for real stores before it moves on."""

    def __init__(self) -> None:
        super().__init__()
        self._under_way = 0
        self._answered = asyncio.Event()

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Let no time pass inside."""
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            self._answered.set()

    async def advance(self, seconds: float) -> None:
        end = self._boot + seconds
        await self._settle()
        while self._boot < end:
            due = min(self._sleepers.values(), default=end)
            steps = max(1, -int(-(due - self._boot) // _STEP))  # to the next whole step
            self._move_to(min(end, round(self._boot + steps * _STEP, 6)))
            await self._settle()

    async def _settle(self) -> None:
        """Wait until no call is under way, and none follows from what was answered."""
        async with asyncio.timeout(_PATIENCE):
            turns = 0
            while turns < _TURNS:
                if self._under_way:
                    turns = 0
                    self._answered.clear()
                    await self._answered.wait()
                turns += 1
                await asyncio.sleep(0)


class SkewedClock:
    """The clock of a host that is wrong by some seconds; the store's clock is right."""

    virtual = True

    def __init__(self, clock: ManualClock, skew: float) -> None:
        self._clock = clock
        self._skew = skew

    def wall(self) -> int:
        return self._clock.wall() + micros(self._skew)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)


class Line(Faults):
    """A host's way to the store. It can be cut: calls go out and never come back."""

    def __init__(self, clock: PacedClock, skew: float) -> None:
        super().__init__()
        self.clock = clock
        self.local_clock: Clock = SkewedClock(clock, skew)
        self.cut_since = math.inf
        self._last: tuple[str, Literal["request", "reply"]] | None = None
        self._restored = asyncio.Event()

    @property
    def is_cut(self) -> bool:
        return self.cut_since < math.inf

    def cut(self) -> None:
        self.cut_since = self.clock.boot()

    def cut_at(self, call: str, what: Literal["request", "reply"]) -> None:
        """Cut it at the next such call: it does not happen, or its answer is lost."""
        self._last = (call, what)

    def restore(self) -> None:
        """Let who waits go on, as if its process had only been paused."""
        self.heal()
        self.cut_since, self._last = math.inf, None
        self._restored.set()

    def lets_through(self, call: str, what: Literal["request", "reply"]) -> bool:
        if self._last == (call, what) and not self.is_cut:
            self.cut()
        return not self.is_cut

    async def silence(self) -> None:
        """Wait until it is restored."""
        await self._restored.wait()


class LinedStore(FaultyStore):
    """A store at the end of a `Line`; the clock stands while it works."""

    faults: Line

    def __init__(self, store: Store, line: Line) -> None:
        super().__init__(store, line)
        # Memory and SQLite are on the host itself; here, their clock is still another one.
        self.clock = line.local_clock

    async def _pass(self, call: str, send: Callable[[], Awaitable[Any]]) -> Any:
        line = self.faults
        if not line.lets_through(call, "request"):
            await line.silence()
        try:
            with line.clock.standing():
                return await super()._pass(call, send)
        finally:
            if not line.lets_through(call, "reply"):
                await line.silence()

    @asynccontextmanager
    async def watch(self, *topics: Topic) -> AsyncIterator[Watch]:
        async with AsyncExitStack() as stack:
            with self.faults.clock.standing():
                bell = await stack.enter_async_context(super().watch(*topics))
            yield bell


@dataclass(eq=False)
class Member:
    """One process: an app of its own, and which ticks its handler has begun to run."""

    app: Tenure
    line: Line
    worker: EmbeddedWorker
    ran: list[int] = field(default_factory=list)
    """Nominal instants, in seconds."""
    closing: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Stop, as a process does that was paused and is told to end as it wakes up."""
        self.line.restore()
        await self.worker.__aexit__(None, None, None)
        await self.app.close()

    async def unless_dead(self) -> None:
        """Go on, if this process has not been killed."""
        if self.line.is_cut:
            await self.line.silence()


Declare = Callable[[Tenure, Member], None]


class Shift:
    """Processes that declare the same timers on one store, with clocks that disagree."""

    def __init__(self, world: World, clock: PacedClock, declare: Declare) -> None:
        self._world = world
        self._clock = clock
        self._declare = declare
        self.members: list[Member] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        ends = [self._close(member) for member in self.members]
        while not all(end.done() for end in ends):  # who waits to try again must get there
            await self._clock.advance(0.1)
        await asyncio.gather(*ends)

    async def start(self, number: int, skews: tuple[float, ...] = (0.0,)) -> list[Member]:
        """Add so many that are at work, with clocks wrong by these seconds in turn."""
        added = [self._make(skews[index % len(skews)]) for index in range(number)]
        for member in added:
            await member.app.open()
            await member.worker.__aenter__()
            await member.worker.ready()
            self.members.append(member)
        return added

    def close_dead(self, after: float) -> None:
        """Let those end that died so many seconds ago: servers have no room for any number."""
        for member in self.members:
            if self._clock.boot() - member.line.cut_since > after:
                self._close(member)

    def _close(self, member: Member) -> asyncio.Task[None]:
        if member.closing is None:
            member.closing = asyncio.create_task(member.close())
        return member.closing

    def _make(self, skew: float) -> Member:
        line = Line(self._clock, skew)
        app = Tenure(LinedStore(self._world.unopened(), line), grace=0)
        member = Member(app, line, app.worker())
        self._declare(app, member)
        return member

    @property
    def living(self) -> list[Member]:
        return [
            member for member in self.members if not member.line.is_cut and member.closing is None
        ]

    @property
    def ran(self) -> Counter[int]:
        """How often each tick has run, over all."""
        return Counter(tick for member in self.members for tick in member.ran)
