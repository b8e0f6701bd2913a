"""`tenure top`: on a terminal, in a pipe, against a store that goes away, and what it costs."""

import asyncio
import os
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

from tenure import Tenure
from tenure.app import engine_of
from tenure.cli.top.actions import perform, question
from tenure.cli.top.data import Picture, read, read_history, read_job
from tenure.cli.top.details import Story, lines_about
from tenure.cli.top.grid import Row
from tenure.cli.top.panes import PANES, rows_of
from tenure.cli.top.program import Program
from tenure.cli.top.state import JOBS, LOCKS, QUEUES, REPLICAS, TIMERS, Action
from tenure.testing import Faults, FaultyStore, ManualClock
from tests.cli.clockwork import EVIL, STEERING, clockwork_at
from tests.cli.conftest import Place, Run
from tests.cli.shop import Shop, shop_at
from tests.cli.tty import Tty, shell_on_a_tty, top_on_a_tty
from tests.rig.endings import settlement
from tests.rig.wait import wait_until_async

CALLS_MAX = 10


@pytest.fixture
def file_shop(file_place: Place) -> Iterator[Shop]:
    with shop_at(file_place) as shop:
        yield shop


@pytest.fixture
def shop(place: Place) -> Iterator[Shop]:
    with shop_at(place) as shop:
        yield shop


# In a pipe.


def test_in_a_pipe_it_answers_once(cli: Run, place: Place, shop: Shop):
    job = shop.sync.enqueue(shop.resize.request("x"))
    shop.sync.enqueue(shop.send.request(1))
    shop.claim(queues=("default",), slots=4, timers=[], timer_slots=0)
    with shop.sync.lock("invoice:42"):
        result = cli(*place.options, "top")
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[0].startswith("! Queue mail: the only live worker does not serve it")
    assert not any("\x1b" in line or ".." in line for line in lines)
    assert [line for line in lines if re.match(r"(Queues|Jobs|Timers|Locks|Replicas): ", line)] == [
        "Queues: 2",
        "Jobs: 1",
        "Timers: no worker has declared one",
        "Locks: 1",
        "Replicas: 1",
    ]
    [row] = [line for line in lines if line.startswith("resize ")]
    assert row.split()[1:3] == [job.id, "running"]


def test_its_document(cli: Run, file_place: Place, file_shop: Shop):
    file_shop.sync.enqueue(file_shop.send.request(1))
    document = cli(*file_place.options, "top", "--json").json
    assert {*document} == {
        *("store", "namespace", "time", "attention", "queues", "jobs", "timers", "timers_paused"),
        *("locks", "replicas"),
    }
    assert document["attention"][0]["level"] == "error"
    assert document["queues"][0]["name"] == "mail"


def test_the_store_is_an_argument_or_an_option(cli: Run, file_place: Place):
    assert cli("top", file_place.url).code == 0
    twice = cli("top", file_place.url, "--url", file_place.url)
    assert (twice.code, "Name the store once: leave out --url." in twice.err) == (2, True)
    assert "at least 200ms" in cli("top", "--every", "10ms").err


def test_the_app_is_an_argument_or_an_option(cli: Run, tmp_path: Path, monkeypatch: Any):
    url = f"sqlite:///{tmp_path}/own.db"
    code = f"from tenure import Tenure\napp = Tenure({url!r}, namespace='own')\n"
    (tmp_path / "top_app.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    place = Place("sqlite", url, "own")
    with place.app():
        pass
    for arguments in (["top", "top_app:app"], ["top", "-A", "top_app:app"]):
        assert cli(*arguments, "--json").json["namespace"] == "own"
    assert "leave out -A" in cli("top", "-A", "top_app:app", url).err


def test_a_store_that_is_not_there(cli: Run, tmp_path: Path):
    result = cli("top", f"sqlite:///{tmp_path}/none.db")
    assert (result.code, result.out) == (2, "")


# What it costs, and what it does.


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
async def app(faults: Faults, clock: ManualClock) -> AsyncIterator[Tenure]:
    async with Tenure(FaultyStore("memory://", faults, clock=clock)) as app:
        yield app


async def calls_with(timers: int) -> Counter[str]:
    """Return the calls of a look at a store with timers that have run."""
    faults, clock = Faults(), ManualClock()
    app = Tenure(FaultyStore("memory://", faults, clock=clock))
    for number in range(timers):

        @app.timer(every="10s", name=f"timer-{number}")
        async def run() -> None: ...

    async with app, app.worker(queues=["default"]):
        await clock.advance(25)
        before = faults.calls.copy()
        picture = await read(app)
    assert len([view for view in picture.timers.timers if view.info.latest]) == timers
    return Counter({name: faults.calls[name] - before[name] for name in ("read", "get", "find")})


async def test_timers_cost_the_same_however_many_there_are():
    few = await calls_with(1)
    assert few == Counter(read=2, get=1, find=3)
    assert await calls_with(60) == few


async def test_a_look_costs_the_same_whatever_is_in_the_store(app: Tenure, faults: Faults):
    @app.task
    async def work() -> None: ...

    async def calls() -> Counter[str]:
        before = faults.calls.copy()
        await read(app)
        return faults.calls - before

    few = await calls()
    assert 0 < sum(few.values()) <= CALLS_MAX
    store = engine_of(app).store
    for number in range(50):
        await work.using(queue=f"queue-{number}").enqueue()
        names = {"key": f"lock-{number}", "holder": f"holder-{number}"}
        await store.leases.acquire(**names, limit=1, ttl=60, meta={})
        await store.jobs.beat([f"web-{number}"], ttl=60, meta={})
    await store.jobs.claim("web-1", 1, [f"queue-{number}" for number in range(25)], 200)
    assert await calls() == few
    [job, *_] = (await read(app)).jobs
    before = faults.calls.copy()
    await read_job(app, job.id)
    assert (faults.calls - before).total() <= 4


def row_of(picture: Picture, pane: int, name: str) -> Row | None:
    return next((row for row in rows_of(PANES[pane], picture) if row.key == name), None)


@pytest.mark.parametrize(
    ("pane", "name", "noun"), [(QUEUES, "mail", "queue mail"), (TIMERS, "sweep", "timer sweep")]
)
def test_pausing_and_resuming(place: Place, pane: int, name: str, noun: str):
    with clockwork_at(place) as work:
        app = work.sync._app
        work.register()

        def does(what: Any) -> str:
            assert question(Action(what, pane, name), None) == f"{what.capitalize()} {noun}?"
            return work.call(perform(app, Action(what, pane, name)))

        for _ in range(2):  # as if another operator was faster
            assert does("pause") == f"Paused {noun} until it is resumed."
        row = row_of(work.call(read(app)), pane, name)
        assert row is not None
        assert row.is_paused
        for _ in range(2):
            assert does("resume") == f"Resumed {noun}."
        row = row_of(work.call(read(app)), pane, name)
        assert row is None or not row.is_paused


def test_cancelling_and_requeuing(place: Place, shop: Shop):
    app = shop.sync._app

    def does(what: Any, id_: str) -> str:
        return shop.sync._portal().call(perform(app, Action(what, JOBS, id_)))

    waiting = shop.sync.enqueue(shop.resize.request("x"))
    assert does("cancel", waiting.id) == f"Cancelled job {waiting.id[-8:]}."
    assert does("cancel", waiting.id) == f"Job {waiting.id[-8:]} has finished already: cancelled."
    running = shop.sync.enqueue(shop.resize.request("x"))
    [record] = shop.claim()
    assert does("cancel", running.id) == f"Asked job {running.id[-8:]} to stop."
    shop.fail(record, "no disk")
    assert does("requeue", running.id) == f"Requeued job {running.id[-8:]}."
    assert running.refresh().state == "waiting"


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_pages_about_one_thing_fit(file_place: Place, width: int):
    with clockwork_at(file_place) as work, shop_at(file_place) as shop:
        work.register()
        work.tick()
        work.skip()
        queue = f"{EVIL} {'long ' * 20}"
        job = shop.sync.enqueue(shop.resize.using(queue=queue).request(EVIL * 20))
        [record] = shop.claim(EVIL, (queue,), slots=1, timers=[], timer_slots=0)
        shop.fail(record, EVIL * 9, f"Traceback\n  {EVIL * 9}")
        app = work.sync._app
        with shop.sync.lock(EVIL, meta={"note": EVIL}):
            picture = work.call(read(app))
        history = work.call(read_history(app, "sweep"))
        about = shop.sync._portal().call(read_job(shop.sync._app, job.id))
        pages: list[tuple[int, str, Story, str]] = [
            (QUEUES, queue, None, "It has no unfinished jobs"),
            (JOBS, job.id, about, "attempt 1"),
            (TIMERS, "sweep", history, "skipped"),
            (TIMERS, "gone", None, "no longer there"),
            (LOCKS, EVIL, None, "fence"),
            (REPLICAS, EVIL, None, "slots"),
        ]
        for pane, name, story, expected in pages:
            lines = lines_about(pane, name, picture, story, width)
            assert expected in "\n".join(line.plain for line in lines)
            for line in lines:
                assert line.cell_len <= width
                assert not STEERING & set(line.plain)


# The program, on a terminal made of paper.


class Paper:
    """A terminal that keeps the last screen, and whose keys come from the test."""

    size = (80, 24)

    def __init__(self) -> None:
        self.input, self._keys = os.pipe()
        self.lines: Sequence[str] = ()

    def taken(self) -> AbstractContextManager[None]:
        return nullcontext()

    def draw(self, lines: Sequence[Text]) -> None:
        self.lines = [line.plain for line in lines]

    def read(self) -> bytes:
        return os.read(self.input, 1024)

    def press(self, keys: str) -> None:
        os.write(self._keys, keys.encode())

    async def until(self, condition: Callable[[str], bool]) -> str:
        """Return the screen once it is as expected."""
        await wait_until_async(lambda: condition("\n".join(self.lines)), 10)
        return "\n".join(self.lines)

    def close(self) -> None:
        os.close(self.input)
        os.close(self._keys)


@asynccontextmanager
async def running(app: Tenure) -> AsyncIterator[Paper]:
    """Run it every 10 ms; it has to end at the key q."""
    paper = Paper()
    program = asyncio.create_task(Program(app, paper, "shop", 0.01).run())  # type: ignore[arg-type]
    try:
        yield paper
        paper.press("q")
        await asyncio.wait_for(program, 10)
    finally:
        program.cancel()
        await asyncio.gather(program, return_exceptions=True)
        paper.close()


async def test_a_store_that_goes_away_and_comes_back(
    app: Tenure, faults: Faults, clock: ManualClock
):
    await app.pause_queue("mail")
    async with running(app) as paper:
        await paper.until(lambda screen: "paused until resumed" in screen)
        faults.lose_request("counts", 1_000_000)
        await paper.until(lambda screen: "! Cannot read the store." in screen)
        await clock.advance(75)
        screen = await paper.until(lambda screen: "Shown as it was 1 min 15 s ago." in screen)
        assert "paused until resumed" in screen
        paper.press("\x1b[B")  # keys are answered all the same
        paper.press("?")
        await paper.until(lambda screen: "Actions, which ask first" in screen)
        paper.press("?")
        faults.heal()
        await paper.until(lambda screen: "Cannot read" not in screen and "1 Queues" in screen)


async def test_a_store_that_is_away_at_the_start(faults: Faults, clock: ManualClock):
    faults.lose_request("open", 1_000_000)
    store = FaultyStore("memory://", faults, clock=clock)
    async with Tenure(store, connect="lazy") as app, running(app) as paper:
        screen = await paper.until(lambda screen: "! Cannot read the store." in screen)
        assert "Shown as it was" not in screen
        paper.press("3p?")  # no list is there yet
        await paper.until(lambda screen: "Actions, which ask first" in screen)
        paper.press("?")
        faults.heal()
        await clock.advance(5)
        await paper.until(lambda screen: "Cannot read" not in screen and "1 Queues" in screen)


async def test_an_action_that_the_store_refuses(app: Tenure, faults: Faults):
    await app.pause_queue("mail")
    async with running(app) as paper:
        await paper.until(lambda screen: "paused until resumed" in screen)
        faults.lose_request("pause")
        paper.press("p")
        await paper.until(lambda screen: "Resume queue mail? [y/N]" in screen)
        paper.press("y")
        await paper.until(lambda screen: "Try again later" in screen)
        assert (await read(app)).queues[0].paused_for is not None


async def test_one_action_at_a_time(app: Tenure, faults: Faults, clock: ManualClock):
    await app.pause_queue("mail")
    async with running(app) as paper:
        await paper.until(lambda screen: "paused until resumed" in screen)
        faults.delay("pause", 5)
        for _ in range(2):
            paper.press("p")
            await paper.until(lambda screen: "Resume queue mail? [y/N]" in screen)
            paper.press("y")
            await paper.until(lambda screen: "[y/N]" not in screen)
        await paper.until(lambda screen: "has not answered to the last action yet" in screen)
        await clock.advance(5)
        await paper.until(lambda screen: "Resumed queue mail." in screen)
    assert faults.calls["pause"] == 2


async def test_failed_runs_of_timers_are_not_among_the_jobs(app: Tenure, clock: ManualClock):
    @app.timer(every="1m")
    async def sweep() -> None:
        raise ValueError("no broom")

    @app.task(retry=0)
    async def charge() -> None:
        raise ValueError("no card")

    async with app.worker():
        await clock.advance(61)
        await (await charge.enqueue()).wait(timeout=10)
        picture = await read(app)
    assert [job.task for job in picture.jobs] == ["charge"]
    assert [line["text"].split(":")[0] for line in picture.attention] == [
        "Timer sweep",
        "Task charge",
    ]


async def test_a_job_that_is_pruned_while_it_is_open(app: Tenure):
    @app.task
    async def work() -> None: ...

    job = await work.enqueue()
    store = engine_of(app).store
    await store.jobs.beat(["web-1"], ttl=60, meta={})
    [record] = (await store.jobs.claim("web-1", 1, ["default"], 1)).jobs
    async with running(app) as paper:
        await paper.until(lambda screen: job.id[-8:] in screen)
        paper.press("2\r")
        await paper.until(lambda screen: "attempts" in screen and job.id in screen)
        end = settlement(id=job.id, fence=record.fence, outcome="succeeded", history=b"")
        assert await store.jobs.settle([end]) == ["settled"]
        await app.delete_job(job.id)
        screen = await paper.until(lambda screen: f"there is no job {job.id}" in screen)
        assert "attempts" in screen  # what was known of it stays
        paper.press("\x1b")
        await paper.until(lambda screen: "1 Queues" in screen)


# A real terminal.


def test_it_starts_while_the_store_is_down():
    with top_on_a_tty("--url", "redis://127.0.0.1:1/0") as tty:
        tty.until("! Cannot read the store.")
        tty.until("'tenure doctor'")  # the end of the reason, with what to do
        tty.press("q")
        assert tty.ended() == 0


@pytest.fixture
def tty(file_place: Place, file_shop: Shop) -> Iterator[Tty]:
    file_shop.sync.enqueue(file_shop.resize.request("x"))
    file_shop.claim(queues=("default",), slots=4, timers=[], timer_slots=0)
    file_shop.sync.enqueue(file_shop.send.request(1))
    with top_on_a_tty(*file_place.options) as tty:
        yield tty


def test_the_keys_of_a_terminal(tty: Tty, file_shop: Shop):
    before = tty.modes
    tty.until("1 Queues")
    assert tty.modes != before
    tty.press("\x1b[Bp")
    tty.until("Pause queue default? [y/N]")
    tty.press("y")
    tty.until("Paused queue default until it is resumed.")
    assert [queue.queue for queue in file_shop.sync.queues() if queue.paused_for] == ["default"]
    tty.press("2\r")
    tty.until("It has been running on web-1:4711")
    tty.press("\x1b")
    tty.until("5 Replicas")
    tty.resize(60, 20)
    tty.until("1 Queues", columns=60, lines=20)
    tty.resize(200, 50)
    tty.until("1 Queues", columns=200, lines=50)
    tty.press("q")
    assert tty.ended() == 0
    assert tty.modes == before
    assert tty.seen.rstrip().endswith("\x1b[?7h\x1b[?25h\x1b[?1049l")


@pytest.mark.parametrize("key", ["\x03", "SIGTERM", "SIGHUP"])
def test_the_terminal_is_restored(tty: Tty, key: str):
    before = tty.modes
    tty.until("1 Queues")
    if key.startswith("SIG"):
        tty.kill(key)
    else:
        tty.press(key)
    assert tty.ended() == 0
    assert tty.modes == before
    assert "Traceback" not in tty.seen


def test_ctrl_z_and_fg(file_place: Place, file_shop: Shop):
    with shell_on_a_tty() as tty:
        tty.until("$ ")
        before = tty.modes
        tty.run_top(*file_place.options)
        tty.until("1 Queues")
        assert tty.modes != before
        tty.press("\x1a")
        tty.until("Stopped")
        assert tty.modes == before
        tty.forget()
        tty.press("fg\n")
        tty.until("1 Queues")
        assert tty.modes != before
        tty.press("q")
        tty.until("$ ")
        tty.press("echo ended=$?\n")
        tty.until("ended=0")
        assert tty.modes == before
        tty.press("exit\n")
        tty.ended()


def test_without_colours(file_place: Place, file_shop: Shop):
    file_shop.sync.enqueue(file_shop.send.request(1))
    with top_on_a_tty(*file_place.options, NO_COLOR="1") as tty:
        tty.until("1 Queues")
        tty.press("q")
        assert tty.ended() == 0
        assert not re.search(r"\x1b\[[\d;]*[34]\d[;m]", tty.seen)
    with top_on_a_tty(*file_place.options) as tty:
        tty.until("1 Queues")
        tty.press("q")
        assert tty.ended() == 0
        assert re.search(r"\x1b\[[\d;]*3\d[;m]", tty.seen)


@pytest.mark.parametrize("how", ["TERM=dumb", "no keys"])
def test_a_terminal_that_cannot_be_used(file_place: Place, file_shop: Shop, how: str):
    """Without the means for a screen, it answers once."""
    environment = {"TERM": "dumb"} if how == "TERM=dumb" else {}
    with top_on_a_tty(*file_place.options, has_keys=how != "no keys", **environment) as tty:
        assert tty.ended() == 0
        assert "no worker has joined" in tty.seen
        assert "\x1b[?1049h" not in tty.seen
