"""Jobs by the ends of their ids, and `requeue` and `cancel` of all that fit, on every store."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tenure.app import engine_of
from tenure.cli import target
from tenure.cli.jobs import selection
from tenure.core.jobs.records import NewJob
from tenure.stores.connect import connect
from tenure.testing import Faults, FaultyStore
from tests.cli.conftest import Place, Run
from tests.cli.shop import Shop, shop_at
from tests.cli.terminal import on_a_terminal, plain


@pytest.fixture
def shop(place: Place) -> Iterator[Shop]:
    with shop_at(place) as shop:
        yield shop


@pytest.fixture
def failed(shop: Shop) -> list[str]:
    """Four jobs: two of `resize` and one of `send` have failed, another one has succeeded."""
    resize = shop.resize.using(tags=["x"])
    jobs = shop.sync.enqueue_many(
        [resize.request("a"), shop.resize.request("b"), shop.send.request(1), resize.request("d")]
    )
    claimed = {record.id: record for record in shop.claim()}
    for job, error in zip(jobs[:3], ["disk full", "no such file", "Disk full"], strict=True):
        shop.fail(claimed[job.id], error)
    shop.settle(claimed[jobs[3].id], "succeeded", result=b"1")
    return [job.id for job in jobs]


def states(shop: Shop) -> dict[str, str]:
    return {job.id: job.state for job in shop.sync.jobs()}


@pytest.mark.parametrize(
    ("options", "matching"),
    [
        (("--state", "failed"), {0, 1, 2}),
        (("--task", "resize"), {0, 1}),
        (("--queue", "mail"), {2}),
        (("--tag", "x"), {0}),
        (("--error", "disk FULL"), {0, 2}),
        (("--error", "disk full", "--task", "resize"), {0}),
        (("--state", "succeeded"), {3}),
        (("--state", "failed", "--limit", "1"), {2}),
        (("--task", "nothing"), set()),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_requeue_takes_what_fits(cli: Run, place: Place, shop: Shop, failed, options, matching):
    before = states(shop)
    only = cli(*place.options, "jobs", "requeue", *options, "--dry-run", "--json")
    assert only.json["matching"] == len(matching)
    assert {job["id"] for job in only.json["jobs"]} == {failed[at] for at in matching}
    assert states(shop) == before
    result = cli(*place.options, "jobs", "requeue", *options, "--yes", "--json")
    assert result.code == 0
    assert [*result.json["jobs"]] == [
        {"id": failed[at], "outcome": "requeued"} for at in sorted(matching)
    ]
    now = states(shop)
    assert {at for at in range(4) if now[failed[at]] == "waiting"} == matching


def test_requeue_says_how_many(cli: Run, place: Place, shop: Shop, failed):
    dry = cli(*place.options, "jobs", "requeue", "--state", "failed", "--dry-run")
    assert (dry.code, dry.out) == (0, "3 failed jobs match: 2 of resize, 1 of send.\n")
    result = cli(*place.options, "jobs", "requeue", "--task", "send", "--yes")
    assert (result.code, result.out) == (0, "Requeued 1 job.\n")
    result = cli(*place.options, "jobs", "requeue", "--task", "send", "--yes")
    assert (result.code, result.out) == (0, "No job matches.\n")


def test_requeue_does_nothing_unasked(cli: Run, place: Place, shop: Shop, failed):
    result = cli(*place.options, "jobs", "requeue", "--state", "failed", answer="y\n")
    assert result.code == 2
    assert "without a terminal: add --yes" in result.err
    assert Counter(states(shop).values()) == {"failed": 3, "succeeded": 1}


def test_on_a_terminal_it_asks(file_place: Place):
    command = (*file_place.options, "jobs", "requeue", "--state", "cancelled")
    with shop_at(file_place) as shop:
        for request in (shop.resize.request("a"), shop.resize.request("b"), shop.send.request(1)):
            shop.sync.enqueue(request).cancel()
        no = plain(on_a_terminal(*command, answer="n\n"))
        assert "3 cancelled jobs match: 2 of resize, 1 of send.\nRequeue them? [y/N]: n\n" in no
        assert no.endswith("Error: nothing was requeued.\n")
        assert set(states(shop).values()) == {"cancelled"}
        yes = plain(on_a_terminal(*command, answer="y\n"))
        assert yes.endswith("Requeue them? [y/N]: y\nRequeued 3 jobs.\n")
        assert set(states(shop).values()) == {"waiting"}


def test_a_unique_key_that_is_taken_is_told(cli: Run, place: Place, shop: Shop):
    once = shop.resize.using(unique="cat")
    shop.sync.enqueue(once.request("cat.png")).cancel()
    shop.sync.enqueue(shop.resize.request("dog.png")).cancel()
    shop.sync.enqueue(once.request("cat.png"))
    result = cli(*place.options, "jobs", "requeue", "--state", "cancelled", "--yes")
    assert result.code == 2
    assert result.out.splitlines() == [
        "Requeued 1 job.",
        "Left 1 job as before: another job has the unique key by now.",
    ]


def test_cancel_takes_what_fits(cli: Run, place: Place, shop: Shop):
    running = shop.sync.enqueue(shop.send.request(1))
    shop.claim()
    waiting = shop.sync.enqueue(shop.send.request(2))
    other = shop.sync.enqueue(shop.resize.request("x"))
    dry = cli(*place.options, "jobs", "cancel", "--queue", "mail", "--dry-run").out
    assert dry == "2 waiting or running jobs match: 2 of send.\n"
    result = cli(*place.options, "jobs", "cancel", "--queue", "mail", "--yes", "--reason", "no")
    assert result.out.splitlines() == ["Cancelled 1 job.", "Asked 1 job to stop."]
    assert (waiting.refresh().state, waiting.reason) == ("cancelled", "no")
    assert running.refresh().record.cancelling
    assert other.refresh().state == "waiting"


def test_many_are_found_and_done_in_slices(cli: Run, place: Place, shop: Shop):
    shop.sync.enqueue_many([shop.resize.request("x") for _ in range(450)])
    result = cli(*place.options, "jobs", "cancel", "--task", "resize", "--yes")
    assert result.out == "Cancelled 450 jobs.\n"
    result = cli(
        *place.options, "jobs", "requeue", "--state", "cancelled", "--limit", "410", "--yes"
    )
    assert result.out == "Requeued 410 jobs.\n"
    [counts] = shop.sync.queues()
    assert counts.waiting == 410


def test_an_outage_says_how_far_it_went(cli: Run, file_place: Place, monkeypatch):
    faults = Faults()

    def connected(url: str, **how: Any) -> FaultyStore:
        return FaultyStore(connect(url, **how), faults)

    with shop_at(file_place) as shop:
        shop.sync.enqueue_many([shop.resize.request("x") for _ in range(250)])
        monkeypatch.setattr(target, "connect", connected)
        faults.lose_request("cancel")
        result = cli(*file_place.options, "jobs", "cancel", "--task", "resize", "--yes")
        assert (result.code, result.out) == (2, "")
        assert "\n0 of 250 were done before this error:\nError: " in result.err
        assert set(states(shop).values()) == {"waiting"}


def insert(shop: Shop, *ids: str) -> None:
    store, call = engine_of(shop.sync._app).store, shop.sync._portal().call
    call(store.jobs.insert([NewJob(id=id_, task="resize") for id_ in ids]))


ABSENT = "01890a5d-ac96-774b-bcce-b302099a8057"
OTHER = "01890a5d-ac97-774b-bcce-b312099a8057"


@pytest.mark.parametrize("end", [ABSENT[-8:], ABSENT[-12:], ABSENT[1:]])
def test_the_end_of_an_id_will_do(cli: Run, place: Place, shop: Shop, end: str):
    job = shop.sync.enqueue(shop.resize.request("x"))
    insert(shop, ABSENT)
    assert cli(*place.options, "jobs", "show", end, "--json").json["id"] == ABSENT
    result = cli(*place.options, "jobs", "cancel", end, job.id, ABSENT)
    assert (result.code, result.out) == (0, f"Cancelled {ABSENT}\nCancelled {job.id}\n")
    assert cli(*place.options, "jobs", "requeue", end).out == f"Requeued {ABSENT}\n"


def test_an_end_that_several_ids_have_is_refused(cli: Run, place: Place, shop: Shop):
    insert(shop, ABSENT, OTHER)
    for command in ("show", "cancel", "requeue"):
        result = cli(*place.options, "jobs", command, ABSENT[-8:])
        assert (result.code, result.out) == (2, "")
        several = f"several jobs end with '{ABSENT[-8:]}': {ABSENT}, {OTHER}. Write more of the id."
        assert several in result.err
    assert set(states(shop).values()) == {"waiting"}
    assert cli(*place.options, "jobs", "cancel", ABSENT[-12:]).out == f"Cancelled {ABSENT}\n"


@pytest.mark.parametrize("command", ["show", "cancel", "requeue"])
def test_an_end_that_no_id_has_is_told(cli: Run, place: Place, shop: Shop, command: str):
    insert(shop, ABSENT)
    result = cli(*place.options, "jobs", command, "b302099a8058")
    assert (result.code, result.out) == (2, "")
    assert "no job ends with 'b302099a8058', among the newest 1,000 of each state" in result.err


@pytest.mark.parametrize("command", ["show", "cancel", "requeue"])
def test_less_than_eight_characters_are_no_end(cli: Run, place: Place, shop: Shop, command: str):
    insert(shop, ABSENT)
    result = cli(*place.options, "jobs", command, "99a8057")
    assert (result.code, result.out) == (2, "")
    assert "'99a8057' is too short: give at least the last 8 characters of an id." in result.err
    assert "the last 8 characters of an id, or more" in cli("jobs", "--help").out


def test_one_end_that_is_too_short_leaves_the_others_alone(cli: Run, place: Place, shop: Shop):
    insert(shop, ABSENT)
    assert cli(*place.options, "jobs", "cancel", ABSENT, "99a8057").code == 2
    assert set(states(shop).values()) == {"waiting"}


def test_looking_for_an_end_is_bounded(cli: Run, place: Place, shop: Shop, monkeypatch):
    monkeypatch.setattr(selection, "PAGE", 2)
    insert(shop, ABSENT)
    jobs = shop.sync.enqueue_many([shop.resize.request("x") for _ in range(10)])
    assert "no job ends with" in cli(*place.options, "jobs", "show", ABSENT[-8:]).err
    jobs[0].cancel()
    shown = cli(*place.options, "jobs", "show", jobs[0].id[-8:], "--json")
    assert shown.json["state"] == "cancelled"
    assert cli(*place.options, "jobs", "show", ABSENT[-8:], "--json").json["id"] == ABSENT


def test_short_ids_on_a_narrow_terminal_only(cli: Run, file_place: Place):
    queue = "a-queue-with-a-long-name"
    with shop_at(file_place) as shop:
        job = shop.sync.enqueue(shop.resize.using(queue=queue).request("x"))
        [record] = shop.claim(queues=[queue])
        shop.fail(record, f"no such file: {'x' * 80}")
    command = (*file_place.options, "jobs", "ls")
    header, line = plain(on_a_terminal(*command)).splitlines()[-2:]
    assert line.split()[0] == job.id[-8:]
    assert max(len(header), len(line)) <= 80
    assert "ValueError: n" in line
    wide = plain(on_a_terminal(*command, COLUMNS="120")).splitlines()[-1]
    assert wide.startswith(f"{job.id} ")
    assert len(wide) <= 120
    assert cli(*command).out.splitlines()[-1].startswith(f"{job.id} ")
    assert job.id in on_a_terminal(*command, "--json")
