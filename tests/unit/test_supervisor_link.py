"""The worker's end of the line to its supervisor: what it receives, and when it counts as cut."""

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from tenure.core.clock import SystemClock
from tenure.runtime.supervised.link import SupervisorLink
from tenure.runtime.supervised.messages import (
    BeatFailed,
    Joined,
    RecordRenewed,
    Retire,
    Stop,
    encode_message,
)
from tenure.runtime.supervised.scoreboard import Scoreboard
from tenure.testing import ManualClock
from tests.rig.wait import wait_until_async


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def board() -> Iterator[Scoreboard]:
    file = Scoreboard.make_file(1)
    with closing(Scoreboard(file, 1)) as board:
        yield board
    os.close(file)


@pytest.fixture
def link(ends: tuple[socket.socket, socket.socket], board: Scoreboard) -> SupervisorLink:
    return SupervisorLink(ends[0], board, SystemClock())


@pytest.fixture
def supervisor(ends: tuple[socket.socket, socket.socket]) -> socket.socket:
    return ends[1]


async def test_orders_to_stop_are_told_apart_from_news(
    link: SupervisorLink, supervisor: socket.socket
):
    heard: list[object] = []
    beaten = RecordRenewed(replica="ann", cancels=["job"], held=1, revived=False)
    for word in (beaten, Retire(), BeatFailed(), Stop(now=True)):
        supervisor.sendall(encode_message(word) + b"\n")
    supervisor.shutdown(socket.SHUT_WR)
    await link.listen(heard.append)
    assert heard == [Retire(), Stop(now=True), None]
    assert [await link.next_order(5) for _ in range(3)] == [beaten, BeatFailed(), None]


@pytest.mark.parametrize(
    "nonsense",
    [
        b"hello\n",
        b'{"type": "Stop", "now": 7}\n',
        b'{"type": "Unheard"}\n',
        b"\xff\xfe\n",
        b'{"type": "Stop", "more": ' + b"[" * 20_000 + b"\n",
        b"x" * 30_000,
    ],
    ids=["text", "type", "unknown", "encoding", "depth", "length"],
)
async def test_messages_that_a_supervisor_never_sends_cut_the_line(
    link: SupervisorLink,
    supervisor: socket.socket,
    monkeypatch: pytest.MonkeyPatch,
    nonsense: bytes,
):
    monkeypatch.setattr("tenure.runtime.supervised.link._LINE_MAX", 25_000)
    heard: list[object] = []
    supervisor.sendall(nonsense)
    await asyncio.wait_for(link.listen(heard.append), 10)
    assert link.is_closed
    assert heard == [None]
    assert await link.next_order(5) is None


async def test_a_connection_that_breaks_cuts_the_line(board: Scoreboard):
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, socket.create_connection(listener.getsockname()) as ours:
        theirs, _ = listener.accept()
        link = SupervisorLink(ours, board, SystemClock())
        heard: list[object] = []
        listening = asyncio.create_task(link.listen(heard.append))
        await wait_until_async(lambda: board.ticked > 0)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        theirs.close()  # with a reset
        await listening
    assert heard == [None]
    assert link.is_closed


async def test_the_board_ticks_while_the_worker_listens_and_not_after(
    link: SupervisorLink, supervisor: socket.socket, board: Scoreboard
):
    listening = asyncio.create_task(link.listen(lambda _: None))
    await wait_until_async(lambda: board.ticked > 0)
    first = board.ticked
    await wait_until_async(lambda: board.ticked > first)
    before = asyncio.all_tasks()
    supervisor.close()
    await listening
    assert board.ticked == 0
    await wait_until_async(lambda: all(task.done() for task in before - {asyncio.current_task()}))
    assert link._socket.fileno() >= 0  # it still belongs to its owner


async def test_the_board_ticks_as_soon_as_the_worker_listens(
    ends: tuple[socket.socket, socket.socket], board: Scoreboard
):
    clock = ManualClock()
    listening = asyncio.create_task(SupervisorLink(ends[0], board, clock).listen(lambda _: None))
    await wait_until_async(lambda: board.ticked == clock.boot())
    ends[1].close()
    await listening


async def test_a_cancelled_listener_leaves_a_silent_board(link: SupervisorLink, board: Scoreboard):
    heard: list[object] = []
    listening = asyncio.create_task(link.listen(heard.append))
    await wait_until_async(lambda: board.ticked > 0)
    listening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listening
    assert (heard, link.is_closed, board.ticked) == ([], False, 0)


async def test_news_end_after_a_silence(link: SupervisorLink):
    assert await link.next_order(0.01) is None
    assert await link.next_order(-1) is None


async def test_a_report_is_a_line_and_none_is_needed_when_the_supervisor_is_gone(
    link: SupervisorLink, supervisor: socket.socket
):
    link.send(Joined("ann"))
    assert supervisor.recv(1000) == encode_message(Joined("ann")) + b"\n"
    supervisor.close()
    link.send(Joined("ann"))


async def test_a_cut_line_ends_the_wait_for_news(link: SupervisorLink, supervisor: socket.socket):
    waiting = asyncio.create_task(link.next_order(1000))
    supervisor.close()
    await link.listen(lambda _: None)
    assert await asyncio.wait_for(waiting, 10) is None
