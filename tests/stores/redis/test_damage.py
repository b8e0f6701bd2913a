"""Foreign writes to Redis stop no queue, no list and no neighbour."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from tenure.core.jobs.records import Unique
from tenure.core.leases import Granted
from tenure.errors import StoreError
from tenure.stores.redis import RedisStore
from tests.contract.calls import ask, take
from tests.contract.commit_calls import create, look_at, plan, rewrite, send, tick_line
from tests.contract.job_calls import claim_ids, id_of, insert, join, new, start
from tests.rig.endings import leave
from tests.rig.fixtures import Endpoint
from tests.rig.lookups import decisions, stranded
from tests.stores.redis.inside import Looker, stores_of

JUNK = ["junk", "", b"\xff\xfe", "nan", "1e300", "\0"]


@pytest.fixture
async def store(valkey_server: Endpoint, namespace: str) -> AsyncIterator[RedisStore]:
    async with stores_of(namespace) as make:
        yield await make(valkey_server.url)


@pytest.fixture
def looker(valkey_server: Endpoint, namespace: str) -> Looker:
    return Looker(valkey_server, namespace)


@pytest.mark.parametrize(
    "place",
    [
        "default\0junk",
        "default\0",
        b"default\0\xff\xff",
        "default\x005junk\x00000",
        "default\0!junk",
        "default\0 junk",
        f"default\x005{'0' * 16}",
    ],
)
async def test_an_invalid_place_stops_no_queue(
    store: RedisStore, looker: Looker, place: str | bytes
):
    await join(store, "ann")
    await insert(store, new(1), new(2, delay=60), new(3))
    looker.redis.zadd(looker.job("waiting"), {place: 0})
    got: list[str] = []
    for _ in range(3):
        got += await claim_ids(store)
    assert got == [id_of(1), id_of(3)]
    assert await claim_ids(store) == []
    assert [(count.waiting, count.queue) for count in await store.jobs.counts()] == [(1, "default")]
    assert [damage.kind for damage in store.damage] == ["job"]


async def test_a_flood_of_junk_stops_no_queue(store: RedisStore, looker: Looker):
    await join(store, "ann")
    await insert(store, new(1))
    flood = {f"default\0 {number}": 0 for number in range(3000)}
    looker.redis.zadd(looker.job("waiting"), flood)
    got: list[str] = []
    for _ in range(10):
        got += await claim_ids(store)
    assert got == [id_of(1)]


@pytest.mark.parametrize("score", ["1e300", "-1", "inf"])
async def test_a_foreign_score_stops_no_queue(store: RedisStore, looker: Looker, score: str):
    await join(store, "ann")
    await insert(store, *(new(number) for number in range(1, 6)))
    (first, *_) = looker.redis.zrange(looker.job("waiting"), 2, 2)
    looker.redis.execute_command("ZADD", looker.job("waiting"), score, first)
    got = {id_ for _ in range(3) for id_ in await claim_ids(store)}
    assert got == {id_of(number) for number in range(1, 6)}


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize("name", ["paused", "running", "sleeping", "unique"])
async def test_junk_in_a_hash_stops_no_queue(
    store: RedisStore, looker: Looker, name: str, junk: str | bytes
):
    if (name, junk) == ("paused", "1e300"):
        pytest.skip("that is a pause, if a long one")
    await join(store, "ann")
    looker.redis.hset(looker.job(name), "default", junk)
    await insert(store, new(1, unique=Unique(key="default")))
    (job,) = (await store.jobs.claim("ann", 1, ["default"], 9)).jobs  # type: ignore[union-attr]
    assert await leave(store, "ann") == [job.id]
    assert [count.waiting for count in await store.jobs.counts()] == [1]


@pytest.mark.parametrize("name", ["fixed", "state"])
async def test_a_job_that_cannot_be_read_is_named_with_both_of_its_hashes(
    store: RedisStore, looker: Looker, name: str
):
    await insert(store, new(1))
    looker.redis.hset(looker.job(name), id_of(1), "junk")
    assert await store.jobs.get([id_of(1)]) == [None]
    (damage,) = store.damage
    assert damage.kind == "job"
    assert looker.job("fixed") in damage.where
    assert looker.job("state") in damage.where


async def test_an_unreadable_pause_pauses_nothing_and_is_reported(
    store: RedisStore, looker: Looker
):
    looker.redis.hset(looker.job("paused"), "default", "junk")
    await store.jobs.counts()
    assert [(damage.kind, damage.name) for damage in store.damage] == [("queue", "default")]


async def test_names_that_are_not_utf_8_break_no_list(store: RedisStore, looker: Looker):
    await join(store, "ann")
    await insert(store, new(1))
    await take(store, "lock", "ann")
    await create(store)
    for index in ("waiting", "unfinished", "held", "joined"):
        looker.redis.zadd(looker.job(index), {b"\xff\xfe\0x": 0})
    for key in ("names", "timer:names"):
        looker.redis.zadd(f"{{tenure:{store.namespace}}}:{key}", {b"a\xfe": 0})
    assert [job.id for job in (await store.jobs.find()).jobs] == [id_of(1)]
    assert [count.queue for count in await store.jobs.counts()] == ["default"]
    assert [replica.id for replica in await store.jobs.replicas()] == ["ann"]
    assert [lease.key for lease in await store.leases.find()] == ["lock"]
    assert [record.name for record in (await store.schedules.read()).records] == ["sync"]
    assert {damage.kind for damage in store.damage} == {"queue", "replica", "lock", "timer"}


@pytest.mark.parametrize("junk", [*JUNK, "a hash"])
async def test_a_lock_that_cannot_be_read_is_held_and_named_and_harms_no_other(
    store: RedisStore, looker: Looker, junk: str | bytes
):
    bad, good = await take(store, "bad", "ann"), await take(store, "good", "ann")
    head = f"{{tenure:{store.namespace}}}:head:bad"
    looker.redis.delete(head)
    if junk == "a hash":
        looker.redis.hset(head, "a", "b")
    else:
        looker.redis.set(head, junk)
    assert await store.leases.renew([bad, good]) == [None, True]
    assert [lease.key for lease in await store.leases.find()] == ["good"]
    assert [(damage.kind, damage.name, damage.where) for damage in store.damage] == [
        ("lock", "bad", head)
    ]
    await store.prune(idle=0.0)
    if junk != "a hash":
        with pytest.raises(StoreError, match="'bad' cannot be acquired"):
            await ask(store, "bad", "ben")
    assert await store.leases.release([bad, good]) == [False, True]
    looker.redis.delete(head)
    assert isinstance(await ask(store, "bad", "ben"), Granted)


@pytest.mark.parametrize("junk", JUNK)
async def test_unreadable_details_cost_only_their_own_holder_its_place(
    store: RedisStore, looker: Looker, junk: str | bytes
):
    leases = [await take(store, "pool", holder, limit=3) for holder in ("ann", "ben")]
    looker.redis.hset(f"{{tenure:{store.namespace}}}:info:pool", "ann", junk)
    assert (await store.leases.renew(leases))[1] is True
    assert isinstance(await ask(store, "pool", "cid", limit=3), Granted)
    assert {lease.holder for lease in await store.leases.find()} >= {"ben", "cid"}


async def test_a_holder_with_damaged_details_takes_no_place_of_the_others(
    store: RedisStore, looker: Looker
):
    await take(store, "pool", "ann", limit=2)
    ben = await take(store, "pool", "ben", limit=2)
    await ask(store, "pool", "cid", limit=2, waiting=60)
    looker.redis.hset(f"{{tenure:{store.namespace}}}:info:pool", "ann", "junk")
    # Its fence is lost, so it comes as a newcomer: behind one holder and one waiter.
    answer = await ask(store, "pool", "ann", limit=2)
    assert not isinstance(answer, Granted)
    assert await store.leases.renew([ben]) == [True]
    assert isinstance(await ask(store, "pool", "cid", limit=2), Granted)


def packed(*words: object) -> bytes:
    """Return values as scripts store them."""
    return b"".join(msgspec.msgpack.encode(word) for word in words)


# As `read_schedule` in lua/schedules.lua takes them, but for one value.
DAMAGED = {
    "version": (7, "standing", "ruler", 0, "", 0, 0),
    "standing": ("v", None, "ruler", 0, "", 0, 0),
    "ruler": ("v", "standing", False, 0, "", 0, 0),
    "last run": ("v", "standing", "ruler", 1e300, "", 0, 0),
    "last job": ("v", "standing", "ruler", 0, 0, 0, 0),
    "fence": ("v", "standing", "ruler", 0, "", -1, 0),
    "lines": ("v", "standing", "ruler", 0, "", 0, 0.5),
    "lines that Lua cannot count down": ("v", "standing", "ruler", 0, "", 0, 10**17),
    "one too few": ("v", "standing", "ruler", 0, "", 0),
}
# Beside a byte that no text has: overlong, a surrogate, cut off, past the last character, and what
# would be a character without the one in its middle.
NO_TEXT = (
    b"\xff",
    b"\xc0\xaf",
    b"\xed\xa0\x80",
    b"\xe2\x82",
    b"\xf4\x90\x80\x80",
    b"\xe2\xc2\xa0\x82\xac",
)
RECORDS = {
    **{repr(junk): junk for junk in JUNK},
    **{name: packed(*words) for name, words in DAMAGED.items()},
    **{
        f"standing-{junk.hex()}": b"\xa1v"
        + bytes([0xA0 + len(junk)])
        + junk
        + packed("", 0, "", 0, 0)
        for junk in NO_TEXT
    },
}


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
async def test_a_timer_that_cannot_be_read_is_replaced_and_its_neighbour_goes_on(
    store: RedisStore, looker: Looker, record: str | bytes
):
    bad, good = await create(store, "bad"), await create(store, "good")
    looker.redis.hset(looker.timer("schedules"), "bad", record)
    assert (await store.schedules.declare([("bad", "ruler"), ("good", "ruler")])).lost == ["bad"]
    assert (await send(store, plan(bad))).heads[0].version == ""
    assert (await rewrite(store, good, standing="moved")).standing == "moved"
    assert (await create(store, "bad", definition=None)).definition == ""
    reports = [(report.kind, report.name, report.where) for report in store.damage]
    assert reports == [("timer", "bad", looker.timer("schedules"))]


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
async def test_a_list_of_timers_reports_where_a_damaged_timer_is_stored(
    store: RedisStore, looker: Looker, record: str | bytes
):
    await create(store, "bad")
    await create(store, "good")
    looker.redis.hset(looker.timer("schedules"), "bad", record)
    assert [timer.name for timer in (await store.schedules.read()).records] == ["good"]
    assert await decisions(store, "bad") == []
    reports = [(report.kind, report.name, report.where) for report in store.damage]
    assert reports == [("timer", "bad", looker.timer("schedules"))]


async def test_a_page_of_timers_is_filled_though_some_cannot_be_read(
    store: RedisStore, looker: Looker
):
    names = [f"timer {number}" for number in range(8)]
    for name in names:
        await create(store, name)
    for name in names[:3]:
        looker.redis.hset(looker.timer("schedules"), name, "junk")
    page = await store.schedules.read(limit=3)
    assert [timer.name for timer in page.records] == names[3:6]


async def test_a_definition_that_cannot_be_read_is_empty_and_reported(
    store: RedisStore, looker: Looker
):
    whole = await create(store)
    looker.redis.hset(looker.timer("definitions"), "sync", b"\xff\xfe")
    assert await look_at(store) == msgspec.structs.replace(whole, definition="")
    assert [(report.kind, report.name) for report in store.damage] == [("timer", "sync")]
    assert (await rewrite(store, whole, definition="mended")).definition == "mended"


@pytest.mark.parametrize("score", ["1e300", "-inf", "inf", "1.5"])
async def test_a_foreign_declaration_stops_no_timer(store: RedisStore, looker: Looker, score: str):
    record = await create(store)
    looker.redis.execute_command("ZADD", looker.timer("declared"), score, "sync")
    await look_at(store)
    assert (await store.schedules.declare([("sync", "ruler")])).lost == []
    assert abs((await look_at(store)).declared - (await store.ping()).now) < 60_000_000
    await rewrite(store, record)


LINES = {
    **{repr(junk): junk for junk in JUNK},
    "ticks": packed("same", 1, 2, -1, 3, "body"),
    "last": packed("same", 1, None, 1, 3, "body"),
    "no UTF-8": packed("same", 1, 2, 1, 3, "body").replace(b"body", b"b\xffdy"),
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
async def test_a_line_that_cannot_be_read_is_left_out_and_never_extended(
    store: RedisStore, looker: Looker, line: str | bytes
):
    record = await create(store)
    first, second = tick_line("first", like="a"), tick_line("second", like="same")
    await send(store, plan(record, lines=(first, second)))
    looker.redis.hset(looker.timer("decisions"), "sync\x002", line)
    assert (await look_at(store)).latest is None
    await send(store, plan(record, lines=(tick_line("third", like="same"),)))
    assert [decision.body for decision in await decisions(store, "sync")] == ["third", "first"]
    assert [(report.kind, report.name) for report in store.damage] == [("decision", "sync")]


async def test_one_replica_that_cannot_be_read_keeps_no_other_from_beating(
    store: RedisStore, looker: Looker
):
    await start(store, new(1), replica="bad")
    await join(store, "good")
    looker.redis.hset(looker.job("replicas"), "bad", "junk")
    looker.redis.zadd(looker.job("renewed"), {"bad": 9e15})
    bad, good = await store.jobs.beat(["bad", "good"], ttl=10)
    assert bad is None
    assert good is not None
    assert [replica.id for replica in await store.jobs.replicas()] == ["good"]
    assert [(job.id, job.why) for job in await stranded(store)] == [(id_of(1), "orphan")]


@pytest.mark.parametrize("ttl", ["junk", -1, 1e300, None])
async def test_a_replica_with_an_impossible_ttl_keeps_no_other_from_beating(
    store: RedisStore, looker: Looker, ttl: object
):
    await join(store, "bad")
    await join(store, "good")
    now = (await store.ping()).now
    looker.redis.hset(looker.job("replicas"), "bad", packed(now, now, ttl, 0, 0, ""))
    bad, good = await store.jobs.beat(["bad", "good"], ttl=10)
    assert bad is None
    assert good is not None


async def test_a_job_that_was_set_aside_frees_its_unique_key(store: RedisStore, looker: Looker):
    """What is written once cannot be read, but the rest of the record names the key."""
    await join(store, "ann")
    await insert(store, new(1, unique=Unique(key="welcome")))
    looker.redis.hset(looker.job("fixed"), id_of(1), "junk")
    assert await claim_ids(store) == []
    assert [(job.id, job.why) for job in await stranded(store)] == [(id_of(1), "unreadable")]
    await insert(store, new(2, unique=Unique(key="welcome")))
    assert await claim_ids(store) == [id_of(2)]
