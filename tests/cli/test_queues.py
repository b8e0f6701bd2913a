"""`tenure queues`, `replicas ls`, `recover`, `prune`, on every store."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from tenure.app import engine_of
from tenure.core.jobs.replicas import Stats
from tenure.core.jobs.run_stats import encode_stats
from tests.cli.conftest import Place, Run
from tests.cli.shop import Shop, shop_at
from tests.rig.wait import wait_until


@pytest.fixture
def shop(place: Place) -> Iterator[Shop]:
    with shop_at(place) as shop:
        yield shop


def test_queues_say_how_they_stand(cli: Run, place: Place, shop: Shop):
    assert cli(*place.options, "queues", "ls").out == "No queue has unfinished jobs or is paused.\n"
    shop.sync.enqueue(shop.send.request(1))
    shop.claim()
    shop.sync.enqueue_many([shop.resize.request("a"), shop.resize.using(delay=99).request("b")])
    result = cli(*place.options, "queues", "ls")
    assert result.code == 0
    header, default, mail = result.out.splitlines()
    assert header.split() == ["NAME", "WAITING", "RUNNING", "OLDEST", "PAUSED"]
    assert re.fullmatch(r"default +2 +0 +[\d.]+ m?s", default)
    assert re.fullmatch(r"mail +0 +1", mail)
    first, second = cli(*place.options, "queues", "ls", "--json").json["queues"]
    assert (first["name"], first["waiting"], first["running"]) == ("default", 2, 0)
    assert 0 <= first["oldest"] < 60
    assert second == {
        "name": "mail",
        "waiting": 0,
        "running": 1,
        "oldest": None,
        "pause": None,
    }


def test_a_queue_can_be_paused_and_resumed(cli: Run, place: Place, shop: Shop):
    assert (
        cli(*place.options, "queues", "pause", "mail").out == "Paused mail until it is resumed.\n"
    )
    [counts] = shop.sync.queues()
    assert counts.paused_for == float("inf")
    assert cli(*place.options, "queues", "ls").out.splitlines()[1].endswith("until resumed")
    [listed] = cli(*place.options, "queues", "ls", "--json").json["queues"]
    assert listed["pause"] == {"until": None, "reason": ""}
    assert cli(*place.options, "queues", "resume", "mail").out == "Resumed mail.\n"
    assert shop.sync.queues() == []


def test_a_queue_without_jobs_may_be_a_slip(cli: Run, place: Place, shop: Shop):
    shop.sync.enqueue(shop.resize.request("a"))
    result = cli(*place.options, "queues", "pause", "defualt")
    assert (result.code, result.out) == (0, "Paused defualt until it is resumed.\n")
    assert (
        "There is no job in the queue defualt, so check its name. Did you mean default?"
        in result.err
    )
    assert "Queues with jobs: default" in cli(*place.options, "queues", "pause", "x").err
    right = cli(*place.options, "queues", "pause", "default")
    assert "Warning" not in right.err
    assert cli(*place.options, "queues", "--json", "pause", "default").json["has_jobs"] is True
    result = cli(*place.options, "queues", "resume", "nope")
    assert (result.code, result.out) == (0, "nope was not paused.\n")
    assert "Paused queues: default, defualt, x." in result.err


def test_a_queue_whose_jobs_have_finished_is_known(cli: Run, place: Place, shop: Shop):
    shop.sync.enqueue(shop.resize.request("a")).cancel()
    assert "Warning" not in cli(*place.options, "queues", "pause", "default").err


@pytest.mark.parametrize("option", ["--for", "--until"])
@pytest.mark.parametrize("length", ["90s", "90", "1m30s"])
def test_a_pause_may_have_an_end(cli: Run, place: Place, shop: Shop, option: str, length: str):
    result = cli(*place.options, "queues", "pause", "mail", option, length)
    assert re.fullmatch(
        r"Paused mail until 20.{17} UTC, for (1 min 30 s|1 min 2\d s)\.\n", result.out
    )
    [counts] = shop.sync.queues()
    assert 60 < counts.paused_for <= 90
    assert re.search(r"for 1 min \d+ s$", cli(*place.options, "queues", "ls").out.splitlines()[1])


def test_options_may_stand_before_the_word_pause(cli: Run, place: Place, shop: Shop):
    document = cli("queues", *place.options, "--json", "pause", "mail", "--for", "60").json
    until = document["pause"]["until"]
    assert document == {
        "store": place.url,
        "namespace": place.namespace,
        "name": "mail",
        "pause": {"until": until, "reason": ""},
        "has_jobs": False,
    }
    assert datetime.fromisoformat(until) > datetime.now(UTC)
    assert [queue.queue for queue in shop.sync.queues()] == ["mail"]


def test_a_pause_ends_at_an_instant_and_has_a_reason(cli: Run, place: Place, shop: Shop):
    pause = (*place.options, "queues", "pause", "mail")
    result = cli(*pause, "--until", "2999-01-01T00:00Z", "--reason", "the server moves.")
    assert re.fullmatch(
        r"Paused mail until 2999-01-01 00:00:00 UTC, for \d+ d( \d+ h)?: the server moves\.\n",
        result.out,
    )
    listed = cli(*place.options, "queues", "ls").out.splitlines()[1]
    assert re.search(r"for \d+ d( \d+ h)?: the server moves$", listed)
    [queue] = cli(*place.options, "queues", "ls", "--json").json["queues"]
    assert queue["pause"]["reason"] == "the server moves."
    assert queue["pause"]["until"].startswith("2999-01-01T00:00")


@pytest.mark.parametrize("length", ["soon", "-1", "inf", ""])
def test_a_senseless_time_is_refused(cli: Run, place: Place, length: str):
    result = cli(*place.options, "queues", "pause", "mail", f"--for={length}")
    assert result.code == 2
    assert "is neither a length of time such as 2h" in result.err


def test_replicas_are_listed(cli: Run, place: Place, shop: Shop):
    assert cli(*place.options, "replicas", "ls").out.startswith("No worker has joined.")
    shop.sync.enqueue_many([shop.resize.request("a"), shop.resize.request("b")])
    shop.claim("web-1", ttl=600, slots=50, timers=["sweep"], timer_slots=20)
    shop.claim("web-2", ttl=0.05)
    wait_until(lambda: shop.sync.replicas()[1].expires_in <= 0, 10, "it expires")
    result = cli(*place.options, "replicas", "ls")
    assert result.code == 0
    header, first, second = result.out.splitlines()
    assert header.split() == [
        *("ID", "PROCESS", "STATE", "JOBS", "SLOTS", "QUEUES", "TIMERS"),
        *("VERSION", "MEMORY", "UP", "EXPIRES"),
    ]
    assert re.fullmatch(
        r"web-1 +web-1:4711 +alive +2 +50 +default, mail +1 +[\d.]+ m?s +(9 min \d+ s|10 min)",
        first,
    )
    assert re.fullmatch(r"web-2 +web-2:4711 +expired +0 +[\d.]+ m?s", second)
    alive, expired = cli(*place.options, "replicas", "ls", "--json").json["replicas"]
    assert (alive["id"], alive["state"], alive["jobs"]) == ("web-1", "alive", 2)
    assert alive["meta"] == {"host": "web-1", "pid": "4711"}
    assert alive["serving"]["queues"] == ["default", "mail"]
    assert (alive["serving"]["slots"], alive["serving"]["timers"]) == (50, ["sweep"])
    assert (alive["serving"]["idle_timers"], alive["serving"]["more_timers"]) == ([], 0)
    assert expired["serving"] is None
    assert alive["joined"].endswith("Z")
    assert expired["state"] == "expired"


def test_replicas_have_a_version_and_memory(cli: Run, place: Place, shop: Shop):
    store, call = engine_of(shop.sync._app).store, shop.sync._portal().call

    def join(name: str, memory: str, stats: Stats | None = None) -> None:
        meta = {"host": name, "pid": "7", "version": "1.2.3", "memory": memory}
        call(store.jobs.beat([name], ttl=600, meta=meta, stats=stats))

    body = encode_stats({}, replica="web-2", memory=1_500_000_000)
    join("web-1", "50400000")
    join("web-2", "50400000", Stats("web-2", body))
    join("web-3", "a lot")
    rows = cli(*place.options, "replicas", "ls").out.splitlines()[1:]
    for row, memory in zip(rows, (" 50 MB ", " 1.5 GB ", " 1.2.3 "), strict=True):
        assert " 1.2.3 " in row
        assert memory in row
    documents = cli(*place.options, "replicas", "ls", "--json").json["replicas"]
    assert [each["memory"] for each in documents] == [50_400_000, 1_500_000_000, None]
    assert {each["version"] for each in documents} == {"1.2.3"}
    assert documents[0]["meta"] == {"host": "web-1", "pid": "7"}


def test_recover_takes_jobs_from_who_is_gone(cli: Run, place: Place, shop: Shop):
    assert cli(*place.options, "recover").out == "Nothing to recover.\n"
    jobs = shop.sync.enqueue_many([shop.resize.request("a"), shop.resize.request("b")])
    jobs[1].cancel()
    shop.claim("web-1", ttl=600)
    assert cli(*place.options, "recover").out == "Nothing to recover.\n"
    jobs[1].requeue()
    shop.claim("web-2", ttl=0.05)
    wait_until(lambda: shop.sync.replicas()[1].expires_in <= 0, 10, "it expires")
    result = cli(*place.options, "recover")
    assert result.code == 0
    header, row, _, last = result.out.splitlines()
    assert header.split() == ["ID", "STATE", "LOSSES", "REPLICA"]
    assert row.split() == [jobs[1].id, "waiting", "1", "web-2"]
    assert last == "1 run again."
    assert (jobs[0].refresh().state, jobs[1].refresh().losses) == ("running", 1)


def test_recover_goes_by_the_loss_budget(cli: Run, place: Place, shop: Shop):
    job = shop.sync.enqueue(shop.resize.request("a"))
    shop.claim("web-1", ttl=0.05)
    wait_until(lambda: shop.sync.replicas()[0].expires_in <= 0, 10, "it expires")
    document = cli(*place.options, "recover", "--loss-budget", "0", "--json").json
    assert document["recovered"] == [
        {"id": job.id, "replica": "web-1", "state": "failed", "losses": 1}
    ]
    assert (job.refresh().state, job.reason) == ("failed", "lost")


@pytest.mark.usefixtures("forgotten_at_once")
def test_prune_removes_what_is_over(cli: Run, place: Place, shop: Shop):
    assert cli(*place.options, "prune").out == "Nothing to remove.\n"
    jobs = shop.sync.enqueue_many([shop.send.request(1), shop.send.request(2)])
    kept = shop.sync.enqueue(shop.resize.request("a"))
    for job in (*jobs, kept):
        job.cancel()
    assert cli(*place.options, "prune").out == "Removed 2 finished jobs.\n"
    assert [job.id for job in shop.sync.jobs()] == [kept.id]
    assert cli(*place.options, "prune", "--json").json["removed"] == 0


def test_a_requirement_of_the_app_does_not_keep_operators_out(
    cli: Run, place: Place, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TENURE_REQUIRE", "A")
    assert cli(*place.options, "prune").code == 0
    assert cli(*place.options, "recover").code == 0
