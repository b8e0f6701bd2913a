"""The connection on which a PostgreSQL store object hears wake-ups: lost, refused, found again.

Connections are stand-ins here, whose fate a test decides, in virtual time. What the real ones do is
shown in test_postgres_store.py.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest

from tenure.stores.postgres.listener import Listener
from tenure.stores.watchers import ARM_SECONDS, pause_before_listening
from tenure.testing import ManualClock
from tests.unit.virtual_time import in_virtual_time, now, settle

CHECK_SECONDS = 10


class Line:
    """A connection that can be lost."""

    def __init__(self) -> None:
        self.channels: dict[str, Callable[..., None]] = {}
        self.checks: list[float] = []
        self.is_dead = False
        """Whether it fails to answer."""
        self.cuts = 0
        self._closed = False
        self._lost: list[Callable[[object], None]] = []

    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None:
        await asyncio.sleep(0)
        self.channels[channel] = callback

    def add_termination_listener(self, callback: Callable[[object], None]) -> None:
        self._lost.append(callback)

    def is_closed(self) -> bool:
        return self._closed

    async def fetchval(self, _statement: str) -> int:
        self.checks.append(now())
        if self.is_dead or self._closed:
            raise asyncpg.ConnectionDoesNotExistError("gone")
        return 1

    def terminate(self) -> None:
        self.cuts += 1
        self.lose()

    def lose(self) -> None:
        self._closed = True
        for callback in self._lost:
            callback(self)

    def notify(self, channel: str, payload: str) -> None:
        self.channels[channel](self, 1, channel, payload)


class Ear:
    """A listener, and what it has said."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        twin = ManualClock()
        twin.token()  # the listener has drawn the name of its channel
        self._twin = twin
        self.dials: list[float] = []
        self.lines: list[Line] = []
        self.errors: list[Exception] = []
        """What the next attempts come to; afterwards they succeed."""
        self.gate = asyncio.Event()
        self.gate.set()
        self.heard: list[str] = []
        self.resumed: list[float] = []
        self.failed: list[Exception] = []
        self.listener = Listener(
            self.dial,
            self.clock,
            shared_channel="shared",
            heard=self.heard.append,
            resumed=lambda: self.resumed.append(now()),
            failed=self.failed.append,
        )

    async def dial(self) -> Any:
        self.dials.append(now())
        await self.gate.wait()
        if self.errors:
            raise self.errors.pop(0)
        self.lines.append(Line())
        return self.lines[-1]

    def pause(self, failures: int, *, refused: bool = False) -> float:
        """Return the pause that the listener makes next."""
        return pause_before_listening(failures, self._twin.random(), refused=refused)

    async def close(self) -> None:
        await self.listener.close()
        assert self.listener._task is None or self.listener._task.done()
        assert all(line.is_closed() for line in self.lines)


@in_virtual_time
async def test_messages_on_either_channel_are_passed_on():
    ear = Ear()
    await ear.listener.ready()
    [line] = ear.lines
    assert set(line.channels) == {ear.listener.channel, "shared"}
    for channel in line.channels:
        line.notify(channel, f"to {channel}")
    assert ear.heard == [f"to {channel}" for channel in line.channels]
    await ear.listener.ready()
    assert (now(), len(ear.dials), ear.resumed, ear.failed) == (0, 1, [], [])
    await ear.close()


def test_each_listener_has_a_channel_of_its_own():
    @in_virtual_time
    async def compare() -> None:
        ear = Ear()
        other = Listener(
            ear.dial,
            ear.clock,
            shared_channel="shared",
            heard=ear.heard.append,
            resumed=lambda: None,
            failed=ear.failed.append,
        )
        assert ear.listener.channel != other.channel
        assert len(ear.listener.channel) < 64  # PostgreSQL cuts longer names

    compare()


@in_virtual_time
async def test_a_connection_that_takes_long_is_not_waited_for_and_wakes_all_when_it_is_there():
    ear = Ear()
    ear.gate.clear()
    callers = [asyncio.create_task(ear.listener.ready()) for _ in range(3)]
    await settle()
    callers[0].cancel()
    await asyncio.wait(callers)
    assert now() == ARM_SECONDS
    assert [caller.cancelled() for caller in callers] == [True, False, False]
    assert len(ear.dials) == 1
    ear.gate.set()
    await settle()
    assert ear.resumed == [ARM_SECONDS]
    await ear.close()


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (ConnectionRefusedError("refused"), False),
        (TimeoutError(), False),
        (asyncpg.CannotConnectNowError("starting"), False),
        (asyncpg.AdminShutdownError("stopping"), False),
        (asyncpg.ConnectionDoesNotExistError("gone"), False),
        (asyncpg.TooManyConnectionsError("full"), True),
        (asyncpg.InsufficientPrivilegeError("no right"), True),
    ],
)
@in_virtual_time
async def test_failed_attempts_are_repeated_after_longer_pauses(error: Exception, refused: bool):
    ear = Ear()
    ear.errors = [error] * 4
    await ear.listener.ready()
    assert (now(), ear.failed) == (0, [error])
    instants = [0.0]
    for failures in range(1, 5):
        instants.append(instants[-1] + ear.pause(failures, refused=refused))
    await asyncio.sleep(instants[-1] + 1)
    assert ear.dials == pytest.approx(instants)
    assert ear.failed == [error] * 4
    # Callers may have missed wake-ups meanwhile.
    assert ear.resumed == pytest.approx(instants[-1:])
    await ear.close()


@in_virtual_time
async def test_a_lost_connection_is_replaced_and_all_are_woken():
    ear = Ear()
    ear.errors = [ConnectionRefusedError("refused")] * 3
    await ear.listener.ready()
    instant = sum(ear.pause(failures) for failures in range(1, 4))
    await asyncio.sleep(instant)
    await settle()
    for number in range(1, 4):
        assert len(ear.resumed) == len(ear.lines) == number
        ear.lines[-1].lose()
        # A connection that worked makes the pauses short again.
        instant = now() + ear.pause(1)
        await asyncio.sleep(30)
        assert ear.dials[-1] == pytest.approx(instant)
    assert all(line.cuts for line in ear.lines[:-1])
    await ear.close()


@in_virtual_time
async def test_a_refusal_lengthens_only_the_pause_after_it():
    ear = Ear()
    ear.errors = [asyncpg.InsufficientPrivilegeError("no right"), ConnectionRefusedError("no")]
    await ear.listener.ready()
    instants = [0.0, ear.pause(1, refused=True)]
    instants.append(instants[1] + ear.pause(2))
    await asyncio.sleep(instants[-1] + 1)
    assert ear.dials == pytest.approx(instants)
    await ear.close()


@in_virtual_time
async def test_a_caller_that_comes_while_nothing_is_heard_is_woken_later():
    ear = Ear()
    await ear.listener.ready()
    ear.lines[0].lose()
    await settle()
    await ear.listener.ready()  # does not wait for the new connection
    assert now() == 0
    await asyncio.sleep(ear.pause(1))
    await settle()
    assert len(ear.resumed) == 1
    await ear.listener.ready()
    ear.lines[1].lose()
    await asyncio.sleep(60)
    assert len(ear.resumed) == 2
    await ear.close()


@in_virtual_time
async def test_a_silent_connection_is_checked_and_replaced_if_it_is_dead():
    ear = Ear()
    await ear.listener.ready()
    [line] = ear.lines
    await asyncio.sleep(3.5 * CHECK_SECONDS)
    assert line.checks == [CHECK_SECONDS, 2 * CHECK_SECONDS, 3 * CHECK_SECONDS]
    line.is_dead = True
    await asyncio.sleep(0.5 * CHECK_SECONDS + ear.pause(1))
    await settle()
    assert (len(ear.lines), line.cuts) == (2, 1)
    await ear.close()


@in_virtual_time
async def test_a_connection_that_is_lost_before_it_is_watched_is_replaced_at_once():
    ear = Ear()
    listen = Line.add_listener

    async def lose(line: Line, channel: str, callback: Any) -> None:
        await listen(line, channel, callback)
        if line is ear.lines[0]:
            line.lose()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Line, "add_listener", lose)
        await ear.listener.ready()
        await asyncio.sleep(ear.pause(1))
        await settle()
        assert len(ear.lines) == 2
        assert ear.lines[0].checks == []
        await ear.close()


@in_virtual_time
async def test_a_connection_on_which_listening_fails_is_cut():
    ear = Ear()
    error = asyncpg.ReadOnlySQLTransactionError("cannot execute LISTEN during recovery")

    async def refuse(*_: object) -> None:
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Line, "add_listener", refuse)
        await ear.listener.ready()
    assert (ear.failed, ear.lines[0].cuts) == ([error], 1)
    await ear.close()


# Closing.


@in_virtual_time
async def test_a_listener_that_was_never_used_can_be_closed():
    ear = Ear()
    await ear.close()
    assert ear.dials == []


@in_virtual_time
async def test_closing_ends_the_connection():
    ear = Ear()
    await ear.listener.ready()
    await ear.close()
    assert (now(), ear.lines[0].cuts) == (0, 1)


@pytest.mark.parametrize("instant", [0.0, 0.5 * ARM_SECONDS])
@in_virtual_time
async def test_closing_lets_callers_go_that_wait_for_the_first_connection(instant: float):
    ear = Ear()
    ear.gate.clear()
    caller = asyncio.create_task(ear.listener.ready())
    await settle()
    await asyncio.sleep(instant)
    await ear.close()
    await caller
    assert now() == instant


@in_virtual_time
async def test_closing_cuts_a_connection_that_is_being_prepared():
    ear = Ear()

    async def hang(*_: object) -> None:
        await asyncio.sleep(600)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Line, "add_listener", hang)
        caller = asyncio.create_task(ear.listener.ready())
        await settle()
        await ear.close()
    await caller
    assert (now(), ear.lines[0].cuts) == (0, 1)
