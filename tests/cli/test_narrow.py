"""Lists on a terminal of 60 columns: each row is one line, and the header is whole."""

from collections.abc import Iterator

import pytest

from tenure.app import engine_of
from tenure.cli.jobs.follower import Change
from tenure.cli.jobs.tail import _Feed
from tenure.cli.screen import Screen
from tests.cli.clockwork import Clockwork, clockwork_at
from tests.cli.conftest import Place
from tests.cli.shop import Shop, shop_at
from tests.cli.terminal import on_a_terminal, plain

ID = "01a1e141-50eb-7000-b594-7657615a0122"


@pytest.fixture
def shop(file_place: Place) -> Iterator[Shop]:
    with shop_at(file_place) as shop:
        yield shop


@pytest.fixture
def work(file_place: Place) -> Iterator[Clockwork]:
    with clockwork_at(file_place) as work:
        yield work


def table(place: Place, *command: str, columns: int = 60, begins: str) -> list[str]:
    """Return the lines of a table on a terminal, and check that none is too long."""
    seen = plain(on_a_terminal(*place.options, *command, COLUMNS=str(columns))).splitlines()
    at = next(number for number, line in enumerate(seen) if line.startswith(begins))
    lines = [line.rstrip() for line in seen[at:]]
    assert len(lines) > 1
    for line in lines:
        assert len(line) <= columns, lines
    return lines


@pytest.mark.draw(2)
@pytest.mark.parametrize("columns", [60, 70, 80, 100, 140])
def test_jobs(file_place: Place, shop: Shop, columns: int):
    task = shop.resize.using(queue="a queue with a long name")
    shop.sync.enqueue(task.request("a"))
    shop.fail(shop.claim("web-1", ("a queue with a long name",))[0], "x " * 60)
    header, row = table(file_place, "jobs", "ls", columns=columns, begins="ID")
    assert {"ID", "TASK", "STATE", "DETAILS"} <= set(header.split())
    assert "failed" in row
    assert "Value" in row


@pytest.mark.draw(2)
@pytest.mark.parametrize("columns", [60, 70, 80, 100, 140])
def test_timers(file_place: Place, work: Clockwork, columns: int):
    work.register()
    work.register("a timer with a name that is long")
    work.tick()
    header, *_ = table(file_place, "timers", "ls", columns=columns, begins="NAME")
    assert {"NAME", "NEXT", "LAST"} <= set(header.split())
    table(file_place, "timers", "history", "sweep", columns=columns, begins="TICK")


@pytest.mark.draw(2)
@pytest.mark.parametrize("columns", [60, 70, 80, 100])
def test_replicas(file_place: Place, shop: Shop, columns: int):
    host = "web-7d9f8c6b5-x2x8z.shop.example.org"
    store = engine_of(shop.sync._app).store
    shop.sync._portal().call(store.jobs.beat([ID], ttl=600, meta={"host": host, "pid": "471147"}))
    header, row = table(file_place, "replicas", "ls", columns=columns, begins="ID")
    assert {"ID", "PROCESS", "STATE", "JOBS"} <= set(header.split())
    assert "alive" in row
    assert ID[-6:] in row


def test_queues(file_place: Place, shop: Shop):
    task = shop.resize.using(queue="a queue with a very long name of its own")
    shop.sync.enqueue(task.request("a"))
    header, row = table(file_place, "queues", "ls", begins="NAME")
    assert header.split() == ["NAME", "WAITING", "RUNNING", "OLDEST", "PAUSED"]
    assert row.startswith("a queue")


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_next_ticks_are_shown_in_the_zone_of_the_timer(
    file_place: Place, work: Clockwork, columns: int
):
    work.register()
    command = ("timers", "next", "weekly", "--number", "60")
    header, *rows = table(file_place, *command, columns=columns, begins="UTC")
    assert header.split() == ["UTC", "Europe/Berlin", "IN"]
    # At six o'clock in Berlin, in winter and in summer.
    assert {line.count("06:00:00") for line in rows} == {1}
    assert len({line.split()[2][:2] for line in rows}) == 2
    header, *_ = table(file_place, "timers", "next", "sweep", columns=columns, begins="UTC")
    assert header.split() == ["UTC", "IN"]


def test_sentences_end_between_words(file_place: Place, shop: Shop):
    job = shop.sync.enqueue(shop.resize.using(queue="q" * 70).request("a"))
    shop.fail(shop.claim("web-1", ("q" * 70,))[0], "no room left")
    options = (*file_place.options, "why", job.id)
    lines = [line.rstrip() for line in plain(on_a_terminal(*options, COLUMNS="60")).splitlines()]
    at = next(number for number, line in enumerate(lines) if line.startswith("It failed"))
    *sentence, step = lines[at:]
    assert max(map(len, sentence)) <= 60
    assert " ".join(sentence).endswith(" UTC.")
    # The terminal folds it, so that the whole of it can be copied.
    assert step == f"Run it again: tenure jobs requeue {job.id}"


def test_changes_of_jobs(file_place: Place, shop: Shop, monkeypatch: pytest.MonkeyPatch):
    job = shop.sync.enqueue(shop.resize.request("a"))
    shop.fail(shop.claim()[0], "no address for user 7")
    change = Change(0, "running", shop.sync.job(job.id))
    for columns, move in ((60, "failed      resize"), (100, "running -> failed      resize")):
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("FORCE_COLOR", "1")
        feed = _Feed(Screen(as_json=False), {}, None, 1.0)
        line = feed._line(change, 0).plain
        assert move in line
        assert len(line) <= columns
        assert "ValueError" in line
