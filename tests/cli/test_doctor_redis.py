"""What `tenure doctor` finds on Valkey servers that are set up badly, and on good ones."""

import pytest
import redis

from tenure.cli import target
from tenure.stores.redis.doctor import judge
from tenure.stores.redis.rights import NEEDED_RIGHTS
from tests.cli.conftest import Run
from tests.cli.examination import Expected, ShiftedClock, check, examined
from tests.rig.fixtures import Endpoint, PrivateValkey
from tests.rig.wait import wait_until

VALKEYS = {
    "it evicts": (
        {"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"},
        Expected("warning", "eviction", "allkeys-lru: a server short of memory drops leases"),
    ),
    "it evicts what has a ttl": (
        {"maxmemory": "100mb", "maxmemory-policy": "volatile-ttl"},
        Expected("warning", "eviction", "Set maxmemory-policy to noeviction."),
    ),
    "nothing is kept": (
        {"appendonly": "no"},
        Expected(
            "warning", "persistence", "off: a restart of the server loses jobs and frees locks"
        ),
    ),
    "snapshots only": (
        {"appendonly": "no", "save": "3600 1"},
        Expected("warning", "persistence", "snapshots only (save 3600 1)"),
    ),
    "it never flushes": (
        {"appendfsync": "no"},
        Expected("warning", "persistence", "Set appendfsync to everysec"),
    ),
    "a cluster without nodes": (
        {"cluster-enabled": "yes"},
        Expected("error", "commands", "CLUSTERDOWN"),
    ),
}


@pytest.mark.parametrize("name", VALKEYS)
def test_a_badly_set_up_valkey(cli: Run, private_valkey: PrivateValkey, name: str):
    config, expected = VALKEYS[name]
    check(cli, private_valkey(config=config).url, expected)


@pytest.mark.parametrize(
    ("rights", "expected"),
    [
        ("~* &* +@all -config", Expected("note", "settings", "CONFIG GET is forbidden")),
        ("~* &* +@all -info", Expected("note", "server", "the grade is taken as D")),
        ("~* &* +@all -@dangerous", Expected("note", "eviction", "is not known")),
        ("~* resetchannels +@all", Expected("error", "rights", "PUBLISH was refused")),
        ("~* &* +@all -@scripting", Expected("error", "rights", "ACL SETUSER app resetkeys")),
        ("~other:* ~*format &* +@all", Expected("error", "rights", "DEL was refused")),
        (f"{NEEDED_RIGHTS} -zrank", Expected("error", "rights", "ACL SETUSER app +zrank")),
        (NEEDED_RIGHTS, Expected("ok", "rights", "'app' may do all that leases need")),
    ],
)
def test_a_user_with_few_rights(
    cli: Run, private_valkey: PrivateValkey, rights: str, expected: Expected
):
    server = private_valkey(config={"user": f"app on nopass {rights}"})
    check(cli, server.url.replace("redis://", "redis://app:any@"), expected)


def test_a_good_valkey(cli: Run, private_valkey: PrivateValkey):
    url = private_valkey().url
    cli("--url", url, "migrate")
    result = cli("--url", url, "doctor", "--strict", "--require", "B")
    assert result.code == 0
    assert result.out.splitlines()[-1] == "No problems."
    document = cli("--url", url, "doctor", "--json").json
    assert (document["grade"], document["scope"], document["level"]) == ("B", "fleet", "ok")
    subjects = {finding["subject"] for finding in document["findings"]}
    assert {"store", "server", "grade", "scope", "clock", "role", "format"} <= subjects


def test_replicas(cli: Run, private_valkey: PrivateValkey):
    primary = private_valkey()
    replica = private_valkey(config={"replicaof": f"127.0.0.1 {primary.port}"})
    client = redis.Redis.from_url(primary.url)
    wait_until(lambda: client.info("replication")["connected_slaves"] == 1, 20)
    client.close()
    check(cli, replica.url, Expected("error", "role", "Put the primary's address into the URL."))
    check(cli, primary.url, Expected("note", "replicas", "1 attached"))
    assert cli("--url", primary.url, "doctor", "--json").json["grade"] == "C"


@pytest.mark.parametrize(
    ("times", "kind", "text"),
    [(1.08, "warning", "a full server"), (0.9, "error", "it is full and")],
)
def test_a_valkey_that_is_full_or_nearly_so(
    cli: Run, private_valkey: PrivateValkey, times: float, kind: str, text: str
):
    server = private_valkey()
    with redis.Redis.from_url(server.url) as client:
        client.setrange("ballast", 30_000_000, b"x")
        client.config_set("maxmemory", int(client.info("memory")["used_memory"] * times))
    words = f"{text} takes no new jobs. Raise maxmemory"
    check(cli, server.url, Expected(kind, "memory", words))


def test_a_wrong_password(cli: Run, private_valkey: PrivateValkey):
    server = private_valkey(password="right")
    wrong = server.url.replace("right", "wrong")
    expected = Expected("error", "log-in", "Check the user and the password in the URL.")
    check(cli, wrong, expected)
    result = cli("--url", wrong, "doctor")
    assert "wrong" not in result.out + result.err
    check(cli, server.url.replace(":right@", ""), expected)


def test_a_format_from_the_future_on_valkey(cli: Run, private_valkey: PrivateValkey):
    server = private_valkey()
    with redis.Redis.from_url(server.url) as client:
        client.set("{tenure:tenure}:format", 99)
    check(cli, server.url, Expected("error", "format", "99, from a newer Tenure"))
    assert cli("--url", server.url, "migrate").code == 2


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"redis_version": "5.0.14"}, Expected("error", "server", "Tenure needs 6.2 or later")),
        ({"redis_version": "6.0.20"}, Expected("error", "server", "Upgrade the server")),
        ({"redis_version": "6.2.0"}, Expected("ok", "server", "Redis 6.2.0")),
        ({"redis_version": "10.0.1"}, Expected("ok", "server", "Redis 10.0.1")),
        ({"redis_mode": "sentinel"}, Expected("error", "role", "this is a Sentinel")),
        ({"cluster_enabled": "1"}, Expected("note", "cluster", "Use redis+cluster://")),
        ({"maxmemory_policy": "volatile-lru"}, Expected("warning", "eviction", "volatile-lru")),
    ],
)
def test_servers_that_cannot_be_had_here(facts: dict[str, str], expected: Expected):
    good = {"redis_version": "7.2.4", "aof_enabled": "1", "maxmemory_policy": "noeviction"}
    findings = {
        finding.subject: finding for finding in judge({**good, **facts}, {"appendfsync": "always"})
    }
    finding = findings[expected.subject]
    assert finding.level == expected.level
    assert expected.words in f"{finding.detail}. {finding.advice}"


def test_a_clock_that_is_off(cli: Run, valkey_server: Endpoint, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(target, "SystemClock", ShiftedClock)
    check(cli, valkey_server.url, Expected("warning", "clock", "ahead of this host's"))
    _, findings = examined(cli, "--url", valkey_server.url)
    assert findings["clock"].detail.startswith("7.0 s (give or take 0.0")
