"""Many processes that want the same thing, some of which are killed on the way."""

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.process.ledger import Section, read_ledger
from tests.process.orders import boot
from tests.process.site import Site
from tests.rig.processes import Child
from tests.rig.sizes import SIZE
from tests.rig.wait import wait_until_async

# Rare enough for something to happen in between: a waiter behind a dead process waits for it.
PAUSE_BETWEEN_KILLS = (1.0, 2.5)


@dataclass
class Contender:
    """A contender, as seen from outside."""

    child: Child
    ledger: Path
    killed: float | None = None

    def sections(self) -> list[Section]:
        """Return what it wrote down so far."""
        sections = read_ledger(self.ledger)
        for section in sections:
            if section.end is None and not section.lost:
                section.killed = self.killed
        return sections


class Crowd:
    """Contenders that begin together, are killed and replaced, and end together.

    The arguments are those of `tests.process.contender` from the names on.
    """

    def __init__(self, site: Site, folder: Path, *arguments: object) -> None:
        self._site = site
        self._folder = folder
        self._arguments = arguments
        self.members: list[Contender] = []
        self._first: list[Contender] = []

    @property
    def alive(self) -> list[Contender]:
        return [member for member in self.members if member.killed is None]

    @property
    def steady(self) -> list[Contender]:
        """Those that were there from the beginning to the end: at least two."""
        return [member for member in self._first if member.killed is None]

    def sections(self) -> list[Section]:
        """Return what all contenders wrote down, also those that are dead."""
        return [section for member in self.members for section in member.sections()]

    async def gather(self, number: int) -> None:
        """Start that many contenders; let them begin when all of them are ready."""
        started = [self._enlist() for _ in range(number)]
        for contender in started:
            await asyncio.to_thread(contender.child.expect, "ready", SIZE.patience)
        for contender in started:
            contender.child.send("go")
        self._first = started

    async def lose_some(self, seconds: float) -> None:
        """For a while, kill one at random now and then and start another; two stay for good."""
        until = boot() + seconds
        safe = self._first[:2]
        while (pause := random.uniform(*PAUSE_BETWEEN_KILLS)) < until - boot():
            await asyncio.sleep(pause)
            victim = random.choice([member for member in self.alive if member not in safe])
            victim.killed = boot()
            await asyncio.to_thread(victim.child.kill)
            self._enlist().child.send("go")
        await asyncio.sleep(until - boot())

    async def each_works_on(self) -> None:
        """Wait until everyone alive has had one more section from beginning to end."""
        now = boot()

        def works_on(member: Contender) -> bool:
            assert member.child.running, member.child.story()
            return any(section.start > now and section.end for section in member.sections())

        for member in self.alive:
            name = member.ledger.stem
            await wait_until_async(partial(works_on, member), SIZE.patience, f"{name} works on")

    async def dismiss(self) -> None:
        """End all contenders; each of them must say that nothing unexpected happened to it."""
        for member in self.alive:
            with suppress(BrokenPipeError):  # it has ended, and its code tells why
                member.child.send("end")
        for member in self.alive:
            code = await asyncio.to_thread(member.child.wait, SIZE.patience)
            assert code == 0, member.child.story()

    def _enlist(self) -> Contender:
        ledger = self._folder / f"contender-{len(self.members)}.ledger"
        child = self._site.start("contender", ledger, *self._arguments)
        self.members.append(Contender(child, ledger))
        return self.members[-1]
