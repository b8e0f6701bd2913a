"""`tenure jobs tail`: the looks, on every store, and the program."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import pytest

from tenure.cli.jobs import follower as following
from tenure.cli.jobs import tail as tail_module
from tenure.cli.jobs.follower import Follower
from tenure.cli.output import Screen
from tenure.core.ids import job_id
from tenure.core.jobs.records import NewJob, Note
from tenure.testing import Faults, FaultyStore
from tests.cli.conftest import Place, Run
from tests.cli.jobbing import NOWHERE, Shop, shop_at
from tests.rig.wait import wait_until, wait_until_async

EVERY = {"task": None, "queue": None, "tag": None}


@pytest.fixture
def shop(place: Place) -> Iterator[Shop]:
    with shop_at(place) as shop:
        yield shop


class Looking:
    """A follower for threads."""

    def __init__(self, shop: Shop, state: str | None = None, lines: int = 200, **wanted: str):
        self._call = shop.sync._portal().call
        self._state = state
        self.follower = Follower(shop.sync._app._store, EVERY | wanted)
        changes = self._call(self.follower.begin(state, lines))
        self.begun = [(one.job.id, one.job.state) for one in changes]
        assert {one.was for one in changes} <= {None}

    def look(self) -> list[tuple[str, str | None, str]]:
        changes = self._call(self.follower.look(self._state))
        assert [one.at for one in changes] == sorted(one.at for one in changes)
        return [(one.job.id, one.was, one.job.state) for one in changes]


def test_each_change_is_told_once(shop: Shop):
    looking = Looking(shop)
    assert looking.begun == []
    job = shop.sync.enqueue(shop.resize.request("cat.png"))
    assert looking.look() == [(job.id, None, "waiting")]
    assert looking.look() == []
    [record] = shop.claim()
    assert looking.look() == [(job.id, "waiting", "running")]
    shop.fail(record, "no such file")
    assert looking.look() == [(job.id, "running", "failed")]
    assert looking.look() == []
    job.requeue()
    assert looking.look() == [(job.id, "failed", "waiting")]


def test_what_comes_and_ends_between_two_looks_is_told(shop: Shop):
    looking = Looking(shop)
    job = shop.sync.enqueue(shop.resize.request("cat.png"))
    [record] = shop.claim()
    shop.settle(record, "succeeded", result=b"1")
    assert looking.look() == [(job.id, None, "succeeded")]


def test_progress_is_told_and_a_checkpoint_is_not(shop: Shop):
    job = shop.sync.enqueue(shop.resize.request("cat.png"))
    [record] = shop.claim()
    looking = Looking(shop)
    store, call = shop.sync._app._store, shop.sync._portal().call

    def note(**words: object) -> None:
        assert call(store.jobs.note([Note(id=job.id, fence=record.fence, **words)])) == [True]

    note(checkpoint=b"1")
    assert looking.look() == []
    note(progress=0.5)
    assert looking.look() == [(job.id, "running", "running")]
    job.cancel()
    assert looking.look() == [(job.id, "running", "running")]


def test_it_begins_with_the_last_changes(shop: Shop):
    jobs = shop.sync.enqueue_many([shop.resize.request(name) for name in "abc"])
    jobs[0].cancel()
    ids = [one.id for one in sorted(jobs[1:], key=lambda job: job.record.id)]
    assert Looking(shop, lines=2).begun[-1] == (jobs[0].id, "cancelled")
    assert len(Looking(shop, lines=2).begun) == 2
    assert Looking(shop, lines=0).begun == []
    assert {one for one, _ in Looking(shop, "waiting").begun} == {*ids}


def test_only_what_fits_is_told(shop: Shop):
    mail, failed = Looking(shop, queue="mail"), Looking(shop, "failed")
    shop.sync.enqueue(shop.resize.request("cat.png"))
    job = shop.sync.enqueue(shop.send.request(1))
    assert mail.look() == [(job.id, None, "waiting")]
    assert failed.look() == []
    for record in shop.claim():
        shop.fail(record, "bad")
    assert mail.look() == [(job.id, "waiting", "failed")]
    assert {(was, state) for _, was, state in failed.look()} == {("waiting", "failed")}


def test_a_look_goes_through_pages_until_it_knows_the_rest(shop: Shop, monkeypatch):
    monkeypatch.setattr(following, "PAGE", 2)
    shop.sync.enqueue(shop.resize.request("old"))
    looking = Looking(shop)
    jobs = shop.sync.enqueue_many([shop.resize.request(str(number)) for number in range(7)])
    assert sorted(one for one, _, _ in looking.look()) == sorted(job.id for job in jobs)
    assert not looking.follower.has_gap
    shop.sync.enqueue_many([shop.resize.request(str(number)) for number in range(20)])
    assert len(looking.look()) == 2 * following.PAGES
    assert looking.follower.has_gap


def test_ids_by_a_clock_that_is_behind_are_seen(shop: Shop, monkeypatch):
    monkeypatch.setattr(following, "PAGE", 2)
    looking = Looking(shop)
    newest = shop.sync.enqueue(shop.resize.request("new")).id
    assert len(looking.look()) == 1
    millisecond = following._millisecond(newest)
    late = [job_id(millisecond - 1500 + number, 0, "a" * 32) for number in range(6)]
    store = shop.sync._app._store
    shop.sync._portal().call(store.jobs.insert([NewJob(id=one, task="resize") for one in late]))
    assert sorted(one for one, _, _ in looking.look()) == late
    assert not looking.follower.has_gap


def look_no_further_than(monkeypatch: pytest.MonkeyPatch, page: int) -> None:
    """See only so many of the newest jobs, as if all others were known for long."""
    monkeypatch.setattr(following, "PAGE", page)
    monkeypatch.setattr(following, "_SKEW", -60_000)


def test_what_was_seen_unfinished_is_followed_behind_the_newest(shop: Shop, monkeypatch):
    look_no_further_than(monkeypatch, 2)
    looking = Looking(shop)
    old = shop.sync.enqueue(shop.resize.request("old"))
    assert looking.look() == [(old.id, None, "waiting")]
    newer = [shop.resize.using(delay=99).request("new") for _ in range(4)]
    shop.sync.enqueue_many(newer)
    looking.look()
    [record] = shop.claim()
    shop.settle(record, "succeeded", result=b"1")
    assert looking.look() == [(old.id, "waiting", "succeeded")]


def test_what_was_never_seen_is_told_when_it_runs(shop: Shop, monkeypatch):
    look_no_further_than(monkeypatch, 2)
    old = shop.sync.enqueue(shop.resize.request("old"))
    newer = [shop.resize.using(delay=99).request("new") for _ in range(4)]
    shop.sync.enqueue_many(newer)
    looking = Looking(shop)
    shop.claim()
    assert looking.look() == [(old.id, None, "running")]


@pytest.mark.usefixtures("forgotten_at_once")
def test_old_news_are_none(shop: Shop, monkeypatch):
    """Jobs with a short retention are removed, and older ones move up."""
    look_no_further_than(monkeypatch, 1)
    monkeypatch.setattr(following, "_SLACK", 0)
    shop.sync.enqueue(shop.resize.request("old"))
    [record] = shop.claim()
    shop.settle(record, "succeeded", result=b"1")
    shop.sync.enqueue(shop.send.request(1)).cancel()
    looking = Looking(shop)
    assert len(looking.begun) == 1
    wait_until(shop.sync.prune_jobs)
    assert looking.look() == []


@contextmanager
def tailing(place: Place, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tenure", *place.options, "jobs", "tail", *options]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdout=pipe, stderr=pipe, encoding="utf-8", env=dict(os.environ)
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_the_program_follows_until_it_is_interrupted(place: Place, shop: Shop):
    first = shop.sync.enqueue(shop.resize.request("cat.png"))
    # The interval is so long that only wake-ups explain what comes in time.
    with tailing(place, "--json", "--interval", "60s") as process:
        line = json.loads(process.stdout.readline())
        assert (line["id"], line["was"], line["state"]) == (first.id, None, "waiting")
        assert line["time"] == line["created"]
        assert "arguments" not in line
        second = shop.sync.enqueue(shop.resize.using(unique="x").request("dog.png"))
        line = json.loads(process.stdout.readline())
        assert (line["id"], line["state"], line["task"]) == (second.id, "waiting", "resize")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert (process.stdout.read(), process.stderr.read()) == ("", "")


def test_a_line_says_it_all(file_place: Place):
    with shop_at(file_place) as shop:
        job = shop.sync.enqueue(shop.resize.request("cat.png"))
        [record] = shop.claim()
        shop.fail(record, "no such file")
        with tailing(file_place, "--state", "failed", "-n", "1") as process:
            time, id_, *words = process.stdout.readline().split()
    assert time.endswith("Z")
    assert id_ == job.id
    assert words == ["failed", "resize", "#1", "ValueError:", "no", "such", "file"]


def test_a_reader_that_has_seen_enough_ends_it(file_place: Place):
    with shop_at(file_place) as shop:
        shop.sync.enqueue_many([shop.resize.request("x") for _ in range(3)])
        with tailing(file_place, "--json", "--interval", "100ms") as process:
            process.stdout.readline()
            process.stdout.close()
            shop.sync.enqueue(shop.resize.request("y"))
            assert process.wait(20) == 1  # as click ends every command then
            assert process.stderr.read() == ""


class Tailing:
    """The command's own loop on a store with faults, and what it has said so far."""

    def __init__(self, capsys, *, as_json: bool) -> None:
        self.faults = Faults()
        self.store = FaultyStore("memory://", self.faults)
        screen = Screen(as_json=as_json)
        screen.is_stream = True
        self._following = tail_module._Following(screen, EVERY, None, 0.01)
        self._capsys = capsys
        self.words = ""

    def has_said(self, words: str) -> bool:
        self.words += "".join(self._capsys.readouterr())
        return words in self.words

    async def __aenter__(self) -> Self:
        await self.store.open()
        self._task = asyncio.create_task(self._following.run(self.store, 10))
        await wait_until_async(lambda: self.faults.calls["find"] > 2)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        await self.store.close()


async def test_an_outage_is_told_once_and_outlived(capsys):
    async with Tailing(capsys, as_json=False) as tailing:
        tailing.faults.lose_request("find", times=3)
        await wait_until_async(lambda: tailing.has_said("The store answers again."))
        await tailing.store.jobs.insert([NewJob(id=NOWHERE, task="resize")])
        await wait_until_async(lambda: tailing.has_said(NOWHERE))
        assert tailing.words.count("Trying on.") == 1


async def test_programs_are_told_of_outages_and_gaps(capsys, monkeypatch):
    monkeypatch.setattr(following, "PAGE", 2)
    async with Tailing(capsys, as_json=True) as tailing:
        tailing.faults.lose_request("find", times=2)
        await wait_until_async(lambda: tailing.has_said('"kind": "StoreUnavailable"}\n'))
        ids = [f"{NOWHERE[:-2]}{number}" for number in range(10, 60)]
        # A clock far ahead: ids that are newer than this moment.
        await tailing.store.jobs.insert([NewJob(id=f"f{one[1:]}", task="resize") for one in ids])
        await wait_until_async(lambda: tailing.has_said('"gap": true}\n'))
        assert all(json.loads(line) for line in tailing.words.splitlines())


def test_an_error_is_a_line_as_well(cli: Run):
    told = cli("--url", "mysql://host/db", "jobs", "tail", "--json")
    assert (told.code, told.out.count("\n"), told.json["kind"]) == (2, 1, "ConfigError")
