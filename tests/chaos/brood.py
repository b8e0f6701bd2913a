"""The processes of a storm, as seen from outside: started, killed, paused, counted."""

import asyncio
import json
import random
import signal
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from tests.chaos.diary import Diary, diary_of, read_diary
from tests.chaos.roles import Order
from tests.process.orders import boot
from tests.rig.processes import Child, Fleet
from tests.rig.sizes import SIZE
from tests.rig.spawn import stands_still
from tests.rig.wait import wait_until, wait_until_async

Fate = Literal["", "killed", "terminated", "doomed"]
_TAIL = 3000

NoWrite = Callable[[], AbstractContextManager[None]]


@dataclass(eq=False)
class Member:
    """One process."""

    order: Order
    pid: int = 0
    code: int | None = None
    fate: Fate = ""
    """What the storm did to it; a process that ends without that has fallen."""
    is_paused: bool = False

    @property
    def by(self) -> str:
        return self.order.by

    @property
    def lives(self) -> bool:
        return self.pid > 0 and self.code is None

    @property
    def log(self) -> Path:
        return Path(self.order.folder) / f"{self.by}.log"

    def story(self) -> str:
        """Return the end of its log and of its diary."""
        tails = [path.read_text(errors="replace")[-_TAIL:] for path in (self.log, self.diary)]
        return "\n".join(tails)

    @property
    def diary(self) -> Path:
        return diary_of(Path(self.order.folder), self.by)

    def is_busy(self, task: str = "") -> bool:
        """Say whether it is inside a lock, or runs such a job, as far as its diary tells."""
        entries = read_diary(self.diary)
        if self.order.role == "holder":
            return bool(entries) and entries[-1].what in ("entered", "acts")
        ended = {(entry.job, entry.fence) for entry in entries if entry.what != "began"}
        begun = [entry for entry in entries if entry.what == "began" and task in ("", entry.detail)]
        return any((attempt.job, attempt.fence) not in ended for attempt in begun)


class Brood:
    """All processes that a nursery has made."""

    def __init__(self, fleet: Fleet, folder: Path, env: Mapping[str, str] | None = None) -> None:
        self._nursery: Child = fleet.start("-m", "tests.chaos.nursery", env=env)
        self._folder = folder
        self._seen = 0
        self.world = Diary(folder, "world")
        self.members: dict[str, Member] = {}

    async def ready(self) -> None:
        await asyncio.to_thread(self._nursery.expect, "ready", SIZE.patience)

    @property
    def noise(self) -> str:
        """What the nursery itself has said, which ought to be nothing."""
        return self._nursery.stderr

    def living(self, *roles: str) -> list[Member]:
        """Return those that are neither dead, nor dying, nor paused."""
        self._hear()
        return [
            member
            for member in self.members.values()
            if member.lives
            and not member.fate
            and not member.is_paused
            and member.order.role in roles
        ]

    def fallen(self) -> list[Member]:
        """Return the processes that ended although they were not stopped."""
        self._hear()
        return [
            member
            for member in self.members.values()
            if member.code is not None and not member.fate
        ]

    def start(self, order: Order) -> Member:
        """Start one more."""
        member = Member(order)
        self.members[order.by] = member
        self._nursery.send(msgspec.json.encode(order).decode())
        return member

    async def all_born(self) -> None:
        """Wait until every process that was ordered exists: `living` leaves out what does not."""
        for member in list(self.members.values()):
            await self._is_born(member)

    async def kill(self, member: Member) -> bool:
        """SIGKILL one; say whether it was still there to be killed."""
        if not await self._is_born(member):
            return False
        member.fate = "killed"
        sent = boot()
        self._signal(member, signal.SIGKILL)
        await self.ended(member)
        # Only now is it sure that nothing of it is inside any more; but on a machine under load it
        # may have been dead for so long that others have rightly come after it.
        self.world.write("crash", detail=member.by, seconds=boot() - sent)
        return member.code == -signal.SIGKILL

    def terminate(self, member: Member) -> None:
        """SIGTERM one."""
        member.fate = "terminated"
        self._signal(member, signal.SIGTERM)

    async def ended(self, member: Member) -> int:
        """Wait for the end of one, and return its exit code."""
        try:
            await wait_until_async(lambda: self._has_ended(member), SIZE.patience)
        except AssertionError:
            self._signal(member, signal.SIGUSR1)
            await asyncio.sleep(1.0)
            msg = f"{member.by} does not end, {member.fate}:\n{member.story()}"
            raise AssertionError(msg) from None
        assert member.code is not None
        return member.code

    async def pause(
        self, member: Member, seconds: float, no_write: NoWrite, task: str = ""
    ) -> bool:
        """Stop one amid its work for a while; say whether it was so and woke again.

        A worker has to have a job of this task in hand. None is stopped inside a write.
        """
        member.is_paused = True
        try:
            if not await self._is_born(member):
                return False
            await asyncio.to_thread(self._stop, member, no_write)
            # Written down also if it goes on at once: the judge must not take a process that
            # was stopped for one that ran on.
            self.world.write("pause", detail=member.by)
            try:
                if not (member.lives and member.is_busy(task)):
                    return False
                await asyncio.sleep(seconds)
            finally:
                self.world.write("resume", detail=member.by)
        finally:
            self._go_on(member)
            member.is_paused = False
        return member.lives

    def sample(self, chance: random.Random, *roles: str) -> Member | None:
        """Return one of the living at random."""
        living = self.living(*roles)
        return chance.choice(living) if living else None

    def _stop(self, member: Member, no_write: NoWrite) -> None:
        with no_write():
            self._signal(member, signal.SIGSTOP)
            wait_until(lambda: stands_still(member.pid) or self._has_ended(member), SIZE.patience)

    def _go_on(self, member: Member) -> None:
        self._signal(member, signal.SIGCONT)

    def _signal(self, member: Member, number: signal.Signals) -> None:
        self._nursery.send(json.dumps({"by": member.by, "signal": int(number)}))

    async def _is_born(self, member: Member) -> bool:
        def has_pid() -> bool:
            self._hear()
            return member.pid > 0

        await wait_until_async(has_pid, SIZE.patience, f"{member.by} is born")
        return member.lives

    def _has_ended(self, member: Member) -> bool:
        self._hear()
        return member.code is not None

    def _hear(self) -> None:
        news = self._nursery.events[self._seen :]
        self._seen += len(news)
        for event in news:
            if event["kind"] == "born":
                self.members[event["by"]].pid = event["pid"]
            elif event["kind"] == "ended":
                self.members[event["by"]].code = event["code"]
