"""Commands of many callers over one Redis connection: their order, their errors, their end.

Connections are stand-ins here, whose replies a test writes, in virtual time. What the real ones do
is shown in test_redis_store.py and test_redis_topology.py.
"""

import asyncio
import random
from contextlib import ExitStack
from typing import Any

import pytest
from redis import exceptions

from tenure.stores.redis.address import Address
from tenure.stores.redis.scripts import SCRIPTS
from tenure.stores.redis.sender import Sender
from tests.stores.redis.wires import Cable, Exchange
from tests.unit.virtual_time import in_virtual_time, now, settle

NO_SCRIPT = exceptions.ResponseError("NOSCRIPT No matching script")
READ_ONLY = exceptions.ResponseError("READONLY You can't write against a read only replica.")
EVALSHA = [b"EVALSHA", SCRIPTS["sleep"].sha, b"0"]
LOAD = [b"SCRIPT", b"LOAD", SCRIPTS["sleep"].text]


class Sending(Exchange):
    """A sender on a connection that a test writes the replies of."""

    def __init__(self, stack: ExitStack, *, moves: bool = False) -> None:
        super().__init__()
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr("tenure.stores.redis.sender.dial", self.dial)
        address = Address("redis://host")
        address.moves = moves
        self.sender = Sender(address, random.Random(0).random)

    @property
    def cable(self) -> Cable:
        return self.cables[-1]

    async def connect(self) -> None:
        """Open the connection with a first command."""
        first = self.sender.send("FIRST")
        await settle()
        self.cable.reply(b"OK")
        assert await first == b"OK"
        self.cable.commands.clear()
        self.cable.packets.clear()

    async def close(self) -> None:
        await self.sender.close()
        assert all(cable.closed.done() for cable in self.cables)


@pytest.fixture
def stack() -> Any:
    with ExitStack() as stack:
        yield stack


@in_virtual_time
async def test_commands_wait_for_the_connection_and_go_together(stack: ExitStack):
    it = Sending(stack)
    it.gate.clear()
    replies = [it.sender.send(word) for word in "ABC"]
    await settle()
    it.gate.set()
    await settle()
    assert (it.cable.commands, it.cable.packets) == ([[b"A"], [b"B"], [b"C"]], [3])
    it.cable.reply(1, 2)
    it.cable.reply(3)
    assert [await reply for reply in replies] == [1, 2, 3]
    assert len(it.dials) == 1
    await it.close()


@in_virtual_time
async def test_commands_that_come_while_others_fly_go_together_after_them(stack: ExitStack):
    it = Sending(stack)
    await it.connect()
    first, second, third = (it.sender.send(word) for word in "ABC")
    assert it.cable.packets == [1]
    it.cable.reply(1)
    assert (it.cable.commands, it.cable.packets) == ([[b"A"], [b"B"], [b"C"]], [1, 2])
    it.cable.reply(2)
    it.sender.send("D")
    assert it.cable.packets == [1, 2]
    it.cable.reply(3)
    assert it.cable.packets == [1, 2, 1]
    it.cable.reply(4)
    assert [await first, await second, await third] == [1, 2, 3]
    assert it.cable.packets == [1, 2, 1]
    await it.close()


@in_virtual_time
async def test_a_cancelled_caller_takes_back_what_is_not_sent_and_drops_its_reply(
    stack: ExitStack,
):
    it = Sending(stack)
    await it.connect()
    first, second, third, fourth = (it.sender.send(word) for word in "ABCD")
    second.cancel()
    it.cable.reply(1)
    assert it.cable.commands == [[b"A"], [b"C"], [b"D"]]
    third.cancel()
    it.cable.reply(3, 4)
    assert [await first, await fourth] == [1, 4]
    await it.close()


@in_virtual_time
async def test_after_all_waiting_commands_were_cancelled_the_next_goes_at_once(stack: ExitStack):
    it = Sending(stack)
    await it.connect()
    it.sender.send("A")
    it.sender.send("B").cancel()
    it.cable.reply(1)
    assert it.cable.packets == [1]
    it.sender.send("C")
    assert it.cable.commands == [[b"A"], [b"C"]]
    await it.close()


@in_virtual_time
async def test_an_error_of_the_server_is_the_reply_to_its_command(stack: ExitStack):
    it = Sending(stack)
    await it.connect()
    first, second = it.sender.send("A"), it.sender.send("B")
    error = exceptions.ResponseError("ERR unknown command")
    it.cable.reply(error)
    it.cable.reply(2)
    assert [await first, await second] == [error, 2]
    assert len(it.cables) == 1
    await it.close()


# Time.


@in_virtual_time
async def test_a_server_that_does_not_answer_fails_all_callers(stack: ExitStack):
    it = Sending(stack)
    await it.connect()
    await asyncio.sleep(1)
    replies = [it.sender.send(word) for word in "ABC"]
    outcomes = await asyncio.gather(*replies)
    assert now() == 6
    assert {type(outcome) for outcome in outcomes} == {exceptions.TimeoutError}
    assert it.cable.reason is outcomes[0]
    again = it.sender.send("D")
    await settle()
    assert it.cable.commands == [[b"D"]]
    it.cable.reply(4)
    assert await again == 4
    await it.close()


@in_virtual_time
async def test_the_time_of_a_command_begins_when_it_is_sent(stack: ExitStack):
    it = Sending(stack)
    await it.connect()
    first, second = it.sender.send("A"), it.sender.send("B")
    await asyncio.sleep(4)
    it.cable.reply(1)
    assert await first == 1
    assert isinstance(await second, exceptions.TimeoutError)
    assert now() == 9
    await it.close()


@in_virtual_time
async def test_a_quiet_connection_is_kept_and_its_next_command_has_its_time(stack: ExitStack):
    it = Sending(stack)
    await it.connect()
    await asyncio.sleep(60)
    call = it.sender.send("A")
    await asyncio.sleep(4.9)
    assert not call.done()
    assert isinstance(await call, exceptions.TimeoutError)
    assert (now(), len(it.cables)) == (65, 1)
    await it.close()


# Scripts.


@in_virtual_time
async def test_a_forgotten_script_is_loaded_and_calls_keep_their_order(stack: ExitStack):
    it = Sending(stack)
    await it.connect()
    it.sender.send("A")
    scripts = [it.sender.run(SCRIPTS["sleep"], (0,)) for _ in range(2)]
    it.cable.reply(1)
    last = it.sender.send("B")
    it.cable.reply(NO_SCRIPT)
    assert it.cable.commands[1:] == [EVALSHA, EVALSHA]
    it.cable.reply(NO_SCRIPT)
    assert it.cable.commands[3:] == [LOAD, EVALSHA, LOAD, EVALSHA, [b"B"]]
    it.cable.reply(SCRIPTS["sleep"].sha, 1, SCRIPTS["sleep"].sha, 2, 3)
    assert [await call for call in (*scripts, last)] == [1, 2, 3]
    await it.close()


@in_virtual_time
async def test_a_script_that_vanishes_again_is_an_error(stack: ExitStack):
    it = Sending(stack)
    await it.connect()
    script, plain = it.sender.run(SCRIPTS["sleep"], (0,)), it.sender.send("A")
    it.cable.reply(NO_SCRIPT)
    it.cable.reply(SCRIPTS["sleep"].sha, NO_SCRIPT, NO_SCRIPT)
    assert [await script, await plain] == [NO_SCRIPT, NO_SCRIPT]
    assert len(it.cable.commands) == 4
    await it.close()


@in_virtual_time
async def test_a_call_cancelled_before_its_script_is_loaded_is_not_sent_again(stack: ExitStack):
    it = Sending(stack)
    await it.connect()
    first, second = (it.sender.send("A"), it.sender.run(SCRIPTS["sleep"], (0,)))
    third = it.sender.send("B")
    it.cable.reply(1)
    it.cable.reply(NO_SCRIPT)
    second.cancel()
    it.cable.reply(3)
    assert [await first, await third] == [1, 3]
    assert EVALSHA not in it.cable.commands[3:]
    await it.close()


# Another primary.


@in_virtual_time
async def test_refused_commands_go_to_the_next_primary_in_order(stack: ExitStack):
    it = Sending(stack, moves=True)
    await it.connect()
    it.sender.send("A")
    calls = [it.sender.run(SCRIPTS["sleep"], (0,)), it.sender.send("B")]
    it.cable.reply(1)
    calls.append(it.sender.send("C"))
    it.cable.reply(NO_SCRIPT)
    calls[1].cancel()
    it.cable.reply(READ_ONLY)
    assert it.cable.commands[3:] == [LOAD, EVALSHA, [b"C"]]
    it.cable.reply(SCRIPTS["sleep"].sha, READ_ONLY, READ_ONLY)
    await settle()
    [old, new] = it.cables
    assert isinstance(old.reason, exceptions.ConnectionError)
    assert new.commands == [EVALSHA, [b"C"]]
    new.reply(NO_SCRIPT, 3)  # the next server may not know the script either
    assert new.commands[2:] == [LOAD, EVALSHA]
    new.reply(SCRIPTS["sleep"].sha, 1)
    assert [await calls[0], await calls[2]] == [1, 3]
    await it.close()


@in_virtual_time
async def test_after_three_refusals_the_caller_gets_the_error(stack: ExitStack):
    it = Sending(stack, moves=True)
    call = it.sender.send("A")
    for number in range(1, 4):
        await settle()
        assert (len(it.cables), call.done()) == (number, False)
        it.cable.reply(READ_ONLY)
    assert await call is READ_ONLY
    await settle()
    assert (len(it.cables), it.cable.closed.done()) == (3, True)
    other = it.sender.send("B")
    await settle()
    it.cable.reply(2)
    assert await other == 2
    await it.close()


@in_virtual_time
async def test_a_server_that_may_have_done_it_is_left_but_its_answer_stands(stack: ExitStack):
    it = Sending(stack, moves=True)
    await it.connect()
    error = exceptions.ResponseError("CLUSTERDOWN The cluster is down")
    first, second = it.sender.send("A"), it.sender.send("B")
    it.cable.reply(error)
    assert await first is error
    await settle()
    assert (len(it.cables), it.cable.commands) == (2, [[b"B"]])
    it.cable.reply(2)
    assert await second == 2
    await it.close()


@in_virtual_time
async def test_an_error_in_a_command_is_no_reason_to_leave_the_server(stack: ExitStack):
    it = Sending(stack, moves=True)
    await it.connect()
    error = exceptions.ResponseError("WRONGTYPE Operation against a key of another kind")
    call = it.sender.send("A")
    it.cable.reply(error)
    assert await call is error
    await settle()
    assert (len(it.cables), it.cable.reason) == (1, None)
    await it.close()


@in_virtual_time
async def test_a_server_that_cannot_move_is_believed(stack: ExitStack):
    it = Sending(stack, moves=False)
    await it.connect()
    call = it.sender.send("A")
    it.cable.reply(READ_ONLY)
    assert await call is READ_ONLY
    await settle()
    assert (len(it.cables), it.cable.reason) == (1, None)
    await it.close()


# Connections.


@in_virtual_time
async def test_an_unreachable_server_fails_waiting_callers_and_is_tried_again(
    stack: ExitStack,
):
    it = Sending(stack)
    error = exceptions.ConnectionError("refused")
    it.errors = [error]
    calls = [it.sender.send(word) for word in "AB"]
    assert await asyncio.gather(*calls) == [error, error]
    last = it.sender.send("C")
    await asyncio.sleep(0.1)  # the pause before the next attempt
    it.cable.reply(3)
    assert (await last, it.cable.commands) == (3, [[b"C"]])
    await it.close()


@in_virtual_time
async def test_a_lost_connection_fails_only_its_own_callers(stack: ExitStack):
    it = Sending(stack)
    await it.connect()
    calls = [it.sender.send(word) for word in "AB"]
    it.cable.break_off()
    outcomes = await asyncio.gather(*calls)
    assert [str(outcome) for outcome in outcomes] == ["the server is gone"] * 2
    again = it.sender.send("C")
    await settle()
    # The end of the old connection is no news for the new one.
    it.cables[0]._lost(it.cables[0], exceptions.ConnectionError("late"))
    it.cable.reply(3)
    assert await again == 3
    await it.close()


@in_virtual_time
async def test_a_reply_that_no_command_waits_for_ends_the_connection(stack: ExitStack):
    it = Sending(stack)
    await it.connect()
    call = it.sender.send("A")
    it.cable.reply(1, 2, 3)
    assert await call == 1
    assert "a reply without a command" in str(it.cable.reason)
    await settle()
    again = it.sender.send("B")
    await settle()
    assert len(it.cables) == 2
    it.cable.reply(2)
    assert await again == 2
    await it.close()


# Closing.


@in_virtual_time
async def test_closing_fails_every_call(stack: ExitStack):
    it = Sending(stack, moves=True)
    await it.connect()
    calls = [it.sender.send(word) for word in "ABC"]
    it.cable.reply(READ_ONLY)  # will be sent again
    await it.close()
    calls.append(it.sender.send("later"))
    outcomes = await asyncio.gather(*calls)
    assert {str(outcome) for outcome in outcomes} == {"the store was closed"}
    await settle()
    assert (now(), len(it.cables)) == (0, 1)


@in_virtual_time
async def test_closing_during_a_connect_fails_waiting_callers(stack: ExitStack):
    it = Sending(stack)
    it.gate.clear()
    call = it.sender.send("A")
    await settle()
    await it.close()
    assert "was closed" in str(await call)
    it.gate.set()
    await settle()
    assert (len(it.cables), now()) == (0, 0)


@in_virtual_time
async def test_an_unused_sender_can_be_closed_and_abandoned(stack: ExitStack):
    it = Sending(stack)
    it.sender.abandon()
    await it.close()
    assert it.dials == []


@in_virtual_time
async def test_abandoning_cuts_the_connection(stack: ExitStack):
    it = Sending(stack)
    await it.connect()
    it.sender.abandon()
    assert it.cable.is_cut
    await it.close()


@in_virtual_time
async def test_attempts_to_reach_a_server_that_is_away_are_few(stack: ExitStack):
    it = Sending(stack)
    it.errors = [exceptions.ConnectionError("refused")] * 1000

    async def caller() -> None:
        while now() < 20:
            assert isinstance(await it.sender.send("PING"), exceptions.ConnectionError)
            await asyncio.sleep(0.01)

    await asyncio.gather(*(caller() for _ in range(8)))
    assert 20 <= len(it.dials) <= 45
    it.errors.clear()
    back = it.sender.send("GET")
    await asyncio.sleep(1)
    it.cable.reply(b"value")
    assert await back == b"value"
    await it.close()
