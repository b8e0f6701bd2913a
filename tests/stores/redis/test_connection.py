"""How a Redis store object opens, watches and closes, on servers with scripted answers."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis

from tenure.core.clock import Clock, SystemClock
from tenure.core.leases import Grade
from tenure.errors import ConfigError, StoreError, StoreUnavailable
from tenure.stores.redis import RedisStore, connection
from tenure.stores.redis.connection import read_format
from tenure.stores.redis.scripts import SCRIPTS
from tenure.testing import ManualClock
from tests.rig.impostor import Impostor, impostor


class Server:
    """Answers as a good server does, but for some commands."""

    def __init__(self, **others: Any) -> None:
        self.others = others
        self.info = {"aof_enabled": "1", "maxmemory_policy": "noeviction"}
        self.format: str | None = "1"

    def __call__(self, words: list[str]) -> Any:
        command = words[0]
        if command in self.others:
            return self.others[command]
        if command == "INFO":
            lines = (f"{name}:{fact}" for name, fact in self.info.items())
            return "# Server\r\n" + "\r\n".join(lines) + "\r\n"
        if command == "GET":
            return self.format
        if command == "SET":
            assert words[1:] == ["{tenure:space}:format", "1 1", "NX"]
            self.format = self.format or "1 1"
            return "OK"
        if command == "SUBSCRIBE":
            return ["subscribe", words[1], 1]
        return {"TIME": ["1800000000", "5"], "EVALSHA": []}[command]


@asynccontextmanager
async def served(
    server: Server, clock: Clock | None = None
) -> AsyncIterator[tuple[RedisStore, Impostor]]:
    async with impostor(server) as place:
        url = f"redis://127.0.0.1:{place.port}"
        store = RedisStore(url, namespace="space", clock=clock or SystemClock())
        try:
            yield store, place
        finally:
            await store.close()


def test_the_names_of_keys_are_part_of_the_format():
    store = RedisStore("redis://host", namespace="space", clock=ManualClock())
    assert [key.removeprefix("{tenure:space}:job:") for key in store.jobs._keys] == [
        *("state", "fixed", "waiting", "held", "unfinished", "tags", "finished", "deadlines"),
        *("cancels", "running", "unique", "ends", "paused", "sleeping", "replicas", "expiry"),
        *("renewed", "joined", "claims", "broken", "succeeded", "failed", "cancelled", "live"),
        "pauses",
    ]
    named = [store.leases._names, store.leases._fence, store.leases._marks, store.bells]
    assert named == [f"{{tenure:space}}:{name}" for name in ("names", "fence", "marks", "bell:")]
    assert store.channel.startswith("{tenure:space}:ear:")
    assert store.channel != store.clone().channel


# Opening.


@pytest.mark.parametrize(
    ("info", "grade"),
    [
        ({}, Grade.B),
        ({"aof_enabled": "0"}, Grade.D),
        ({"connected_slaves": "1"}, Grade.C),
        ({"cluster_enabled": "1"}, Grade.C),
        ({"note": "a:b"}, Grade.B),
    ],
)
async def test_opening_learns_the_grade(info: dict[str, str], grade: Grade):
    server = Server()
    server.info |= info
    async with served(server) as (store, _):
        assert store.traits.grade is Grade.D
        await store.open()
        traits = store.traits
        assert (traits.grade, traits.scope, traits.push) == (grade, "fleet", True)
        assert traits.transactional is False


async def test_a_server_that_forbids_info_is_taken_for_the_worst():
    async with served(Server(INFO=redis.ResponseError("NOPERM info"))) as (store, _):
        await store.open()
        assert store.traits.grade is Grade.D


async def test_an_info_that_is_no_text_is_read_as_far_as_it_goes(
    monkeypatch: pytest.MonkeyPatch,
):
    async with served(Server()) as (store, _):
        await store.open()
        sender = store._open_sender

        def send(*_words: Any) -> Any:
            reply = asyncio.get_running_loop().create_future()
            reply.set_result(b"odd:\xff\xfe\r\naof_enabled:0\r\n")
            return reply

        monkeypatch.setattr(sender, "send", send)
        assert (await store.read_info())["aof_enabled"] == "0"


@pytest.mark.parametrize(
    ("others", "error", "words"),
    [
        ({"INFO": "redis_mode:sentinel\r\n"}, ConfigError, "is a Sentinel"),
        ({"GET": redis.ResponseError("NOPERM get")}, StoreError, "refused the user"),
        ({"GET": redis.ResponseError("LOADING wait")}, StoreUnavailable, "loading"),
        ({"GET": "2"}, ConfigError, "has format 2"),
        ({"GET": "3 2"}, ConfigError, "has format 3"),
        ({"GET": "something else"}, ConfigError, "not Tenure's: b'something else'"),
        ({"GET": "1234567890"}, ConfigError, "not Tenure's"),
    ],
)
async def test_a_store_that_cannot_be_opened_is_closed(
    others: dict[str, Any], error: type[Exception], words: str
):
    async with served(Server(**others)) as (store, _):
        with pytest.raises(error, match=words):
            await store.open()
        assert (store._sender, store._listener) == (None, None)
        with pytest.raises(StoreError, match="is not open"):
            await store.leases.find()


async def test_a_cancelled_open_is_closed(monkeypatch: pytest.MonkeyPatch):
    hangs = asyncio.Event()

    async def hang(_migrate: str) -> None:
        hangs.set()
        await asyncio.sleep(60)

    async with served(Server()) as (store, _):
        monkeypatch.setattr(store, "_check_format", hang)
        opening = asyncio.create_task(store.open())
        await hangs.wait()
        opening.cancel()
        await asyncio.wait([opening])
        assert opening.cancelled()
        assert (store._sender, store._listener) == (None, None)


async def test_an_open_store_stays_open_if_it_cannot_be_opened_again():
    server = Server()
    async with served(server) as (store, _):
        await store.open()
        sender = store._sender
        await store.open()
        server.format = "2"
        with pytest.raises(ConfigError):
            await store.open()
        assert store._sender is sender
        assert await store.ask("TIME")


@pytest.mark.parametrize(
    ("migrate", "stored", "commands"),
    [
        ("auto", None, ["GET", "SET", "GET"]),
        ("auto", "1", ["GET"]),
        ("auto", "1 1", ["GET"]),
        ("auto", "2 1", ["GET"]),
        ("check", "1", ["GET"]),
        ("skip", None, []),
        ("skip", "2", []),
    ],
)
async def test_the_format_is_written_once(migrate: Any, stored: str | None, commands: list[str]):
    server = Server()
    server.format = stored
    async with served(server) as (store, place):
        await store.open(migrate)
        assert [words[0] for words in place.heard if words[0] in ("GET", "SET")] == commands


async def test_a_namespace_that_is_not_there_is_not_made_by_a_check():
    server = Server()
    server.format = None
    async with served(server) as (store, place):
        with pytest.raises(ConfigError, match="has no namespace 'space' yet"):
            await store.open("check")
        assert not place.times("SET")


@pytest.mark.parametrize(
    ("value", "numbers"),
    [
        (b"1", (1, 1)),
        (b"3 2", (3, 2)),
        (b"999999999", (999999999, 999999999)),
        (b"1234567890", None),
        (b"1 1234567890", None),
        (b"x", None),
        (b"1 x", None),
        (b"", None),
    ],
)
def test_formats_are_read_or_refused(value: bytes, numbers: tuple[int, int] | None):
    assert read_format(value) == numbers


async def test_each_policy_that_evicts_is_warned_about_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connection, "_warned", set())
    server = Server()
    async with served(server) as (store, _):
        with caplog.at_level(logging.WARNING, "tenure"):
            for policy in ("noeviction", "allkeys-lru", "allkeys-lru", "volatile-ttl"):
                server.info["maxmemory_policy"] = policy
                await store.open()
            del server.info["maxmemory_policy"]
            await store.open()
    warnings = [message for message in caplog.messages if "maxmemory-policy" in message]
    assert [message.split()[3] for message in warnings] == ["allkeys-lru:", "volatile-ttl:"]


# Time.


async def test_now_is_asked_of_the_server_or_of_a_clock_that_says_it():
    async with served(Server()) as (store, place):
        with pytest.raises(StoreError, match="is not open"):
            await store.ping()
        await store.open()
        assert (await store.ping()).now == 1_800_000_000_000_005
        assert place.times("TIME") == 1
        assert store._now == ""
    clock = ManualClock()
    async with served(Server(), clock) as (store, place):
        with pytest.raises(StoreError, match="is not open"):
            await store.ping()
        await store.open()
        assert (await store.ping()).now == clock.wall() == store._now
        assert place.times("TIME") == 0


# Watching.


async def test_a_watch_of_queues_subscribes_before_it_asks_for_wake_ups():
    async with served(Server()) as (store, place):
        with pytest.raises(StoreError, match="is not open"):
            async with store.watch(("queue", "a")):
                pass
        await store.open()
        async with store.watch(("lease", "x")):
            assert place.times("EVALSHA") == 0
        async with store.watch(("queue", "a"), ("lease", "y"), ("queue", "b")):
            [call] = [words for words in place.heard if words[0] == "EVALSHA"]
            sha, number, key, life, *queues = call[1:]
            assert (sha, number, key) == (
                SCRIPTS["sleep"].sha.decode(),
                "1",
                "{tenure:space}:job:sleeping",
            )
            assert (int(life), queues) == (86_400_000, ["a", "b"])
            heard = [words[0] for words in place.heard]
            assert "SUBSCRIBE" in heard[: heard.index("EVALSHA")]
        store._ask_again([])
        assert place.times("EVALSHA") == 1
        store._ask_again(["c"])
        await store.ping()
        assert place.times("EVALSHA") == 2
    store._ask_again(["d"])  # nothing happens on a closed store


async def test_a_store_has_no_transactions():
    async with served(Server()) as (store, _):
        with pytest.raises(ConfigError):
            store.within(object(), "guard()")
