"""The connection on which a Redis store object hears wake-ups: lost, refused, found again.

Connections are stand-ins here, whose fate a test decides, in virtual time. What the real ones do is
shown in test_redis_store.py and test_redis_jobs.py.
"""

import asyncio
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import pytest
from redis import exceptions

from tenure.core.leases import Topic
from tenure.stores.redis.address import Address
from tenure.stores.redis.listener import Listener
from tenure.stores.watchers import ARM_SECONDS, Watchers, pause_before_listening
from tenure.testing import ManualClock
from tests.stores.redis.wires import Cable, Exchange
from tests.unit.virtual_time import in_virtual_time, now, settle

CHECK_SECONDS = 10
OWN = b"own"


class Listening(Exchange):
    """An ear, and what it does."""

    def __init__(self, stack: ExitStack) -> None:
        super().__init__()
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr("tenure.stores.redis.listener.dial", self.dial)
        self.clock, self._twin = ManualClock(), ManualClock()
        self.watchers = Watchers(self.clock)
        self.questions: list[tuple[list[str], bool]] = []
        self.ear = Listener(
            Address("redis://host"),
            channel="own",
            bells="bell:",
            watchers=self.watchers,
            clock=self.clock,
            ask_again=self.ask_again,
        )
        self.woken: dict[Topic, asyncio.Event] = {}

    def ask_again(self, queues: Any) -> None:
        is_early = not any(event.is_set() for event in self.woken.values())
        self.questions.append((sorted(queues), is_early))

    @asynccontextmanager
    async def watching(self, *topics: Topic) -> Any:
        for topic in topics:
            armed = self.watchers.watch(topic)
            self.woken[topic] = (await armed.__aenter__()).event
            self._armed = [*getattr(self, "_armed", []), armed]
        await self.ear.listen({kind for kind, _ in topics})
        yield
        for armed in self._armed:
            await armed.__aexit__(None, None, None)

    @property
    def rung(self) -> set[str]:
        rung = {name for (_, name), event in self.woken.items() if event.is_set()}
        for event in self.woken.values():
            event.clear()
        return rung

    @property
    def cable(self) -> Cable:
        return self.cables[-1]

    def pause(self, failures: int, *, refused: bool = False) -> float:
        """Return the pause that the ear makes next."""
        return pause_before_listening(failures, self._twin.random(), refused=refused)

    async def close(self) -> None:
        await self.ear.close()
        assert self.ear._task is None or self.ear._task.done()
        assert all(cable.closed.done() for cable in self.cables)


@pytest.fixture
def stack() -> Any:
    with ExitStack() as stack:
        yield stack


@in_virtual_time
async def test_a_message_wakes_its_watchers(stack: ExitStack):
    it = Listening(stack)
    async with it.watching(("lease", "ann"), ("lease", "ben")):
        assert it.cable.commands[0] == [b"SUBSCRIBE", OWN]
        it.cable.reply([b"message", OWN, b"lease ben"])
        assert it.rung == {"ben"}
        it.cable.reply([b"message", OWN, b"lease ann"], [b"message", OWN, b"lease ben"])
        assert it.rung == {"ann", "ben"}
        await it.ear.listen({"lease"})
        assert (now(), len(it.dials), it.questions) == (0, 1, [])
    await it.close()


@in_virtual_time
async def test_it_can_be_closed_at_the_instant_of_the_confirmation(stack: ExitStack):
    """As an app does whose only waiter was just cancelled."""
    it = Listening(stack)
    it.confirms = False
    listening = asyncio.create_task(it.ear.listen({"lease"}))
    await settle()
    it.cable.reply([b"subscribe", OWN, 1])
    async with asyncio.timeout(CHECK_SECONDS):
        await it.close()
    await listening


@in_virtual_time
async def test_each_kind_has_a_channel_for_all_of_the_namespace(stack: ExitStack):
    it = Listening(stack)
    async with it.watching(("job", "a"), ("job", "b"), ("queue", "a")):
        channels = it.cable.commands[0][1:]
        assert (channels[0], set(channels)) == (OWN, {OWN, b"bell:job", b"bell:queue"})
        it.cable.reply([b"message", b"bell:job", b"b\0c"])
        assert (it.rung, it.questions) == ({"b"}, [])
        it.cable.reply([b"message", b"bell:job", b"a\0b"])
        assert it.rung == {"a", "b"}
        it.cable.reply([b"message", b"bell:queue", b"b\0a"])
        # The flag must be back before the workers look.
        assert (it.rung, it.questions) == ({"a"}, [(["a"], True)])
    await it.close()


@in_virtual_time
async def test_a_kind_that_is_watched_later_is_subscribed_on_the_same_connection(stack: ExitStack):
    it = Listening(stack)
    await it.ear.listen({"lease", "job"})
    it.cable.confirms = False
    calls = [asyncio.create_task(it.ear.listen({"job", "queue"})) for _ in range(2)]
    await settle()
    assert it.cable.commands[-1] == [b"SUBSCRIBE", b"bell:queue"]
    assert [command[0] for command in it.cable.commands].count(b"SUBSCRIBE") == 2
    await asyncio.sleep(0.5 * ARM_SECONDS)
    assert not any(call.done() for call in calls)
    it.cable.reply([b"subscribe", b"bell:queue", 1])
    await asyncio.wait(calls)
    assert now() == 0.5 * ARM_SECONDS
    assert len(it.dials) == 1
    # A second answer changes nothing.
    it.cable.reply([b"subscribe", b"bell:queue", 1], [b"subscribe", b"bell:other", 1])
    await it.ear.listen({"replica"})  # is not answered
    assert now() == 1.5 * ARM_SECONDS
    await it.close()


@in_virtual_time
async def test_a_kind_that_is_not_watched_any_more_is_unsubscribed_once(stack: ExitStack):
    it = Listening(stack)
    async with it.watching(("job", "a"), ("queue", "a")):
        pass
    it.woken.clear()
    for _ in range(2):
        it.cable.reply([b"message", b"bell:job", b"a"])
    unsubscribed = [command for command in it.cable.commands if command[0] == b"UNSUBSCRIBE"]
    assert unsubscribed == [[b"UNSUBSCRIBE", b"bell:job"]]
    it.cable.confirms = False
    call = asyncio.create_task(it.ear.listen({"job", "queue"}))
    await settle()
    assert it.cable.commands[-1] == [b"SUBSCRIBE", b"bell:job"]
    it.cable.reply([b"unsubscribe", b"bell:job", 1])  # answers to the command before
    await settle()
    assert not call.done()
    it.cable.reply([b"subscribe", b"bell:job", 2])
    await call
    assert now() == 0
    await it.close()


@in_virtual_time
async def test_listening_begins_when_all_channels_are_subscribed(stack: ExitStack):
    it = Listening(stack)
    it.confirms = False
    call = asyncio.create_task(it.ear.listen({"job"}))
    await settle()
    for channel in (OWN, b"bell:job"):
        assert not call.done()
        it.cable.reply([b"subscribe", channel, 1])
        await settle()
    await call
    assert now() == 0
    await it.close()


@in_virtual_time
async def test_after_a_loss_all_channels_are_confirmed_before_all_are_woken(stack: ExitStack):
    it = Listening(stack)
    async with it.watching(("job", "a")):
        it.confirms = False
        it.cable.break_off()
        await asyncio.sleep(it.pause(1))
        await settle()
        for channel in (OWN, b"bell:job"):
            assert it.rung == set()
            it.cable.reply([b"subscribe", channel, 1])
            await settle()
        assert it.rung == {"a"}
    await it.close()


@in_virtual_time
async def test_a_connection_that_takes_long_is_not_waited_for_and_wakes_all_when_it_is_there(
    stack: ExitStack,
):
    it = Listening(stack)
    it.gate.clear()
    callers = [asyncio.create_task(it.ear.listen({"job"})) for _ in range(3)]
    await settle()
    callers[0].cancel()
    await asyncio.wait(callers)
    assert now() == ARM_SECONDS
    assert [caller.cancelled() for caller in callers] == [True, False, False]
    assert len(it.dials) == 1
    async with it.watching(("queue", "q"), ("job", "j")):
        it.gate.set()
        await settle()
        # The flags of queues are back before any waiter is woken.
        assert (it.questions, it.rung) == ([(["q"], True)], {"q", "j"})
    await it.close()


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (exceptions.ConnectionError("refused"), False),
        (exceptions.TimeoutError("silent"), False),
        (exceptions.AuthenticationError("wrong"), True),
        (exceptions.ResponseError("NOPERM this user has no permissions"), True),
        (exceptions.ResponseError("ERR max number of clients reached"), True),
    ],
)
@in_virtual_time
async def test_failed_attempts_are_repeated_after_longer_pauses(
    error: exceptions.RedisError, refused: bool, stack: ExitStack, caplog: pytest.LogCaptureFixture
):
    it = Listening(stack)
    it.errors = [error] * 4
    await it.ear.listen({"lease"})
    assert now() == 0
    instants = [0.0]
    for failures in range(1, 5):
        instants.append(instants[-1] + it.pause(failures, refused=refused))
    async with it.watching(("lease", "ann")):
        await asyncio.sleep(instants[-1] - 0.01)
        assert it.rung == set()
        await asyncio.sleep(0.02)
        assert it.rung == {"ann"}  # wake-ups may have been missed
    assert it.dials == pytest.approx(instants)
    [message] = caplog.messages
    assert str(error).rpartition(" ")[2] in message
    await it.close()


@in_virtual_time
async def test_a_refusal_lengthens_only_the_pause_after_it(stack: ExitStack):
    it = Listening(stack)
    it.errors = [exceptions.AuthenticationError("wrong"), exceptions.ConnectionError("away")]
    await it.ear.listen({"lease"})
    instants = [0.0, it.pause(1, refused=True)]
    instants.append(instants[1] + it.pause(2))
    await asyncio.sleep(instants[-1] + 1)
    assert it.dials == pytest.approx(instants)
    await it.close()


@in_virtual_time
async def test_a_refused_subscription_ends_the_connection_and_is_tried_again(stack: ExitStack):
    it = Listening(stack)
    it.confirms = False
    call = asyncio.create_task(it.ear.listen({"lease"}))
    await settle()
    refusal = exceptions.ResponseError("NOPERM no permissions to access a channel")
    it.cable.reply(refusal, refusal)
    await call
    assert (now(), it.cable.reason) == (0, refusal)
    it.confirms = True
    await asyncio.sleep(it.pause(1, refused=True))
    await settle()
    assert len(it.cables) == 2
    await it.close()


@in_virtual_time
async def test_a_subscription_without_an_answer_is_given_up(stack: ExitStack):
    it = Listening(stack)
    it.confirms = False
    await it.ear.listen({"lease"})
    assert now() == ARM_SECONDS
    await asyncio.sleep(5 - ARM_SECONDS + it.pause(1))
    await settle()
    assert isinstance(it.cables[0].reason, exceptions.TimeoutError)
    assert len(it.cables) == 2
    await it.close()


@in_virtual_time
async def test_a_lost_connection_is_replaced_and_all_are_woken(stack: ExitStack):
    it = Listening(stack)
    it.errors = [exceptions.ConnectionError("away")] * 3
    async with it.watching(("job", "a"), ("queue", "q")):
        await asyncio.sleep(sum(it.pause(failures) for failures in range(1, 4)))
        await settle()
        for number in range(1, 4):
            assert (len(it.cables), it.rung) == (number, {"a", "q"})
            assert it.questions == [(["q"], True)] * number
            it.cable.break_off()
            await settle()
            await it.ear.listen({"replica"})  # is subscribed with the next connection
            # A connection that worked makes the pauses short again.
            instant = now() + it.pause(1)
            await asyncio.sleep(30)
            assert it.dials[-1] == pytest.approx(instant)
            assert set(it.cable.commands[0][1:]) >= {OWN, b"bell:job", b"bell:replica"}
    await it.close()


@in_virtual_time
async def test_a_connection_lost_during_the_subscription_is_replaced(stack: ExitStack):
    it = Listening(stack)
    it.confirms = False
    call = asyncio.create_task(it.ear.listen({"lease"}))
    await settle()
    it.confirms = True
    it.cable.break_off()
    await call
    assert now() == 0
    await asyncio.sleep(it.pause(1))
    await settle()
    assert len(it.cables) == 2
    await it.close()


@in_virtual_time
async def test_a_silent_connection_is_checked_and_replaced_if_it_is_dead(stack: ExitStack):
    it = Listening(stack)
    async with it.watching(("lease", "ann")):
        await asyncio.sleep(3.5 * CHECK_SECONDS)
        [cable] = it.cables
        assert cable.commands[1:] == [[b"PING"]] * 4
        cable.pongs = False
        await asyncio.sleep(1.5 * CHECK_SECONDS - 0.01)
        assert cable.reason is None
        await asyncio.sleep(0.02)
        assert isinstance(cable.reason, exceptions.ConnectionError)
        await asyncio.sleep(it.pause(1))
        assert (len(it.cables), it.rung) == (2, {"ann"})
    await it.close()


# Closing.


@in_virtual_time
async def test_an_ear_that_was_never_used_can_be_closed(stack: ExitStack):
    it = Listening(stack)
    await it.close()
    it.ear.abandon()
    assert it.dials == []


@in_virtual_time
async def test_closing_ends_the_connection(stack: ExitStack):
    it = Listening(stack)
    await it.ear.listen({"lease"})
    await it.close()
    assert (now(), len(it.cables)) == (0, 1)


@pytest.mark.parametrize("instant", [0.0, 0.5 * ARM_SECONDS])
@pytest.mark.parametrize("is_connected", [False, True])
@in_virtual_time
async def test_closing_lets_callers_go_that_wait_for_the_first_connection(
    instant: float, is_connected: bool, stack: ExitStack
):
    it = Listening(stack)
    it.confirms = False
    if not is_connected:
        it.gate.clear()
    caller = asyncio.create_task(it.ear.listen({"job"}))
    await settle()
    await asyncio.sleep(instant)
    await it.close()
    await caller
    assert (now(), len(it.cables)) == (instant, int(is_connected))


@in_virtual_time
async def test_abandoning_cuts_the_connection(stack: ExitStack):
    it = Listening(stack)
    await it.ear.listen({"lease"})
    it.ear.abandon()
    assert it.cable.is_cut
    await it.close()
