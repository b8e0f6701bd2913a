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

from tenure.app import engine_of
from tenure.cli.jobs import follower
from tenure.cli.jobs import tail as tail_module
from tenure.cli.jobs.follower import Follower
from tenure.cli.screen import Screen
from tenure.core.ids import job_id
from tenure.core.jobs.records import NewJob, Note
from tenure.testing import Faults, FaultyStore
from tests.cli.conftest import Place, Run
from tests.cli.shop import NOWHERE, Shop, shop_at
from tests.rig.wait import wait_until, wait_until_async

EVERY = {"task": None, "queue": None, "tag": None}


@pytest.fixture
def shop(place: Place) -> Iterator[Shop]:
    with shop_at(place) as shop:
        yield shop


class Polls:
    """A follower for threads."""

    def __init__(self, shop: Shop, state: str | None = None, lines: int = 200, **filters: str):
        self._call = shop.sync._portal().call
        self._state = state
        self.follower = Follower(engine_of(shop.sync._app).store, EVERY | filters)
        changes = self._call(self.follower.begin(state, lines))
        self.begun = [(change.job.id, change.job.state) for change in changes]
        assert {change.was for change in changes} <= {None}

    def poll(self) -> list[tuple[str, str | None, str]]:
        changes = self._call(self.follower.poll(self._state))
        assert [change.at for change in changes] == sorted(change.at for change in changes)
        return [(change.job.id, change.was, change.job.state) for change in changes]


def test_each_change_is_told_once(shop: Shop):
    polls = Polls(shop)
    assert polls.begun == []
    job = shop.sync.enqueue(shop.resize.request("cat.png"))
    assert polls.poll() == [(job.id, None, "waiting")]
    assert polls.poll() == []
    [record] = shop.claim()
    assert polls.poll() == [(job.id, "waiting", "running")]
    shop.fail(record, "no such file")
    assert polls.poll() == [(job.id, "running", "failed")]
    assert polls.poll() == []
    job.requeue()
    assert polls.poll() == [(job.id, "failed", "waiting")]


def test_what_comes_and_ends_between_two_looks_is_told(shop: Shop):
    polls = Polls(shop)
    job = shop.sync.enqueue(shop.resize.request("cat.png"))
    [record] = shop.claim()
    shop.settle(record, "succeeded", result=b"1")
    assert polls.poll() == [(job.id, None, "succeeded")]


def test_progress_is_told_and_a_checkpoint_is_not(shop: Shop):
    job = shop.sync.enqueue(shop.resize.request("cat.png"))
    [record] = shop.claim()
    polls = Polls(shop)
    store, call = engine_of(shop.sync._app).store, shop.sync._portal().call

    def note(**words: object) -> None:
        assert call(store.jobs.note([Note(id=job.id, fence=record.fence, **words)])) == [True]

    note(checkpoint=b"1")
    assert polls.poll() == []
    note(progress=0.5)
    assert polls.poll() == [(job.id, "running", "running")]
    job.cancel()
    assert polls.poll() == [(job.id, "running", "running")]


def test_it_begins_with_the_last_changes(shop: Shop):
    jobs = shop.sync.enqueue_many([shop.resize.request(name) for name in "abc"])
    jobs[0].cancel()
    ids = [job.id for job in sorted(jobs[1:], key=lambda job: job.record.id)]
    assert Polls(shop, lines=2).begun[-1] == (jobs[0].id, "cancelled")
    assert len(Polls(shop, lines=2).begun) == 2
    assert Polls(shop, lines=0).begun == []
    assert {id_ for id_, _ in Polls(shop, "waiting").begun} == {*ids}


def test_only_what_fits_is_told(shop: Shop):
    mail, failed = Polls(shop, queue="mail"), Polls(shop, "failed")
    shop.sync.enqueue(shop.resize.request("cat.png"))
    job = shop.sync.enqueue(shop.send.request(1))
    assert mail.poll() == [(job.id, None, "waiting")]
    assert failed.poll() == []
    for record in shop.claim():
        shop.fail(record, "bad")
    assert mail.poll() == [(job.id, "waiting", "failed")]
    assert {(was, state) for _, was, state in failed.poll()} == {("waiting", "failed")}


def test_a_look_goes_through_pages_until_it_knows_the_rest(shop: Shop, monkeypatch):
    monkeypatch.setattr(follower, "PAGE", 2)
    shop.sync.enqueue(shop.resize.request("old"))
    polls = Polls(shop)
    jobs = shop.sync.enqueue_many([shop.resize.request(str(number)) for number in range(7)])
    assert sorted(id_ for id_, _, _ in polls.poll()) == sorted(job.id for job in jobs)
    assert not polls.follower.has_gap
    shop.sync.enqueue_many([shop.resize.request(str(number)) for number in range(20)])
    assert len(polls.poll()) == 2 * follower.PAGES
    assert polls.follower.has_gap


def test_ids_by_a_clock_that_is_behind_are_seen(shop: Shop, monkeypatch):
    monkeypatch.setattr(follower, "PAGE", 2)
    polls = Polls(shop)
    newest = shop.sync.enqueue(shop.resize.request("new")).id
    assert len(polls.poll()) == 1
    millisecond = follower._millisecond(newest)
    late = [job_id(millisecond - 1500 + number, 0, "a" * 32) for number in range(6)]
    store = engine_of(shop.sync._app).store
    shop.sync._portal().call(store.jobs.insert([NewJob(id=id_, task="resize") for id_ in late]))
    assert sorted(id_ for id_, _, _ in polls.poll()) == late
    assert not polls.follower.has_gap


def look_no_further_than(monkeypatch: pytest.MonkeyPatch, page: int) -> None:
    """See only so many of the newest jobs, as if all others were known for long."""
    monkeypatch.setattr(follower, "PAGE", page)
    monkeypatch.setattr(follower, "_SKEW", -60_000)


def test_what_was_seen_unfinished_is_followed_behind_the_newest(shop: Shop, monkeypatch):
    look_no_further_than(monkeypatch, 2)
    polls = Polls(shop)
    old = shop.sync.enqueue(shop.resize.request("old"))
    assert polls.poll() == [(old.id, None, "waiting")]
    newer = [shop.resize.using(delay=99).request("new") for _ in range(4)]
    shop.sync.enqueue_many(newer)
    polls.poll()
    [record] = shop.claim()
    shop.settle(record, "succeeded", result=b"1")
    assert polls.poll() == [(old.id, "waiting", "succeeded")]


def test_what_was_never_seen_is_told_when_it_runs(shop: Shop, monkeypatch):
    look_no_further_than(monkeypatch, 2)
    old = shop.sync.enqueue(shop.resize.request("old"))
    newer = [shop.resize.using(delay=99).request("new") for _ in range(4)]
    shop.sync.enqueue_many(newer)
    polls = Polls(shop)
    shop.claim()
    assert polls.poll() == [(old.id, None, "running")]


@pytest.mark.usefixtures("forgotten_at_once")
def test_old_news_are_none(shop: Shop, monkeypatch):
    """Jobs with a short retention are removed, and older ones move up."""
    look_no_further_than(monkeypatch, 1)
    monkeypatch.setattr(follower, "_SLACK", 0)
    shop.sync.enqueue(shop.resize.request("old"))
    [record] = shop.claim()
    shop.settle(record, "succeeded", result=b"1")
    shop.sync.enqueue(shop.send.request(1)).cancel()
    polls = Polls(shop)
    assert len(polls.begun) == 1
    wait_until(shop.sync.prune_jobs)
    assert polls.poll() == []


@contextmanager
def feed(place: Place, *options: str) -> Iterator[subprocess.Popen[str]]:
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
    with feed(place, "--json", "--interval", "60s") as process:
        line = json.loads(process.stdout.readline())
        assert (line["id"], line["was"], line["state"]) == (first.id, None, "waiting")
        assert line["time"] == line["created"]
        assert {"arguments", "headers"}.isdisjoint(line)
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
        with feed(file_place, "--state", "failed", "-n", "1") as process:
            time, id_, *words = process.stdout.readline().split()
    assert time.endswith("Z")
    assert id_ == job.id
    assert words == ["failed", "resize", "#1", "ValueError:", "no", "such", "file"]


def test_a_reader_that_has_seen_enough_ends_it(file_place: Place):
    with shop_at(file_place) as shop:
        shop.sync.enqueue_many([shop.resize.request("x") for _ in range(3)])
        with feed(file_place, "--json", "--interval", "100ms") as process:
            process.stdout.readline()
            process.stdout.close()
            shop.sync.enqueue(shop.resize.request("y"))
            assert process.wait(20) == 1  # as click ends every command then
            assert process.stderr.read() == ""


class Feed:
    """The command's own loop on a store with faults, and what it has said so far."""

    def __init__(self, capsys, *, as_json: bool) -> None:
        self.faults = Faults()
        self.store = FaultyStore("memory://", self.faults)
        screen = Screen(as_json=as_json)
        screen.is_stream = True
        self._feed = tail_module._Feed(screen, EVERY, None, 0.01)
        self._capsys = capsys
        self.words = ""

    def has_said(self, words: str) -> bool:
        self.words += "".join(self._capsys.readouterr())
        return words in self.words

    async def __aenter__(self) -> Self:
        await self.store.open()
        self._task = asyncio.create_task(self._feed.run(self.store, 10))
        await wait_until_async(lambda: self.faults.calls["find"] > 2)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        await self.store.close()


async def test_an_outage_is_told_once_and_outlived(capsys):
    async with Feed(capsys, as_json=False) as feed:
        feed.faults.lose_request("find", times=3)
        await wait_until_async(lambda: feed.has_said("The store answers again."))
        await feed.store.jobs.insert([NewJob(id=NOWHERE, task="resize")])
        await wait_until_async(lambda: feed.has_said(NOWHERE))
        assert feed.words.count("Retrying.") == 1


async def test_programs_are_told_of_outages_and_gaps(capsys, monkeypatch):
    monkeypatch.setattr(follower, "PAGE", 2)
    async with Feed(capsys, as_json=True) as feed:
        feed.faults.lose_request("find", times=2)
        await wait_until_async(lambda: feed.has_said('"kind": "StoreUnavailable"}\n'))
        ids = [f"{NOWHERE[:-2]}{number}" for number in range(10, 60)]
        # A clock far ahead: ids that are newer than this moment.
        await feed.store.jobs.insert([NewJob(id=f"f{id_[1:]}", task="resize") for id_ in ids])
        await wait_until_async(lambda: feed.has_said('"gap": true}\n'))
        assert all(json.loads(line) for line in feed.words.splitlines())


def test_an_error_is_a_line_as_well(cli: Run):
    result = cli("--url", "mysql://host/db", "jobs", "tail", "--json")
    assert (result.code, result.out.count("\n"), result.json["kind"]) == (2, 1, "ConfigError")
