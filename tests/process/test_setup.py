"""Mistakes in the set-up are reported: a default store, a store of one host, unknown variables."""

import asyncio
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tenure import ConfigError, Tenure, blocking
from tenure.app import setup

_DEFAULT = """
from tenure import blocking

with blocking.Tenure() as app:
    print(bool(app.with_lock("report", int, ttl=5)))
"""


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(setup, "_logged", set())
    for variable in ("TENURE_URL", "TENURE_SCOPE", "REDIS_URL", "DATABASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)


def _run(script: str, tmp_path: Path, **variables: str) -> str:
    """Run a program without a terminal, as a service manager does; return what it logs."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        encoding="utf-8",
        cwd=tmp_path,
        env={**kept, **variables},
        timeout=60,
        check=True,
    )
    assert done.stdout == "True\n"
    return done.stderr


def test_a_service_without_a_url_warns_and_names_what_it_ignores(tmp_path: Path):
    log = _run(_DEFAULT, tmp_path, REDIS_URL="redis://:secret@cache/0")
    assert log.count("No store is configured") == 1
    assert "REDIS_URL is set, but Tenure reads TENURE_URL only." in log
    assert "secret" not in log


def test_a_store_that_was_chosen_is_no_mistake(tmp_path: Path):
    log = _run(
        _DEFAULT, tmp_path, TENURE_URL="sqlite:///tenure.db", REDIS_URL="redis://:secret@cache/0"
    )
    assert log == ""


async def test_tests_are_not_bothered(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING, logger="tenure")
    async with Tenure():
        pass
    assert caplog.records == []


async def test_a_misspelt_variable_is_reported_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    caplog.set_level(logging.WARNING, logger="tenure")
    monkeypatch.setenv("TENURE_REPLICATTL", "1m")
    monkeypatch.setenv("TENURE_TEST_THING", "1")
    for _ in range(2):
        async with Tenure("memory://"):
            pass
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        "TENURE_REPLICATTL is set, but has no effect. Did you mean TENURE_REPLICA_TTL?"
    )


@pytest.mark.parametrize("url", ["memory://", "sqlite:///tenure.db"])
async def test_a_fleet_needs_a_store_that_all_hosts_see(url: str):
    app = Tenure(url, scope="fleet")
    with pytest.raises(ConfigError, match=r"only, but scope='fleet' asks for .* redis://"):
        await app.open()
    with pytest.raises(ConfigError, match="scope='fleet'"):
        await app.clone().open()
    assert not await asyncio.to_thread(Path("tenure.db").exists)


async def test_the_scope_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TENURE_SCOPE", "fleet")
    with pytest.raises(ConfigError, match="one host only"):
        await Tenure().open()
    with pytest.raises(ConfigError, match="this process only"), blocking.Tenure("memory://"):
        pass
    async with Tenure(scope="host"):
        pass
    monkeypatch.setenv("TENURE_SCOPE", "cluster")
    with pytest.raises(ConfigError, match="TENURE_SCOPE must be 'process', 'host' or 'fleet'"):
        Tenure()


async def test_a_server_serves_a_fleet(valkey_server):
    async with Tenure(valkey_server.app_url, scope="fleet") as app:
        assert app.traits.scope == "fleet"
