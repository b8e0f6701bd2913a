"""What the facts that servers tell amount to: each finding, at its limits and beyond."""

from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest
import redis

from tenure.core.clock import SystemClock
from tenure.core.leases import Grade
from tenure.errors import ConfigError, StoreError, StoreUnavailable
from tenure.stores.postgres import doctor
from tenure.stores.postgres.address import Address
from tenure.stores.postgres.schema import FORMAT
from tenure.stores.postgres.server import Server
from tenure.stores.redis import RedisStore
from tenure.stores.redis.connection import grade_of
from tenure.stores.redis.doctor import judge
from tests.rig.impostor import impostor

MIB = 1024**2
GOOD = {
    "redis_version": "7.2.4",
    "aof_enabled": "1",
    "maxmemory_policy": "noeviction",
    "used_memory": str(5 * MIB),
}
SETTINGS = {"appendfsync": "always", "save": ""}


def judged(info: dict[str, str], settings: dict[str, str], **how: Any) -> dict[str, str]:
    return {
        finding.subject: f"{finding.level}: {finding.detail}"
        for finding in judge(info, settings, **how)
    }


# Redis.


def test_a_good_redis():
    assert judged(GOOD, SETTINGS) == {
        "server": "ok: Redis 7.2.4",
        "role": "ok: primary",
        "persistence": "ok: append-only file, appendfsync always",
        "memory": "ok: 5.0 MiB used, no limit",
        "eviction": "ok: noeviction",
    }


@pytest.mark.parametrize(
    ("info", "settings", "subject", "expected"),
    [
        ({"valkey_version": "8.1"}, {}, "server", "ok: Valkey 8.1"),
        ({"redis_version": "6.1.9"}, {}, "server", "error: Redis 6.1.9; Tenure needs 6.2 or later"),
        ({"redis_version": "7.unstable"}, {}, "server", "ok: Redis 7.unstable"),
        ({"role": "slave"}, {}, "role", "error: a read-only replica of ?:?"),
        (
            {"role": "slave", "master_host": "one", "master_port": "1"},
            {},
            "role",
            "error: a read-only replica of one:1",
        ),
        ({"role": "master"}, {}, "role", "ok: primary"),
        ({"connected_slaves": "0"}, {}, "replicas", None),
        ({"connected_slaves": "2"}, {}, "replicas", "note: 2 attached"),
        ({"cluster_enabled": "0"}, {}, "cluster", None),
        ({"cluster_enabled": "1"}, {}, "cluster", "note: a namespace lives on one node"),
        ({}, {"appendfsync": "no"}, "persistence", "warning: append-only file, but appendfsync is"),
        ({"aof_enabled": "0"}, {}, "persistence", "warning: off: a restart"),
        ({"aof_enabled": "0"}, {"save": "60 1"}, "persistence", "warning: snapshots only (save 60"),
        ({"maxmemory": str(10 * MIB)}, {}, "memory", "ok: 5.0 MiB of 10.0 MiB used"),
        (
            {"maxmemory": str(10 * MIB), "used_memory": str(9 * MIB - 1)},
            {},
            "memory",
            "ok: 9.0 MiB of 10.0 MiB used",
        ),
        (
            {"maxmemory": str(10 * MIB), "used_memory": str(9 * MIB)},
            {},
            "memory",
            "warning: 9.0 MiB of 10.0 MiB used: a full server takes no new jobs",
        ),
        (
            {"maxmemory": str(10 * MIB), "used_memory": str(10 * MIB)},
            {},
            "memory",
            "error: 10.0 MiB of 10.0 MiB used: it is full and takes no new jobs",
        ),
        ({"maxmemory_policy": ""}, {"maxmemory-policy": "noeviction"}, "eviction", "ok: noevict"),
        ({"maxmemory_policy": ""}, {}, "eviction", "note: maxmemory-policy is not known"),
    ],
)
def test_facts_of_a_redis(
    info: dict[str, str], settings: dict[str, str], subject: str, expected: str | None
):
    finding = judged(GOOD | info, SETTINGS | settings).get(subject)
    assert finding is None if expected is None else (finding or "").startswith(expected)


def test_a_url_that_follows_the_namespace_needs_no_advice_about_clusters():
    assert "cluster" not in judged(GOOD | {"cluster_enabled": "1"}, SETTINGS, follows=True)


def test_a_redis_that_tells_nothing():
    assert judged({}, {}) == {
        "server": "note: INFO is forbidden, so the grade is taken as D",
        "settings": "note: CONFIG GET is forbidden, so appendfsync and save are not known",
        "eviction": "note: maxmemory-policy is not known",
    }
    assert "appendfsync not known" in judged(GOOD, {})["persistence"]


@pytest.mark.parametrize(
    ("facts", "grade"),
    [
        ({"aof_enabled": "1"}, Grade.B),
        ({"aof_enabled": "0"}, Grade.D),
        ({}, Grade.D),
        ({"aof_enabled": "1", "role": "slave"}, Grade.C),
        ({"aof_enabled": "1", "role": "master", "connected_slaves": "0"}, Grade.B),
        ({"aof_enabled": "1", "connected_slaves": "1"}, Grade.C),
        ({"aof_enabled": "1", "cluster_enabled": "1"}, Grade.C),
        ({"aof_enabled": "1", "cluster_enabled": "0"}, Grade.B),
    ],
)
def test_the_grade_of_a_redis(facts: dict[str, str], grade: Grade):
    assert grade_of(facts) is grade


@dataclass
class Replies:
    """A server that answers as a good one, but for some commands."""

    others: dict[str, Any]

    def __call__(self, words: list[str]) -> Any:
        for command, reply in self.others.items():
            if " ".join(words).startswith(command):
                return reply
        return {
            "INFO": "".join(f"{name}:{fact}\r\n" for name, fact in GOOD.items()),
            "CONFIG": [words[-1], "always"],
            "TIME": ["1800000000", "5"],
            "SCRIPT": "sha",
            "EVALSHA": [],
            "DEL": 0,
            "PUBLISH": 0,
            "GET": "1",
        }[words[0]]


async def examined(others: dict[str, Any]) -> dict[str, str]:
    async with impostor(Replies(others)) as server:
        store = RedisStore(
            f"redis://127.0.0.1:{server.port}", namespace="space", clock=SystemClock()
        )
        findings = await store.examine()
        assert store._sender is None
    return {finding.subject: f"{finding.level}: {finding.detail}" for finding in findings}


@pytest.mark.parametrize(
    ("others", "subject", "expected"),
    [
        ({}, "format", "ok: 1"),
        ({}, "rights", "ok: 'default' may do all that leases need"),
        ({"GET": None}, "format", "note: none so far"),
        ({"GET": "no number"}, "format", "error: b'no number' is not Tenure's"),
        ({"GET": "2"}, "format", "error: 2, from a newer Tenure"),
        (
            {"GET": redis.ResponseError("NOPERM get")},
            "rights",
            "error: GET was refused: NOPERM get",
        ),
        ({"GET": redis.ResponseError("ERR broken")}, "commands", "error: GET fails: the store"),
        ({"EVALSHA": ["ZRANK", "GET"]}, "rights", "error: 'default' may not run zrank, get"),
        ({"SCRIPT": redis.ResponseError("ERR no")}, "commands", "error: SCRIPT fails: the store"),
        ({"PUBLISH": redis.ResponseError("NOPERM x")}, "rights", "error: PUBLISH was refused"),
        ({"INFO": redis.ResponseError("NOPERM x")}, "server", "note: INFO is forbidden"),
        ({"CONFIG": redis.ResponseError("NOPERM x")}, "settings", "note: CONFIG GET is forbidden"),
        ({"TIME": redis.ResponseError("NOPERM x")}, "log-in", "error: refused: NOPERM x"),
        ({"TIME": redis.ResponseError("BUSY x")}, "connection", "error: the store"),
    ],
)
async def test_replies_of_a_redis(others: dict[str, Any], subject: str, expected: str):
    assert (await examined(others))[subject].startswith(expected)


async def test_what_only_repeats_a_failure_is_not_told():
    assert "format" not in await examined({"SCRIPT": redis.ResponseError("ERR no")})
    sentinel = await examined({"INFO": "redis_mode:sentinel\r\n"})
    assert {"rights", "format"}.isdisjoint(sentinel)
    replica = await examined({"INFO": "redis_version:7.2\r\nrole:slave\r\n"})
    assert "rights" not in replica
    assert replica["format"] == "ok: 1"


# PostgreSQL.


def server(**facts: Any) -> Server:
    usual = {"version": "18", "release": 18, "encoding": "UTF8", "isolation": "read committed"}
    safe = {"read_only": False, "standby": False, "flushes": True, "waits_for": "on"}
    return Server(**{**usual, **safe, "lagging_standbys": 0, **facts})


def more(**facts: Any) -> dict[str, Any]:
    usual = {"role": "ann", "database": "db", "connections_most": 100, "connections_used": 5}
    return {
        **usual,
        "standbys": 0,
        "may_create": True,
        "may_enter": True,
        "may_fill": True,
        **facts,
    }


@pytest.mark.parametrize(
    ("facts", "error", "words"),
    [
        ({}, None, ""),
        ({"release": 13}, None, ""),
        ({"release": 12}, ConfigError, "13 or later"),
        ({"standby": True}, StoreUnavailable, "a read-only standby"),
        ({"encoding": "SQL_ASCII"}, ConfigError, "encoding SQL_ASCII"),
        ({"read_only": True}, ConfigError, "takes no writes"),
        ({"isolation": "serializable"}, ConfigError, "'serializable'"),
    ],
)
def test_servers_that_cannot_hold_leases(facts: Any, error: Any, words: str):
    if error is None:
        server(**facts).check("url")
    else:
        with pytest.raises(error, match=words):
            server(**facts).check("url")


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, []),
        ({"encoding": "LATIN1"}, ["encoding"]),
        ({"read_only": True}, ["writing"]),
        ({"read_only": True, "standby": True}, []),
        ({"isolation": "repeatable read"}, ["isolation"]),
    ],
)
def test_what_keeps_transactions_from_working(facts: Any, expected: list[str]):
    findings = list(doctor._transactions(server(**facts), more()))  # type: ignore[arg-type]
    assert [finding.subject for finding in findings] == expected
    assert {finding.level for finding in findings} <= {"error"}


@pytest.mark.parametrize(
    ("facts", "level", "words"),
    [
        ({}, "ok", "fsync on, synchronous_commit on"),
        ({"waits_for": "local"}, "ok", "synchronous_commit local"),
        ({"waits_for": "off"}, "warning", "a crash may cost the last second"),
        ({"flushes": False, "waits_for": "off"}, "warning", "fsync is off"),
    ],
)
def test_what_a_commit_survives(facts: Any, level: str, words: str):
    finding = doctor._persistence(server(**facts), more())
    assert (finding.level, words in finding.detail) == (level, True)


@pytest.mark.parametrize(
    ("lagging", "standbys", "expected"),
    [(0, 0, None), (0, 2, "ok: 2 attached, sync"), (1, 2, "note: 2 attached, 1 of them not sync")],
)
def test_standbys(lagging: int, standbys: int, expected: str | None):
    findings = [
        f"{finding.level}: {finding.detail}"
        for finding in doctor._replication(
            server(lagging_standbys=lagging), more(standbys=standbys)
        )
    ]
    assert findings == [] if expected is None else findings[0].startswith(expected)


@pytest.mark.parametrize(("used", "level"), [(79, "ok"), (80, "warning"), (100, "warning")])
def test_connections_in_use(used: int, level: str):
    address = Address.parse("postgresql://h/d")
    finding = doctor._connections(server(), more(connections_used=used), address)
    assert (finding.level, f"{used} of 100" in finding.detail) == (level, True)


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ((FORMAT + 1, FORMAT + 1), f"error: {FORMAT + 1}, from a newer Tenure"),
        ((FORMAT + 1, FORMAT), f"ok: {FORMAT + 1}"),
        ((FORMAT, FORMAT), f"ok: {FORMAT}"),
        (None, "note: none so far"),
    ],
)
def test_formats(stored: tuple[int, int] | None, expected: str):
    finding = doctor._format(stored)
    assert f"{finding.level}: {finding.detail}".startswith(expected)


@pytest.mark.parametrize(
    ("facts", "level", "words"),
    [
        ({"may_enter": None, "may_fill": None}, "note", "none so far in the database 'db'"),
        ({"may_enter": None, "may_create": False, "may_fill": None}, "error", "no schema 'tenure'"),
        ({"may_enter": None, "may_create": False}, "error", "no schema 'tenure'"),
        ({"may_fill": True, "may_create": False}, "note", "none so far"),
        ({"may_fill": False}, "error", "nothing in the schema 'tenure', and the role 'ann'"),
    ],
)
def test_a_database_without_tables(facts: Any, level: str, words: str):
    finding = doctor._not_set_up(more(**facts))
    assert (finding.level, words in finding.detail) == (level, True)


@pytest.mark.parametrize(
    ("cause", "detail", "advice"),
    [
        (asyncpg.TooManyConnectionsError("sorry."), "sorry", "Raise max_connections"),
        (TimeoutError(), "no answer in time", "Check that the server runs"),
        (ConnectionRefusedError("not\nthere"), "not there", "Check that the server runs"),
        (asyncpg.InvalidPasswordError("wrong"), "wrong", "Check user and password"),
        (asyncpg.InternalServerError("oh"), "oh", "See the server's log."),
        (None, "the store failed: oh. Do this", "See the server's log."),
    ],
)
def test_why_a_server_could_not_be_talked_to(cause: Any, detail: str, advice: str):
    error = StoreError("the store failed: oh. Do this.")
    if cause is not None:
        error = doctor.translate(cause, "url", opening=True)
    finding = doctor._no_answer(error)
    assert (finding.level, finding.subject, finding.detail) == ("error", "connection", detail)
    assert finding.advice.startswith(advice)
