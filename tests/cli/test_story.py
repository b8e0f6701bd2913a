"""`tenure jobs show`: why a job waits, where it runs, how its attempts went; on every store."""

import re
from collections.abc import Iterator

import pytest

from tenure.app import engine_of
from tenure.core.jobs.history import AttemptLine, write_history
from tenure.core.jobs.records import NewJob
from tests.cli.clockwork import clockwork_at
from tests.cli.conftest import Place, Result, Run
from tests.cli.shop import Shop, shop_at, work_without_tasks
from tests.rig.endings import settlement
from tests.rig.wait import wait_until

ID = "01890a5d-ac96-774b-bcce-b302099a8057"


@pytest.fixture
def shop(place: Place) -> Iterator[Shop]:
    with shop_at(place) as shop:
        yield shop


@pytest.fixture
def reasons(cli: Run, place: Place):
    """Says why a job waits: in a word for programs, and to people."""

    def reasons(id_: str) -> tuple[str, str]:
        why = cli(*place.options, "jobs", "show", id_, "--json").json["why"]
        page = cli(*place.options, "jobs", "show", id_).out.partition("\nqueue ")[0]
        return why["code"], page

    return reasons


def test_a_job_that_is_not_due(shop: Shop, reasons):
    job = shop.sync.enqueue(shop.resize.using(delay="2h").request("x"))
    shop.claim()
    word, page = reasons(job.id)
    assert word == "due"
    assert re.search(r"\n\nIt is due in (2 h|1 h 59 min)\.\n$", page)


def test_a_paused_queue_without_workers(shop: Shop, reasons):
    job = shop.sync.enqueue(shop.resize.request("x"))
    shop.sync.pause_queue("default", until="10m")
    word, page = reasons(job.id)
    assert word == "paused"
    assert re.search(
        r"\n\nIt waits: its queue 'default' is paused for another (10 min|9 min 5\d s)\.\n", page
    )
    assert "\nResume it: tenure queues resume default\n" in page
    shop.sync.pause_queue("default")
    assert "paused until it is resumed" in reasons(job.id)[1]


def test_a_worker_that_is_gone_is_none(shop: Shop, reasons):
    shop.claim(ttl=0.05)
    job = shop.sync.enqueue(shop.resize.request("x"))
    wait_until(lambda: reasons(job.id)[0] == "no-worker")


def test_its_turn(shop: Shop, reasons):
    shop.claim()
    first, *_ = shop.sync.enqueue_many([shop.resize.request("x") for _ in range(3)])
    word, page = reasons(first.id)
    assert word == "turn"
    assert (
        "\n\nIt waits: at most 2 jobs are ahead of it in its queue 'default', and none runs."
        in page
    )


def test_a_queue_that_nobody_serves(shop: Shop, reasons):
    shop.claim(queues=["mail"])
    store, call = engine_of(shop.sync._app).store, shop.sync._portal().call
    late = call(store.ping()).now - 60_000_000
    call(store.jobs.insert([NewJob(id=ID, task="resize", at=late)]))
    word, page = reasons(ID)
    assert word == "unserved"
    assert "It waits: 1 worker is alive, but none runs a job of its queue 'default'." in page
    # Somebody does.
    shop.claim(queues=["default"])
    call(store.jobs.insert([NewJob(id=ID[:-1] + "8", task="resize", at=late)]))
    assert reasons(ID[:-1] + "8")[0] == "turn"
    assert reasons(ID)[0] == "running"


NO_TIMERS = {"timers": (), "timer_slots": 20}


def test_a_worker_that_is_merely_busy(shop: Shop, reasons):
    """It serves the queue, and runs a job of another one: no further --queues would help."""
    shop.sync.enqueue(shop.send.request(7))
    shop.claim(queues=["mail", "default"], slots=1, **NO_TIMERS)
    store, call = engine_of(shop.sync._app).store, shop.sync._portal().call
    late = call(store.ping()).now - 60_000_000
    call(store.jobs.insert([NewJob(id=ID, task="resize", at=late)]))
    word, page = reasons(ID)
    assert word == "busy"
    assert "the only slot of the worker that serves its queue 'default' is taken." in page
    shop.claim("web-2", queues=["mail"], slots=50, **NO_TIMERS)
    assert reasons(ID)[0] == "busy"
    shop.claim("web-3", queues=["elsewhere", "default"], slots=5, **NO_TIMERS)


def test_no_worker_says_that_it_serves_the_queue(shop: Shop, reasons):
    shop.claim(queues=["mail"], slots=10, **NO_TIMERS)
    job = shop.sync.enqueue(shop.resize.request("x"))
    word, page = reasons(job.id)
    assert word == "unserved"
    assert "It waits: the only live worker does not serve its queue 'default'." in page


def test_a_run_waits_for_a_worker_with_its_timer(place: Place, shop: Shop, reasons):
    shop.claim(queues=["default"], slots=10, timers=["other"], timer_slots=3)
    with clockwork_at(place) as works:
        works.register("sweep")
        run = works.sync.timer_handle("sweep").trigger()
    word, page = reasons(run.id)
    assert word == "unserved"
    assert "It waits: the only live worker does not run its timer 'sweep'." in page


def test_a_task_that_no_worker_knows(place: Place, shop: Shop, reasons):
    job = shop.sync.enqueue(shop.resize.request("x"))
    work_without_tasks(place, job)
    word, page = reasons(job.id)
    assert word == "task"
    assert "\n\nThe last worker did not know its task 'resize'" in page


def test_where_it_runs(cli: Run, place: Place, shop: Shop):
    job = shop.sync.enqueue(shop.send.request(7))
    [record] = shop.claim()
    out = cli(*place.options, "jobs", "show", job.id).out
    assert "\nruns on     web-1 at web-1:4711\n" in out
    assert re.search(r"\ntimeout     30 s per attempt, ends in (30|29|2\d) s\n", out)
    assert re.search(r"\nattempt 1 .* ago, on web-1 at web-1:4711: running for [\d.]+ m?s\n", out)
    since = r"since .* UTC, for [\d.]+ m?s"
    assert re.search(rf"\n\nIt has been running on web-1:4711 {since}\.\n\n", out)
    shop.settle(record, "handed back")
    shop.claim("web-2", ttl=0.05)

    def is_told_gone() -> bool:
        return "\n\nIts worker web-2:4711 expired " in show(cli, place, job.id).out

    wait_until(is_told_gone)


def test_no_recovery_is_promised_while_no_worker_is_alive(cli: Run, place: Place, shop: Shop):
    job = shop.sync.enqueue(shop.send.request(7))
    shop.claim(ttl=0.05)
    wait_until(lambda: " expired " in show(cli, place, job.id).out)
    assert ", and no worker is alive to recover the job.\n" in show(cli, place, job.id).out


def show(cli: Run, place: Place, id_: str) -> Result:
    return cli(*place.options, "jobs", "show", id_)


def test_the_attempts_one_after_the_other(cli: Run, place: Place, shop: Shop):
    job = shop.sync.enqueue(shop.resize.request("x"))
    [record] = shop.claim()
    second = 1_000_000
    begun = record.started - 100 * second
    history = [
        AttemptLine(1, "web-1", begun, begun + second // 4, "retry", "ValueError: bad"),
        AttemptLine(2, "web-2", begun + 10 * second, begun + 12 * second, "lost"),
        AttemptLine(
            3, "web-1", begun + 90 * second, begun + 95 * second, "failed", "OSError: worse"
        ),
    ]
    end = settlement(
        id=job.id, fence=record.fence, outcome="failed", history=write_history(history)
    )
    store = engine_of(shop.sync._app).store
    shop.sync._portal().call(store.jobs.settle([end]))
    lines = show(cli, place, job.id).out.splitlines()
    first, second_line, third = (line for line in lines if line.startswith("attempt "))
    ago = r" +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, 1 min \d+ s ago, on "
    failed = "web-1: failed after 250 ms, next attempt 9.8 s later: ValueError: bad"
    assert re.fullmatch(f"attempt 1{ago}{failed}", first)
    lost = "web-2: lost with its worker after 2 s, next attempt 1 min 18 s later"
    assert re.fullmatch(f"attempt 2{ago}{lost}", second_line)
    assert re.fullmatch(r"attempt 3 +.*: failed after 5 s: OSError: worse", third)
