"""`tenure why`: which thing a name stands for, and what is said about it; on every store."""

from collections.abc import Iterator

import pytest

from tests.cli.clockwork import EVIL, STEERING, clockwork_at
from tests.cli.conftest import Place, Run
from tests.cli.shop import NOWHERE, Shop, shop_at
from tests.security.hands import hand_of


@pytest.fixture
def shop(place: Place) -> Iterator[Shop]:
    with shop_at(place) as shop:
        yield shop


@pytest.fixture
def file_shop(file_place: Place) -> Iterator[Shop]:
    with shop_at(file_place) as shop:
        yield shop


def test_each_kind_is_explained_by_its_name(cli: Run, place: Place, shop: Shop):
    job = shop.sync.enqueue(shop.send.request(7))
    with clockwork_at(place) as works:
        works.register("sweep")
    codes = ["no-worker", "no-worker", "no-worker", "held"]
    with shop.sync.lock("invoice:42"):
        for name, start in {
            job.id: (
                f"job {job.id}  send, waiting\nIt waits: no worker is alive.\n"
                "Start one: tenure worker MODULE:APP\n"
            ),
            "mail": "queue mail\nNo worker is alive, and 1 job waits in it, ",
            "sweep": "timer sweep\nNo worker is alive, so it does not tick, ",
            "invoice:42": "lock invoice:42\nIt is held by ",
        }.items():
            result = cli(*place.options, "why", name)
            assert (result.code, result.out.startswith(start)) == (0, True), result.out
            document = cli(*place.options, "why", name, "--json").json
            assert f"{document['kind']} {document['name']}" in result.out
            assert document["text"].split()[:3] == result.out.splitlines()[1].split()[:3]
            assert document["code"] == codes.pop(0)


def test_the_end_of_an_id_is_enough(cli: Run, file_place: Place, file_shop: Shop):
    job = file_shop.sync.enqueue(file_shop.send.request(7))
    for options in ((), ("--job",)):
        result = cli(*file_place.options, "why", *options, job.id[-12:])
        assert result.out.startswith(f"job {job.id}  send, waiting\n")


def test_a_name_of_several_things_needs_an_option(cli: Run, file_place: Place, file_shop: Shop):
    file_shop.sync.enqueue(file_shop.send.request(7))
    with file_shop.sync.lock("mail"):
        result = cli(*file_place.options, "why", "mail")
        assert (result.code, result.out) == (2, "")
        assert "'mail' is the name of several things. Say which one is meant: --queue, --lock." in (
            result.err
        )
        assert cli(*file_place.options, "why", "--queue", "mail").out.startswith("queue mail\n")
        assert cli(*file_place.options, "why", "--lock", "mail").out.startswith("lock mail\n")


def test_a_queue_or_a_lock_that_is_not_in_use(cli: Run, file_place: Place):
    result = cli(*file_place.options, "why", "--lock", "gpu")
    assert (result.code, result.out) == (0, "lock gpu\nNo process holds it.\n")
    result = cli(*file_place.options, "why", "--queue", "gpu")
    assert (result.code, result.out.startswith("queue gpu\nIt has no unfinished")) == (0, True)


def test_a_queue_without_jobs_is_found_if_a_worker_serves_it(
    cli: Run, file_place: Place, file_shop: Shop
):
    file_shop.claim(queues=["reports"], slots=1, timers=(), timer_slots=0)
    result = cli(*file_place.options, "why", "reports")
    assert "It has no unfinished jobs, and 1 worker serves it.\n" in result.out
    job = file_shop.sync.enqueue(file_shop.send.using(retention=60).request(7))
    job.cancel()
    assert cli(*file_place.options, "why", "mail").code == 0


@pytest.mark.parametrize(
    ("name", "error"),
    [
        (
            "sweeep",
            "no job, timer, queue or lock is called 'sweeep'. Did you mean the timer 'sweep'?",
        ),
        ("mial", "Did you mean the queue 'mail'?"),
        ("invoice:43", "Did you mean the lock 'invoice:42'?"),
        ("unlike", "is called 'unlike'. For the end of an id, write at least 8 characters."),
        (NOWHERE, f"there is no job {NOWHERE}. "),
        ("deadbeef", "no job ends with 'deadbeef', among the newest 1,000 of each state. "),
    ],
)
def test_a_name_that_nothing_has(
    cli: Run, file_place: Place, file_shop: Shop, name: str, error: str
):
    file_shop.sync.enqueue(file_shop.send.request(7))
    with clockwork_at(file_place) as works:
        works.register("sweep")
    with file_shop.sync.lock("invoice:42"):
        result = cli(*file_place.options, "why", name)
    assert (result.code, result.out) == (2, "")
    assert error in result.err
    document = cli(*file_place.options, "why", name, "--json")
    assert (document.code, document.json["kind"]) == (2, "ConfigError")


@pytest.mark.parametrize(
    ("option", "error"),
    [
        ("--job", "'x' is too short: give at least the last 8 characters of an id."),
        ("--timer", "'tenure timers ls' lists the timers in the store."),
    ],
)
def test_a_job_or_timer_that_is_not_there(cli: Run, file_place: Place, option: str, error: str):
    result = cli(*file_place.options, "why", option, "x")
    assert result.code == 2
    assert error in result.err


def test_a_job_that_was_set_aside(cli: Run, place: Place, shop: Shop, request):
    job = shop.sync.enqueue(shop.send.request(7))
    hand_of(request, place).spoil_job(job.id)
    shop.claim()
    result = cli(*place.options, "why", job.id)
    assert result.code == 0
    assert result.out.startswith(f"job {job.id}\nIts record cannot be read, so it was set aside")
    assert cli(*place.options, "why", job.id, "--json").json["code"] == "aside"


def test_names_cannot_steer_the_terminal(cli: Run, file_place: Place, file_shop: Shop):
    file_shop.sync.pause_queue(EVIL, reason=EVIL)
    for options in (("--queue",), ("--lock",), ("--timer",), ("--job",), ()):
        result = cli(*file_place.options, "why", *options, EVIL)
        assert not STEERING & set(result.out + result.err)


def test_the_task_of_a_timer_stands_for_the_timer(cli: Run, file_place: Place):
    with clockwork_at(file_place) as works:
        works.register("sweep")
    result = cli(*file_place.options, "why", "@sweep")
    assert result.out.startswith("timer sweep\nNo worker is alive, so it does not tick, ")
