"""`tenure jobs watch`: one job to its end, with an exit code by its outcome."""

import json
import re
import threading
from collections.abc import Callable, Iterator

import pytest

from tenure.app import engine_of
from tenure.cli.jobs.watch import bar
from tenure.core.jobs.records import JobRecord, Note
from tests.cli.conftest import Place, Run
from tests.cli.shop import NOWHERE, Shop, shop_at
from tests.cli.terminal import on_a_terminal, plain


@pytest.fixture
def shop(place: Place) -> Iterator[Shop]:
    with shop_at(place) as shop:
        yield shop


@pytest.fixture
def file_shop(file_place: Place) -> Iterator[Shop]:
    with shop_at(file_place) as shop:
        yield shop


def note(shop: Shop, record: JobRecord, progress: float, message: str) -> None:
    """Report progress of a running job."""
    store = engine_of(shop.sync._app).store
    report = Note(id=record.id, fence=record.fence, progress=progress, message=message)
    assert shop.sync._portal().call(store.jobs.note([report])) == [True]


def end(shop: Shop, outcome: str) -> Callable[[JobRecord], None]:
    def settle(record: JobRecord) -> None:
        if outcome == "failed":
            shop.fail(record, "no address")
        else:
            shop.settle(record, outcome)

    return settle


@pytest.mark.parametrize(("outcome", "code"), [("succeeded", 0), ("failed", 1), ("cancelled", 3)])
def test_the_exit_code_tells_the_outcome(
    cli: Run, file_place: Place, file_shop: Shop, outcome: str, code: int
):
    job = file_shop.sync.enqueue(file_shop.resize.request("x"))
    [record] = file_shop.claim()
    end(file_shop, outcome)(record)
    result = cli(*file_place.options, "jobs", "watch", job.id[-12:])
    assert result.code == code
    [line, *rest] = result.out.splitlines()
    assert re.match(rf"\d\d:\d\d:\d\d  {outcome} +It (was )?{outcome} ", line)
    assert rest == ([] if code == 0 else [f"Run it again: tenure jobs requeue {job.id}"])


def test_in_a_pipe_each_change_is_a_line(cli: Run, place: Place, shop: Shop):
    job = shop.sync.enqueue(shop.resize.request("x"))

    def work() -> None:
        [record] = shop.claim()
        note(shop, record, 0.25, "page 1 of 4")
        shop.settle(record, "succeeded")

    worker = threading.Timer(0.3, work)
    worker.start()
    result = cli(*place.options, "jobs", "watch", job.id, "--json")
    worker.join()
    documents = [json.loads(line) for line in result.out.splitlines()]
    states = [document["state"] for document in documents]
    assert (states[-1], documents[-1]["why"]["code"], result.code) == ("succeeded", "succeeded", 0)
    # Which of the changes are seen depends on when the command began.
    assert states == sorted(states, key=["waiting", "running", "succeeded"].index)
    assert len(states) == len({(each["state"], each["progress"]) for each in documents})
    assert "arguments" not in documents[-1]


def test_a_job_that_does_not_finish_in_time_goes_on(cli: Run, file_place: Place, file_shop: Shop):
    job = file_shop.sync.enqueue(file_shop.resize.request("x"))
    result = cli(*file_place.options, "jobs", "watch", job.id, "--timeout", "100ms")
    assert result.code == 4
    assert re.fullmatch(r"\d\d:\d\d:\d\d  waiting     It waits: no worker is alive\.\n", result.out)
    assert result.err.endswith("The job has not finished; it goes on.\n")
    assert job.refresh().state == "waiting"


def test_a_job_that_has_finished_is_not_too_late(cli: Run, file_place: Place, file_shop: Shop):
    """The time is over once it was looked at, and it has finished."""
    file_shop.sync.enqueue(file_shop.resize.request("x"))
    [record] = file_shop.claim()
    file_shop.settle(record, "succeeded")
    result = cli(*file_place.options, "jobs", "watch", record.id, "--timeout", "1ms")
    assert (result.code, "goes on" in result.err) == (0, False)


def test_a_job_that_is_not_there(cli: Run, file_place: Place):
    result = cli(*file_place.options, "jobs", "watch", NOWHERE)
    assert (result.code, result.out) == (2, "")
    assert f"there is no job {NOWHERE}" in result.err


def test_a_terminal_has_a_bar_in_one_line(file_place: Place, file_shop: Shop):
    job = file_shop.sync.enqueue(file_shop.resize.request("x"))
    [record] = file_shop.claim()
    note(file_shop, record, 0.25, "page 1 of 4")
    seen = on_a_terminal(
        *(*file_place.options, "jobs", "watch", job.id, "--timeout", "30s"),
        when=("25% page", lambda: file_shop.settle(record, "succeeded")),
        NO_COLOR="1",
        COLUMNS="60",
    )
    drawn = re.findall(r"\r\x1b\[2K([^\r\n\x1b]*)", seen)
    assert re.fullmatch(r"resize  \[#{6}\.{18}\] 25% page 1 of 4  [\d.]+ m?s", drawn[0])
    assert all(len(line) < 60 for line in drawn[:-1])
    assert not re.search(r"\x1b\[[\d;]*3\d", seen)
    assert re.search(r"\d\d:\d\d:\d\d  succeeded   It succeeded at ", plain(seen))


@pytest.mark.parametrize(
    ("progress", "shown"),
    [(None, ""), (0.0, f"[{'.' * 24}] "), (1.0, f"[{'#' * 24}] "), (7.0, f"[{'#' * 24}] ")],
)
def test_the_bar(progress: float | None, shown: str):
    assert bar(progress) == shown
