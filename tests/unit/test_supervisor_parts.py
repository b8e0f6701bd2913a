"""The parts of a supervisor, each by itself: its children, and the program that they run."""

import asyncio
import os
import signal
import socket
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tenure import Tenure
from tenure.app import engine_of
from tenure.observe import Event, StoreFailing
from tenure.runtime.supervised.messages import BeatFailed, HandOver, RecordRenewed, TakenOver
from tenure.runtime.supervised.scoreboard import Scoreboard
from tenure.stores.connect import connect
from tenure.supervisor.beats import Heartbeats
from tenure.supervisor.child import Child, _blocked
from tenure.supervisor.child_main import work
from tenure.supervisor.spec import ChildSpec, decode_spec, encode_spec
from tenure.testing import Faults, FaultyStore, ManualClock
from tests.rig.wait import wait_until_async

SPEC = ChildSpec(app="shop:app", queues=("a", "b"), concurrency=2, grace=1.5, log_level="INFO")


def mask() -> set[signal.Signals]:
    return cast("set[signal.Signals]", signal.pthread_sigmask(signal.SIG_BLOCK, []))


def test_signals_are_held_back_and_then_no_more_also_after_an_error():
    before = mask()
    with _blocked([signal.SIGUSR2]):
        assert mask() == before | {signal.SIGUSR2}
    assert mask() == before
    with pytest.raises(KeyError), _blocked([signal.SIGUSR2]):
        raise KeyError
    assert mask() == before


def test_a_spec_arrives_as_it_was_written():
    spec = ChildSpec(
        app="shop:app",
        queues=None,
        concurrency=1,
        grace=0.5,
        log_level=None,
        line=3,
        board=4,
        resumed=HandOver("ann", ["job"]),
    )
    assert [decode_spec(encode_spec(each)) for each in (SPEC, spec)] == [SPEC, spec]


async def test_workers_are_told_when_the_store_does_not_answer_their_beat():
    faults = Faults()
    clock = ManualClock()
    app = Tenure(FaultyStore(connect("memory://", namespace="test", clock=clock), faults))
    orders: list[object] = []
    seen: list[Event] = []
    child: Any = SimpleNamespace(replica="ann", order=orders.append)
    async with app:
        engine_of(app).events.subscribe(seen.append)
        store = engine_of(app).store
        await store.jobs.beat(["ann"], ttl=30, meta={})
        beats = Heartbeats(store, app.settings, engine_of(app).events, set(), "supervisor")
        faults.lose_request("beat", times=2)
        beating = asyncio.create_task(beats._beat({"ann": child}))
        await clock.advance(20)
        await beating
    assert orders[:2] == [BeatFailed(), BeatFailed()]
    assert isinstance(orders[2], RecordRenewed)
    assert beats.last == pytest.approx(clock.boot(), abs=20)
    assert [event.call for event in seen if isinstance(event, StoreFailing)] == ["beat"]


async def test_programs_that_a_job_starts_do_not_inherit_the_line():
    ours, theirs = socket.socketpair()
    spec = ChildSpec(
        app="", queues=None, concurrency=1, grace=0.1, log_level=None,
        line=theirs.detach(), board=Scoreboard.make_file(522),
    )  # fmt: skip
    os.set_inheritable(spec.line, True)  # as the supervisor does
    with closing(ours):
        working = asyncio.create_task(work(Tenure("memory://"), spec))
        ours.setblocking(False)
        received = await asyncio.get_running_loop().sock_recv(ours, 1000)
        assert b"Joined" in received
        assert not os.get_inheritable(spec.line)
    await asyncio.wait_for(working, 10)


async def test_a_late_answer_about_an_old_replica_does_not_concern_the_new_one():
    faults = Faults()
    clock = ManualClock()
    app = Tenure(FaultyStore(connect("memory://", namespace="test", clock=clock), faults))
    orders: list[object] = []
    child: Any = SimpleNamespace(replica="old", order=orders.append)
    async with app:
        beats = Heartbeats(
            engine_of(app).store, app.settings, engine_of(app).events, set(), "supervisor"
        )
        faults.delay("beat", 5)
        beating = asyncio.create_task(beats._beat({"old": child}))
        await clock.advance(1)
        child.replica = "new"  # it has joined anew meanwhile
        await clock.advance(5)
        await beating
    assert orders == [TakenOver("old")]
    assert child.replica == "new"


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="it counts open files")
async def test_a_child_that_was_replaced_leaves_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A supervisor may replace its children for months."""
    (tmp_path / "shop.py").write_text("raise SystemExit(7)")
    monkeypatch.chdir(tmp_path)
    before = open_files()
    child = await Child.spawn(SPEC, 0.0, asyncio.Lock())
    assert await child.exited() == 7
    assert [report async for report in child.reports()] == []
    child.close()
    await wait_until_async(lambda: open_files() <= before)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
