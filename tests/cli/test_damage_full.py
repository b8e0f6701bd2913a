"""Damaged records on a Redis server that is full: `tenure doctor` and the lists still find them."""

import pytest
import redis

from tenure.stores.contract import Store
from tests.cli.conftest import Place, Run
from tests.cli.examination import examined
from tests.cli.test_damage import BAD, GOOD, LISTS, fill, on, run_one, spoil_all
from tests.rig.fixtures import PrivateValkey
from tests.security.hands import Hand

HOUR = 3600


@pytest.fixture
def place(private_valkey: PrivateValkey) -> Place:
    """A namespace on a server of its own."""
    return Place("redis", private_valkey().url, "tenure")


@pytest.fixture
def damaged(place: Place) -> Hand:
    """A full server with records that cannot be read, and indexes that want to be mended."""
    on(place, fill)
    on(place, run_one)
    on(place, crowd)
    hand = Hand(place, place.url)
    spoil_all(hand)
    for index in ("unfinished", "waiting", "held", "tags"):
        key = f"{hand.tag}job:{index}"
        for member in ("-", "z") if index == "unfinished" else ():
            hand.redis("ZADD", key, "5", member)
        for member in list(hand.redis("ZRANGE", key, "0", "-1")):  # type: ignore[call-overload]
            hand.redis("ZADD", key, "7", member)
    hand.redis("HDEL", f"{hand.tag}info:pool", "ben")  # the next look mends the crowd
    with redis.Redis.from_url(place.url) as operator:
        operator.config_set("maxmemory", 1)
    return hand


async def crowd(store: Store) -> None:
    """Have a semaphore with two holders."""
    for holder in ("ann", "ben"):
        await store.leases.acquire("pool", holder=holder, limit=3, ttl=HOUR, meta={})


def test_the_doctor_finds_damage_on_a_full_server(cli: Run, place: Place, damaged: Hand):
    code, findings = examined(cli, *place.options)
    assert code == 2
    assert findings["memory"].level == "error"
    for kind in ("job", "lock", "replica", "timer"):
        assert findings[f"unreadable {kind}"].level == "warning", kind
    assert "jobs" not in findings
    document = cli(*place.options, "doctor", "--json").json
    assert {(record["kind"], record["name"]) for record in document["unreadable"]} >= {
        *(("job", BAD), ("lock", "bad-lock"), ("replica", "bad-replica")),
        ("timer", "bad-timer"),
    }


@pytest.mark.parametrize(("words", "kind", "bad", "good"), LISTS)
def test_a_list_on_a_full_server_names_what_cannot_be_read(
    cli: Run, place: Place, damaged: Hand, words: tuple[str, ...], kind: str, bad: str, good: str
):
    result = cli(*place.options, *words, "--json")
    assert result.code == 0, result.err
    assert good in result.out
    names = {(record["kind"], record["name"]) for record in result.json["unreadable"]}
    assert (kind, bad) in names
    assert ("lock", "pool") not in names


def test_a_damaged_job_is_deleted_on_a_full_server(cli: Run, place: Place, damaged: Hand):
    result = cli(*place.options, "jobs", "delete", BAD, GOOD)
    assert f"Deleted {BAD}" in result.out
    assert "unreadable job" not in examined(cli, *place.options)[1]
