"""The Redis store alone: its connections, its scripts, its leftovers."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import redis

from tenure.core.clock import Clock, SystemClock
from tenure.core.jobs.records import Pruned
from tenure.core.leases import Grade, Lease
from tenure.errors import StoreError, StoreUnavailable
from tenure.stores.redis import RedisStore
from tenure.stores.redis.scripts import SCRIPTS
from tenure.testing import ManualClock
from tests.contract.calls import ask, be_refused, take
from tests.contract.job_calls import insert, new
from tests.rig.fixtures import Endpoint, PrivateValkey, ProxyTo
from tests.rig.servers import Valkey
from tests.rig.sizes import SIZE
from tests.rig.wait import wait_until_async
from tests.stores.redis.inside import Looker

Open = Callable[..., Awaitable[RedisStore]]

DAY = 86_400


@pytest.fixture
async def open_store(namespace: str) -> AsyncIterator[Open]:
    """Open stores that are closed after the test; nothing of them may be left then."""
    noise: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: noise.append(context))
    before = asyncio.all_tasks()
    async with AsyncExitStack() as stack:

        async def make(url: str, clock: Clock | None = None) -> RedisStore:
            store = RedisStore(url, namespace=namespace, clock=clock or SystemClock())
            stack.push_async_callback(store.close)
            await store.open()
            return store

        yield make
    assert asyncio.all_tasks() - before <= {asyncio.current_task()}
    gc.collect()
    assert not noise


def client(server: Endpoint, **options: Any) -> redis.Redis:
    return redis.Redis.from_url(server.url, **options)


def keys_of(server: Endpoint, namespace: str) -> set[str]:
    with client(server, decode_responses=True) as looker:
        tag = f"{{tenure:{namespace}}}:"
        return {key.removeprefix(tag) for key in looker.scan_iter(f"{tag}*")}


# What is left on the server.


async def test_released_keys_leave_nothing_behind(
    open_store: Open, valkey_server: Endpoint, namespace: str
):
    store = await open_store(valkey_server.url)
    alone = await take(store, "lock", "ann")
    crowd = [await take(store, "semaphore", holder, limit=3) for holder in "abc"]
    await be_refused(store, "semaphore", "ben", limit=3, waiting=60)
    assert len(keys_of(valkey_server, namespace)) == 8
    await store.leases.release([alone, *crowd, Lease(key="semaphore", holder="ben")])
    assert keys_of(valkey_server, namespace) == {"format", "fence"}


async def test_the_server_collects_what_crashed_holders_left_but_not_while_it_may_be_live(
    open_store: Open, valkey_server: Endpoint, namespace: str
):
    clock = ManualClock()
    store = await open_store(valkey_server.url, clock)
    await take(store, "lock", "ann", ttl=100)
    await take(store, "semaphore", "long", limit=3, ttl=30 * DAY)
    await take(store, "semaphore", "short", limit=3, ttl=1)
    clock.shift(2)
    await take(store, "semaphore", "other", limit=3, ttl=1)
    await be_refused(store, "semaphore", "ben", limit=1, waiting=3)
    with client(valkey_server, decode_responses=True) as looker:
        tag = f"{{tenure:{namespace}}}:"
        left = {
            key.removeprefix(tag): looker.pttl(key) / 1000 for key in looker.scan_iter(f"{tag}*")
        }
    assert DAY <= left.pop("head:lock") <= DAY + 101
    for name in ("head", "places", "info", "patience"):
        assert 31 * DAY - 60 <= left.pop(f"{name}:semaphore") <= 31 * DAY + 120
    assert left == {"format": -0.001, "fence": -0.001, "names": -0.001}


async def test_the_server_never_collects_a_part_of_a_crowd_before_its_head(
    open_store: Open, valkey_server: Endpoint, namespace: str
):
    clock = ManualClock()
    store = await open_store(valkey_server.url, clock)
    held = [await take(store, "key", holder, limit=2, ttl=DAY / 10) for holder in "ab"]
    with client(valkey_server) as looker:
        tag = f"{{tenure:{namespace}}}:"

        def left(*parts: str) -> float:
            return min(looker.pttl(f"{tag}{part}:key") / 1000 for part in parts)

        # The server's own time stands still, so the rest has to be told what has passed.
        for number in range(1, 10):
            clock.shift(DAY / 20)
            assert await store.leases.renew(held) == [True, True]
            passed = number * DAY / 20
            assert DAY / 2 < left("head") <= left("places", "info") - passed


@pytest.mark.parametrize(
    "lost", [("places",), ("info",), ("patience",), ("info", "patience"), ("places", "patience")]
)
async def test_leases_that_one_key_still_tells_of_keep_their_places(
    open_store: Open, valkey_server: Endpoint, namespace: str, lost: tuple[str, ...]
):
    clock = ManualClock()
    store = await open_store(valkey_server.url, clock)
    held = [await take(store, "key", holder, limit=2, ttl=60) for holder in "ab"]
    await be_refused(store, "key", "ben", limit=2, waiting=30)
    lose(valkey_server, namespace, *lost)
    assert 0 < (await be_refused(store, "key", "cid", limit=2, waiting=3)).retry_in <= 60
    assert sorted(lease.holder for lease in await store.leases.find() if not lease.waiting) == [
        "a",
        "b",
    ]
    renewed = await store.leases.renew(held)
    assert renewed == [("info" not in lost)] * 2  # without its fence, the store cannot be sure
    await store.leases.release([Lease(key="key", holder="cid"), Lease(key="key", holder="ben")])
    clock.shift(60)
    after = [await take(store, "key", holder, limit=2) for holder in "cd"]
    assert min(lease.fence for lease in after) > max(lease.fence for lease in held)
    await store.leases.release(after)
    assert keys_of(valkey_server, namespace) == {"format", "fence"}


@pytest.mark.parametrize("waiting", [0, 60])
async def test_leases_that_no_key_tells_of_have_ended(
    open_store: Open, valkey_server: Endpoint, namespace: str, waiting: float
):
    store = await open_store(valkey_server.url)
    held = [await take(store, "key", holder, limit=2) for holder in "ab"]
    await be_refused(store, "key", "ben", limit=2, waiting=waiting)
    uses: list[tuple[Callable[[], Awaitable[object]], object]] = [
        (lambda: store.leases.renew(held), [False, False]),
        (lambda: store.leases.release(held), [False, False]),
        (store.leases.find, []),
        (lambda: store.prune(idle=0), Pruned(1, 0, more=False)),
        (lambda: store.leases.mark("mark", held[0], "v1"), False),
    ]
    for use, answer in uses:
        lose(valkey_server, namespace, "places", "info", "patience")
        assert await use() == answer
        again = [await take(store, "key", holder, limit=2) for holder in "ab"]
        assert min(lease.fence for lease in again) > max(lease.fence for lease in held)
        held = again
        await be_refused(store, "key", "ben", limit=2, waiting=waiting)
    lose(valkey_server, namespace, "places", "info", "patience")
    assert (await take(store, "key", "ben", limit=2)).fence > held[-1].fence


@pytest.mark.parametrize("others", ["", "b"])
async def test_a_holder_whose_fence_got_lost_gets_a_new_one(
    open_store: Open, valkey_server: Endpoint, namespace: str, others: str
):
    store = await open_store(valkey_server.url)
    held = [await take(store, "key", holder, limit=2) for holder in "ab"]
    await store.leases.release([lease for lease in held if lease.holder not in f"a{others}"])
    lose(valkey_server, namespace, "info")
    again = await take(store, "key", "a", limit=2)
    assert again.fence > held[-1].fence
    assert {lease.holder for lease in await store.leases.find()} == {"a", *others}
    assert await store.leases.release([again]) == [True]


def lose(server: Endpoint, namespace: str, *parts: str) -> None:
    with client(server) as operator:
        operator.delete(*(f"{{tenure:{namespace}}}:{part}:key" for part in parts))


async def test_names_that_the_server_left_behind_are_collected(
    open_store: Open, valkey_server: Endpoint, namespace: str
):
    store = await open_store(valkey_server.url)
    for number in range(450):
        await take(store, f"key-{number:03}", "ann")
    kept = await take(store, "z-kept", "ann")
    tag = f"{{tenure:{namespace}}}:"
    with client(valkey_server) as looker:
        looker.delete(*(f"{tag}head:key-{number:03}" for number in range(440)))
        pruned = [await store.prune(idle=0, limit=200) for _ in range(4)]
        assert [batch.leases for batch in pruned] == [200, 200, 40, 0]
        assert [batch.more for batch in pruned] == [True, True, False, False]
        assert looker.zcard(f"{tag}names") == 11
        looker.delete(*(f"{tag}head:key-{number:03}" for number in range(440, 450)))
        assert [lease.holder for lease in await store.leases.find()] == ["ann"]
        assert looker.zrange(f"{tag}names", 0, -1) == [b"z-kept"]
    assert await store.leases.release([kept]) == [True]


async def test_a_leftover_of_an_earlier_crowd_does_not_join_the_next(
    open_store: Open, valkey_server: Endpoint, namespace: str
):
    store = await open_store(valkey_server.url)
    for holder in "abc":
        await take(store, "key", holder, limit=3)
    with client(valkey_server) as looker:
        looker.delete(f"{{tenure:{namespace}}}:head:key")
    await take(store, "key", "d", limit=2)
    await take(store, "key", "e", limit=2)
    assert [lease.holder for lease in await store.leases.find()] == ["d", "e"]


# Scripts.


async def test_scripts_that_the_server_forgot_are_loaded_again_in_the_middle_of_a_batch(
    open_store: Open, valkey_server: Endpoint
):
    store = await open_store(valkey_server.url)
    with client(valkey_server) as looker:
        for batch in range(5):
            looker.script_flush()
            names = [f"key-{batch}-{number}" for number in range(30)]
            leases = await asyncio.gather(*(take(store, name, "ann") for name in names))
            assert {lease.key for lease in leases} == set(names)
            looker.script_flush()
            assert all(await asyncio.gather(*(store.leases.release([lease]) for lease in leases)))
    assert await store.leases.find() == []


async def test_calls_keep_their_order_while_their_scripts_are_loaded(
    open_store: Open, valkey_server: Endpoint
):
    store = await open_store(valkey_server.url)
    with client(valkey_server) as looker:
        looker.script_flush()
    first = asyncio.ensure_future(store.ping())  # so that what follows is written together
    takers = [asyncio.ensure_future(take(store, f"key-{number}", "ann")) for number in range(20)]
    await first
    fences = [(await taker).fence for taker in takers]
    assert fences == sorted(fences)
    await store.leases.release([await taker for taker in takers])


async def test_a_call_cancelled_before_its_script_is_loaded_does_not_happen_any_more(
    open_store: Open, private_valkey: PrivateValkey, proxy: ProxyTo
):
    server = private_valkey()
    between = proxy(server)
    store = await open_store(between.url(server.url))
    held = between.hold_reply(match=SCRIPTS["acquire"].sha)
    call = asyncio.create_task(ask(store, "key", "ann"))
    await asyncio.to_thread(held.wait_until_held)
    call.cancel()
    await asyncio.wait([call])
    held.let_go()
    assert await store.leases.find() == []


async def test_more_leases_than_fit_into_one_script(open_store: Open, valkey_server: Endpoint):
    store = await open_store(valkey_server.url)
    leases = await asyncio.gather(*(take(store, f"key-{n:03}", "ann") for n in range(450)))
    claims = [*leases, Lease(key="nobody", holder="ann", fence=1, ttl=5)]
    assert await store.leases.renew(claims) == [True] * 450 + [False]
    assert [lease.key for lease in await store.leases.find()] == [lease.key for lease in leases]
    assert await store.leases.release(claims) == [True] * 450 + [False]


async def test_a_fleet_that_died_costs_few_commands(
    open_store: Open, private_valkey: PrivateValkey, namespace: str
):
    server, clock = private_valkey(), ManualClock()
    store = await open_store(server.url, clock)
    fleet = [f"holder {number}" for number in range(2500)]
    await asyncio.gather(*(take(store, "gpu", holder, limit=3000, ttl=30) for holder in fleet))
    outlives = await take(store, "gpu", "outlives", limit=3000, ttl=60)
    clock.shift(30)
    looker = Looker(server, namespace)
    looker.commands()
    await take(store, "gpu", "late", limit=3000)
    assert sum(looker.commands().values()) < 50
    assert [lease.holder for lease in await store.leases.find()] == ["outlives", "late"]
    assert await store.leases.release([outlives]) == [True]


async def test_a_list_looks_at_a_bounded_number_of_holders_in_one_script(
    open_store: Open, private_valkey: PrivateValkey, namespace: str, monkeypatch: pytest.MonkeyPatch
):
    server, clock = private_valkey(), ManualClock()
    store = await open_store(server.url, clock)
    few = [await take(store, "a few", f"few {number}", limit=5, ttl=60) for number in range(3)]
    fleet = [f"holder {number:04}" for number in range(3000)]
    await asyncio.gather(*(take(store, "gpu", holder, limit=3000, ttl=60) for holder in fleet))
    line = [f"waiter {number}" for number in range(5)]
    for waiter in line:
        await be_refused(store, "gpu", waiter, limit=3000, waiting=60)
    more = [await take(store, "more", f"more {number}", limit=5, ttl=60) for number in range(2)]
    examined = count_examined(store, Looker(server, namespace), monkeypatch)

    leases = await store.leases.find(limit=10)
    by_fence = sorted(
        (lease for lease in await store.leases.find(limit=3003)), key=lambda lease: lease.fence
    )
    assert [lease.holder for lease in leases[:3]] == [lease.holder for lease in few]
    assert [lease.fence for lease in leases[3:]] == [lease.fence for lease in by_fence[3:10]]
    everything = await store.leases.find(limit=10_000)
    assert [lease.holder for lease in everything[3:-2] if lease.waiting] == line
    assert {lease.holder for lease in everything[3:-7]} == set(fleet)
    assert [lease.holder for lease in everything[-2:]] == [lease.holder for lease in more]
    assert len(examined) > 10
    assert max(examined) <= 1500  # 500 holders, and two or three commands for each


async def test_a_crowd_that_goes_while_it_is_listed(
    open_store: Open, private_valkey: PrivateValkey, monkeypatch: pytest.MonkeyPatch
):
    store = await open_store(private_valkey().url, ManualClock())
    fleet = (take(store, "gpu", f"holder {number}", limit=3000, ttl=60) for number in range(1200))
    await asyncio.gather(*fleet)
    sender = type(store._open_sender)
    run = sender.run

    async def run_and_remove(self: Any, script: Any, words: Any) -> Any:
        reply = await run(self, script, words)
        if script is SCRIPTS["members"]:
            monkeypatch.undo()
            await store.leases.discard("gpu")
            await take(store, "gpu", "alone", ttl=60)
        return reply

    monkeypatch.setattr(sender, "run", run_and_remove)
    assert [lease.holder for lease in await store.leases.find()] == ["alone"]


async def test_a_search_looks_at_a_bounded_number_of_jobs_in_one_script(
    open_store: Open, private_valkey: PrivateValkey, namespace: str, monkeypatch: pytest.MonkeyPatch
):
    server, clock = private_valkey(), ManualClock()
    store = await open_store(server.url, clock)
    for first in range(0, 4000, 200):
        await insert(store, *(new(number) for number in range(first, first + 200)))
    examined = count_examined(store, Looker(server, namespace), monkeypatch)
    page = await store.jobs.find(task="missing", limit=50)
    assert page.jobs == []
    assert page.cursor is not None
    assert max(examined) <= 250
    total, cursor = 0, None
    while total == 0 or cursor:
        page = await store.jobs.find(limit=1000, cursor=cursor)
        total, cursor = total + len(page.jobs), page.cursor
    assert total == 4000
    assert max(examined) <= 1000


def count_examined(store: RedisStore, looker: Looker, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note from now on how many commands each script runs, or parts its reply has, if more."""
    examined: list[int] = []
    sender = store._open_sender
    run = type(sender).run

    async def counted(self: Any, script: Any, words: Any) -> Any:
        looker.commands()
        reply = await run(self, script, words)
        examined.append(max(sum(looker.commands().values()), len(reply)))
        return reply

    monkeypatch.setattr(type(sender), "run", counted)
    return examined


# Connections.


async def test_callers_share_packets_while_a_reply_is_under_way(
    open_store: Open, valkey_server: Endpoint
):
    store = await open_store(valkey_server.url)
    await take(store, "first", "ann")
    wire = store._sender._wire
    written: list[bytes] = []
    write = wire.write
    wire.write = lambda data: (written.append(data), write(data))
    await asyncio.gather(*(take(store, f"key-{n}", "ann") for n in range(40)))
    assert len(written) == 2


async def test_after_a_restart_the_next_call_works(open_store: Open, private_valkey: PrivateValkey):
    server = private_valkey()
    store = await open_store(server.url)
    lease = await take(store, "key", "ann")
    for restart in (server.restart, lambda: (server.kill(), server.start())):
        await asyncio.to_thread(restart)
        await wait_until_async(lambda: store._sender._wire is None)
        again = await take(store, "key", "ann")
        assert again.fence == lease.fence


async def test_a_restart_without_data_keeps_fences_growing(
    open_store: Open, private_valkey: PrivateValkey
):
    server = private_valkey()
    store = await open_store(server.url)
    lease = await take(store, "key", "ann")
    await asyncio.to_thread(server.restart, empty=True)
    await wait_until_async(lambda: store._sender._wire is None)
    assert (await take(store, "key", "ben")).fence > lease.fence


async def test_while_the_server_is_away_calls_fail_at_once_and_then_work_again(
    open_store: Open, private_valkey: PrivateValkey
):
    server = private_valkey()
    store = await open_store(server.url)
    server.kill()
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await ask(store, "key", "ann")
    server.start()
    await take(store, "key", "ann")


async def test_a_silent_server_fails_all_callers_in_time_and_then_works_again(
    open_store: Open, private_valkey: PrivateValkey
):
    server = private_valkey()
    store = await open_store(f"{server.url}?socket_timeout=0.2&socket_connect_timeout=0.2")
    server.pause()
    for _ in range(2):  # with a connection, and without one
        began = time.monotonic()
        calls = (ask(store, f"key-{n}", "ann") for n in range(20))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}
        assert time.monotonic() - began < SIZE.patience / 4
    server.resume()
    await asyncio.gather(*(take(store, f"key-{n}", "ann") for n in range(20)))


async def test_a_lost_reply_is_an_error_and_repeating_the_call_answers_the_same(
    open_store: Open, valkey_server: Endpoint, proxy: ProxyTo
):
    between = proxy(valkey_server)
    store = await open_store(between.url(valkey_server.url))
    other = await open_store(valkey_server.url)
    await take(store, "other", "ann")  # the script is loaded now
    between.cut_after(match="EVALSHA")
    with pytest.raises(StoreUnavailable):
        await ask(store, "key", "ann")
    (lease,) = await other.leases.find("key")
    assert (await take(store, "key", "ann")).fence == lease.fence


async def test_no_command_is_sent_twice_behind_the_callers_back(
    open_store: Open, valkey_server: Endpoint, proxy: ProxyTo
):
    between = proxy(valkey_server)
    store = await open_store(between.url(valkey_server.url))
    await take(store, "other", "ann")
    between.cut_before(match="EVALSHA")
    commands = between.commands
    with pytest.raises(StoreUnavailable):
        await ask(store, "key", "ann")
    assert between.commands == commands + 1


async def test_closing_during_a_call_fails_it(open_store: Open, private_valkey: PrivateValkey):
    server = private_valkey()
    store = await open_store(server.url)
    server.pause()
    calls = [asyncio.create_task(ask(store, f"key-{n}", "ann")) for n in range(3)]
    await asyncio.sleep(0.05)
    await store.close()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}
    with pytest.raises(StoreError, match="not open"):
        await ask(store, "key", "ann")


def test_a_store_works_without_the_loop_it_was_made_on(valkey_server: Endpoint, namespace: str):
    store = RedisStore(valkey_server.url, namespace=namespace, clock=SystemClock())

    async def use() -> None:
        await store.open()
        async with store.watch(("lease", "ann")):
            await store.leases.release([await take(store, "key", "ann")])
        await store.close()

    asyncio.run(use())
    asyncio.run(use())


# Wake-ups.


@pytest.mark.parametrize("clock", [SystemClock, ManualClock])
async def test_wake_ups_come_again_after_a_restart(
    open_store: Open, private_valkey: PrivateValkey, clock: Callable[[], Clock]
):
    server = private_valkey()
    here, there = await open_store(server.url, clock()), await open_store(server.url, clock())
    ann = await take(there, "key", "ann")
    async with here.watch(("lease", "ben")) as watch:
        for _ in range(2):
            await asyncio.to_thread(server.restart)
            waits = asyncio.create_task(watch.wait(None))
            assert await asyncio.wait_for(waits, SIZE.patience)  # for what may have been missed
            await be_refused(here, "key", "ben", waiting=60)
            waits = asyncio.create_task(watch.wait(None))
            await there.leases.release([ann])
            assert await asyncio.wait_for(waits, SIZE.patience)
            await here.leases.release([Lease(key="key", holder="ben")])
            ann = await take(there, "key", "ann")


async def test_a_listener_pauses_before_each_try_longer_and_longer(
    open_store: Open, private_valkey: PrivateValkey, monkeypatch: pytest.MonkeyPatch
):
    tries: list[tuple[int, float]] = []

    def pause(failures: int, chance: float, *, refused: bool) -> float:
        tries.append((failures, time.monotonic()))
        return 0.2

    monkeypatch.setattr("tenure.stores.redis.listener.pause_before_listening", pause)
    server = private_valkey()
    store = await open_store(server.url)
    server.kill()
    async with store.watch(("lease", "ben")):
        await wait_until_async(lambda: len(tries) > 3, SIZE.patience)
    assert [failures for failures, _ in tries[:4]] == [1, 2, 3, 4]
    assert tries[3][1] - tries[0][1] >= 0.55


async def test_an_idle_listener_keeps_its_connection(
    open_store: Open, valkey_server: Endpoint, proxy: ProxyTo, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tenure.stores.redis.listener._PING_EVERY", 0.2)
    between = proxy(valkey_server)
    store = await open_store(between.url(valkey_server.url))
    async with store.watch(("lease", "ben")) as watch:
        assert not await watch.wait(1.5)  # a new connection would wake, for what may be missed


async def test_a_listener_leaves_a_server_that_says_nothing_any_more(
    open_store: Open, private_valkey: PrivateValkey, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tenure.stores.redis.listener._PING_EVERY", 0.2)
    server = private_valkey()
    store = await open_store(f"{server.url}?socket_timeout=0.5")
    async with store.watch(("lease", "ben")) as watch:
        before = store._listener._wire
        server.pause()
        await asyncio.wait((before.closed,), timeout=SIZE.patience)
        assert before.closed.done()
        server.resume()
        assert await watch.wait(SIZE.patience)


async def test_a_watch_that_cannot_listen_is_entered_and_hears_later(
    open_store: Open, private_valkey: PrivateValkey, caplog: pytest.LogCaptureFixture
):
    server = private_valkey()
    store = await open_store(server.url)
    server.kill()
    for _ in range(2):
        async with store.watch(("lease", "ben")) as watch:
            assert not await watch.wait(0.01)
    [message] = [record.getMessage() for record in caplog.records]
    assert "No wake-ups" in message
    assert "cannot be reached" in message
    async with store.watch(("lease", "ben")) as watch:
        server.start()
        assert await watch.wait(SIZE.patience)  # for what may have been missed
        ann = await take(store, "key", "ann")
        await be_refused(store, "key", "ben", waiting=60)
        await store.leases.release([ann])
        assert await watch.wait(SIZE.patience)
    assert len(caplog.records) == 1


async def test_a_server_that_does_not_answer_holds_up_a_watch_only_shortly(
    open_store: Open, valkey_server: Endpoint, proxy: ProxyTo
):
    between = proxy(valkey_server)
    store = await open_store(between.url(valkey_server.url))
    held = between.hold_reply(match="SUBSCRIBE")
    began = time.monotonic()
    async with store.watch(("lease", "ben")) as watch:
        assert time.monotonic() - began < 3  # the life of a place in the line
        assert not await watch.wait(0)
        held.let_go()
        assert await watch.wait(SIZE.patience)


async def test_a_cancelled_watcher_does_not_disturb_the_others(
    open_store: Open, valkey_server: Endpoint, proxy: ProxyTo
):
    between = proxy(valkey_server)
    store = await open_store(between.url(valkey_server.url))
    held = between.hold_reply(match="SUBSCRIBE")

    async def watch() -> bool:
        async with store.watch(("lease", "ben")):
            return True

    watchers = [asyncio.create_task(watch()) for _ in range(3)]
    await asyncio.to_thread(held.wait_until_held)
    watchers[0].cancel()
    held.let_go()
    outcomes = await asyncio.gather(*watchers, return_exceptions=True)
    assert isinstance(outcomes[0], asyncio.CancelledError)
    assert outcomes[1:] == [True, True]
    assert between.connections == 2


async def test_the_grade_is_what_the_server_survives(
    open_store: Open, private_valkey: PrivateValkey
):
    forgetful, durable = private_valkey(config={"appendonly": "no"}), private_valkey()
    assert (await open_store(forgetful.url)).traits.grade is Grade.D
    assert (await open_store(durable.url)).traits.grade is Grade.B
    with client(forgetful) as looker:
        looker.replicaof("127.0.0.1", str(durable.port))
    await wait_until_async(lambda: is_followed(durable), SIZE.patience)
    assert (await open_store(durable.url)).traits.grade is Grade.C


def is_followed(server: Valkey) -> bool:
    with client(server) as looker:
        return looker.info("replication")["connected_slaves"] == 1


async def test_an_opening_that_is_cancelled_leaves_no_connection(
    valkey_server: Endpoint, proxy: ProxyTo, namespace: str
):
    between = proxy(valkey_server)
    held = between.hold_reply(match="INFO")
    url = between.url(valkey_server.url)
    store = RedisStore(url, namespace=namespace, clock=SystemClock())
    opening = asyncio.create_task(store.open())
    await asyncio.to_thread(held.wait_until_held)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert store._sender is None
    held.let_go()


async def test_a_list_looks_at_a_bounded_number_of_holders_of_several_crowds(
    open_store, private_valkey, namespace, monkeypatch
):
    server = private_valkey()
    store = await open_store(server.url, ManualClock())
    await asyncio.gather(
        *(
            take(store, f"key {key}", f"holder {key} {number}", limit=400, ttl=60)
            for key in range(4)
            for number in range(400)
        )
    )
    examined = count_examined(store, Looker(server, namespace), monkeypatch)
    assert len(await store.leases.find(limit=10_000)) == 1600
    assert max(examined) <= 1500
