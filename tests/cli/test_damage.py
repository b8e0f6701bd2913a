"""What operators see of records that cannot be read: everything else, and their names."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tenure.core.clock import SystemClock
from tenure.core.jobs.records import NewJob
from tenure.core.leases import Granted
from tenure.core.schedules.records import Commit, Expected, Write
from tenure.core.schedules.registration import Registration
from tenure.runtime.timers.scheduling import Scheduling
from tenure.stores.connect import connect
from tenure.stores.contract import Store
from tests.cli.conftest import Place, Run
from tests.cli.examination import examined
from tests.security.hands import Hand, hand_of

BAD, GOOD, LOST = (f"01890a5d-ac96-774b-bcce-00000000000{number}" for number in range(3))


@pytest.fixture
def hand(request: pytest.FixtureRequest, place: Place) -> Hand:
    return hand_of(request, place)


def on(place: Place, work: Callable[[Store], Awaitable[object]]) -> None:
    """Do something with an open store."""

    async def run() -> None:
        store = connect(place.url, namespace=place.namespace, clock=SystemClock())
        await store.open()
        try:
            await work(store)
        finally:
            await store.close()

    asyncio.run(run())


async def fill(store: Store) -> None:
    """Have two of each kind."""
    for name in ("bad", "good"):
        await store.leases.acquire(f"{name}-lock", holder="ann", limit=1, ttl=600, meta={})
        await store.jobs.beat([f"{name}-replica"], ttl=600, meta={})
        digest = f"{name}-timer"
        registration = Registration(name=digest, digest=digest, calendar=digest, definition=b"{}")
        await Scheduling(store).register([registration])
    await store.jobs.insert([NewJob(id=id_, task="t", queue="good-queue") for id_ in (BAD, GOOD)])


async def run_one(store: Store) -> None:
    """Have a job that runs."""
    await store.jobs.beat(["lost-replica"], ttl=600, meta={})
    await store.jobs.insert([NewJob(id=LOST, task="t", queue="lost-queue")])
    assert await store.jobs.claim("lost-replica", 1, ["lost-queue"], 9) is not None


def spoil_all(hand: Hand) -> None:
    hand.spoil_job(BAD)
    hand.spoil_lock("bad-lock")
    hand.spoil_replica("bad-replica")
    spoil_timer(hand, "bad-timer")


def spoil_timer(hand: Hand, name: str) -> None:
    """Let no store be able to read the record of a timer."""
    if hand.family == "redis":
        hand.redis("HSET", f"{hand.tag}timer:schedules", name, "no record")
    elif hand.family == "sqlite":
        hand.sql("UPDATE tenure_schedule SET declared = 'lately' WHERE name = %s", name)
    else:
        change = "UPDATE tenure.schedule SET declared = 9223372036854775807"
        hand._unguarded("schedule", f"{change} WHERE namespace = %s AND name = %s", name)


async def spoil_document(store: Store) -> None:
    """Have a timer that every store reads, and whose document makes no sense."""
    [record] = (await store.schedules.read(["bad-timer"])).records
    write = Write("bad-timer", "no standing", ruler=record.ruler)
    expects = (Expected("bad-timer", record.version),)
    [answer] = await store.schedules.commit(
        [Commit(id=BAD, name="bad-timer", expects=expects, writes=(write,))]
    )
    assert answer.outcome == "done"


LISTS = [
    (("jobs", "ls"), "job", BAD, GOOD),
    (("locks", "ls"), "lock", "bad-lock", "good-lock"),
    (("replicas", "ls"), "replica", "bad-replica", "good-replica"),
    (("timers", "ls"), "timer", "bad-timer", "good-timer"),
]


@pytest.mark.parametrize(("words", "kind", "bad", "good"), LISTS)
def test_a_list_shows_the_others_and_names_what_cannot_be_read(
    cli: Run, place: Place, hand: Hand, words: tuple[str, ...], kind: str, bad: str, good: str
):
    on(place, fill)
    spoil_all(hand)
    result = cli(*place.options, *words, "--json")
    assert result.code == 0
    assert good in result.out
    [named] = result.json["unreadable"]
    assert (named["kind"], named["name"]) == (kind, bad)
    assert named["why"]
    assert named["where"]
    result = cli(*place.options, *words)
    assert result.code == 0
    assert good[-8:] in result.out
    assert bad not in result.out
    assert result.err.endswith(
        f"\nCannot be read, so not shown: {kind} {bad}. 'tenure doctor' explains why.\n"
    )


def test_a_timer_whose_document_cannot_be_read_is_named(cli: Run, place: Place):
    on(place, fill)
    on(place, spoil_document)
    result = cli(*place.options, "timers", "ls", "--json")
    assert [timer["name"] for timer in result.json["timers"]] == ["good-timer"]
    [named] = result.json["unreadable"]
    assert (named["kind"], named["name"]) == ("timer", "bad-timer")
    _, findings = examined(cli, *place.options)
    assert "bad-timer" in findings["unreadable timer"].detail
    on(place, fill)  # as a worker that declares it
    result = cli(*place.options, "timers", "ls", "--json")
    assert [timer["name"] for timer in result.json["timers"]] == ["bad-timer", "good-timer"]
    assert "unreadable" not in result.json


def test_a_queue_whose_pause_cannot_be_read_is_shown_and_named(cli: Run, place: Place, hand: Hand):
    if place.family == "postgres":
        return  # a column of numbers has numbers

    async def pause(store: Store) -> None:
        await fill(store)
        await store.jobs.pause("good-queue")

    on(place, pause)
    hand.spoil_pause("good-queue")
    result = cli(*place.options, "queues", "ls", "--json")
    assert result.code == 0
    assert [queue["name"] for queue in result.json["queues"]] == ["good-queue"]
    [named] = result.json["unreadable"]
    assert (named["kind"], named["name"]) == ("queue", "good-queue")


def test_a_list_without_damage_says_nothing_of_it(cli: Run, place: Place):
    on(place, fill)
    result = cli(*place.options, "locks", "ls", "--json")
    assert "unreadable" not in result.json
    assert "Cannot be read" not in cli(*place.options, "locks", "ls").err


def test_the_doctor_names_all_and_says_what_to_do(cli: Run, place: Place, hand: Hand):
    on(place, fill)
    spoil_all(hand)
    code, findings = examined(cli, *place.options)
    assert code == 0
    for kind, name in (
        *(("job", BAD), ("lock", "bad-lock"), ("replica", "bad-replica")),
        ("timer", "bad-timer"),
    ):
        finding = findings[f"unreadable {kind}"]
        assert finding.level == "warning"
        assert name in finding.detail


def test_the_doctor_tells_programs_of_every_record(cli: Run, place: Place, hand: Hand):
    on(place, fill)
    spoil_all(hand)
    document: Any = cli(*place.options, "doctor", "--json").json
    assert {(record["kind"], record["name"]) for record in document["unreadable"]} == {
        *(("job", BAD), ("lock", "bad-lock"), ("replica", "bad-replica")),
        ("timer", "bad-timer"),
    }


async def claim_all(store: Store) -> None:
    """Have a worker come across the job."""
    await store.jobs.claim("good-replica", 1, ["good-queue"], 9)


def test_a_job_that_was_set_aside_is_shown_as_such(cli: Run, place: Place, hand: Hand):
    on(place, fill)
    hand.spoil_job(BAD)
    on(place, claim_all)
    result = cli(*place.options, "jobs", "show", BAD)
    assert result.code != 0
    assert f"job {BAD}. Its record cannot be read, so it was set aside" in result.err
    assert "Enqueue it again" in result.err
    _, findings = examined(cli, *place.options)
    assert BAD in findings["set aside"].detail


def test_a_job_that_cannot_be_read_is_not_unknown(cli: Run, place: Place, hand: Hand):
    on(place, fill)
    hand.spoil_job(BAD)
    result = cli(*place.options, "jobs", "show", BAD)
    assert result.code != 0
    assert f"Cannot read job {BAD}" in result.err


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("is_aside", [True, False])
def test_a_job_that_cannot_be_read_is_deleted(
    cli: Run, place: Place, hand: Hand, is_aside: bool, whole: bool
):
    on(place, fill)
    hand.spoil_job(BAD)
    if is_aside:
        on(place, claim_all)
    result = cli(*place.options, "jobs", "show", BAD)
    assert f"Remove it: tenure jobs delete {BAD}\n" in result.err
    _, findings = examined(cli, *place.options)
    subject = "set aside" if is_aside else "unreadable job"
    assert "tenure jobs delete ID" in findings[subject].advice
    result = cli(*place.options, "jobs", "delete", BAD if whole else BAD[-9:])
    assert (result.code, result.out) == (0, f"Deleted {BAD}\n")
    _, findings = examined(cli, *place.options)
    assert subject not in findings
    result = cli(*place.options, "jobs", "delete", GOOD, "--json")
    # A running job is refused, a waiting one deleted.
    outcome = "running" if is_aside else "deleted"
    assert result.json["jobs"] == [{"id": GOOD, "outcome": outcome}]
    assert result.code == (2 if is_aside else 0)
    assert "unreadable" not in result.json


def test_a_job_on_a_replica_that_is_not_known_is_found(cli: Run, place: Place, hand: Hand):
    on(place, run_one)
    hand.forget_replica("lost-replica")
    result = cli(*place.options, "jobs", "show", LOST)
    assert result.code == 0
    assert "tenure recover" in result.out
    _, findings = examined(cli, *place.options)
    assert findings["orphans"].level == "warning"
    assert LOST in findings["orphans"].detail
    document: Any = cli(*place.options, "doctor", "--json").json
    assert [(job["id"], job["why"]) for job in document["stranded"]] == [(LOST, "orphan")]
    assert cli(*place.options, "recover").code == 0
    _, findings = examined(cli, *place.options)
    assert "orphans" not in findings


def test_a_lock_that_cannot_be_read_is_not_free(cli: Run, place: Place, hand: Hand):
    on(place, fill)
    hand.spoil_lock("bad-lock")
    advice = "'tenure locks release bad-lock --force'"
    for words in (("show", "bad-lock"), ("release", "bad-lock", "--all", "--yes")):
        result = cli(*place.options, "locks", *words)
        assert (result.code, result.out) == (2, "")
        assert "Cannot read 'bad-lock'" in result.err
        assert advice in result.err
    result = cli(*place.options, "locks", "ls", "bad")
    assert (result.code, result.out) == (0, "No readable lock is held.\n")
    assert "lock bad-lock" in result.err
    _, findings = examined(cli, *place.options)
    assert "tenure locks release NAME --force" in findings["unreadable lock"].advice


def test_a_lock_that_cannot_be_read_is_removed_by_force(cli: Run, place: Place, hand: Hand):
    on(place, fill)
    hand.spoil_lock("bad-lock")
    result = cli(*place.options, "locks", "release", "bad-lock", "--force", "--yes")
    assert (result.code, result.out) == (0, "Removed bad-lock.\n")
    assert "unreadable lock" not in examined(cli, *place.options)[1]
    result = cli(*place.options, "locks", "release", "bad-lock", "--force", "--yes", "--json")
    assert (result.code, result.json["removed"]) == (0, False)

    async def take(store: Store) -> None:
        answer = await store.leases.acquire("bad-lock", holder="ben", limit=1, ttl=60, meta={})
        assert isinstance(answer, Granted)

    on(place, take)


def test_force_is_not_for_a_lock_that_can_be_read(cli: Run, place: Place, hand: Hand):
    on(place, fill)
    hand.spoil_lock("bad-lock")
    result = cli(*place.options, "locks", "release", "good-lock", "--force", "--yes")
    assert result.code == 2
    assert "--fence N, or --all" in result.err
    assert "good-lock" in cli(*place.options, "locks", "ls").out


def test_all_releases_what_can_be_read_and_names_the_rest(cli: Run, place: Place, hand: Hand):
    if place.family == "redis":
        return  # a semaphore is readable as a whole or not at all

    async def share(store: Store) -> None:
        for holder in ("ann", "ben"):
            await store.leases.acquire("pool", holder=holder, limit=2, ttl=600, meta={})

    on(place, share)
    if place.family == "sqlite":
        hand.sql("UPDATE tenure_lease SET ttl = x'00' WHERE key = 'pool' AND holder = 'ann'")
    else:
        change = "UPDATE tenure.lease SET ttl = 92233720368547758 WHERE namespace = %s AND key = %s"
        hand._unguarded("lease", f"{change} AND holder = 'ann'", "pool")
    result = cli(*place.options, "locks", "release", "pool", "--all", "--yes")
    assert result.code == 2
    assert "of ben" in result.out
    assert "'tenure locks release pool --force'" in result.err
    result = cli(*place.options, "locks", "release", "pool", "--force", "--yes")
    assert (result.code, result.out) == (0, "Removed pool.\n")


def test_a_program_gets_a_document_and_nothing_else(shell: Run, place: Place, hand: Hand):
    on(place, fill)
    hand.spoil_lock("bad-lock")
    result = shell(*place.options, "locks", "ls", "--json")
    assert result.code == 0
    assert result.json["unreadable"][0]["name"] == "bad-lock"
