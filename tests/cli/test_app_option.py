"""`-A MODULE:APP` in place of a URL: the store of that app, and what it declares."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tenure import blocking
from tenure.app import engine_of
from tests.cli.conftest import Run
from tests.contract.job_calls import claim, join, settle

MODULE = """
from tenure import Tenure

app = Tenure("sqlite:///own.db", namespace="own")


@app.task(retry=4)
async def send() -> None: ...
"""


@pytest.fixture
def mailer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module with an app, in the current directory."""
    (tmp_path / "mailer.py").write_text(MODULE, "utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield import_module("mailer")
    sys.modules.pop("mailer")


@pytest.fixture
def job(mailer: Any) -> str:
    """The id of a job in the store of that app, which has failed once."""
    with blocking.Tenure(mailer.app) as sync:
        job, store = sync.enqueue(mailer.send.request()), engine_of(sync._app).store

        async def fail() -> None:
            await join(store, "web-1")
            [record] = await claim(store, "web-1")
            assert await settle(store, record, "retry", delay=600.0) == "settled"

        sync._portal().call(fail())
        return job.id


def test_the_store_and_the_tasks_of_an_app(cli: Run, job: str):
    result = cli("-A", "mailer:app", "jobs", "ls")
    assert (result.code, job in result.out) == (0, True)
    assert "own.db (from -A mailer:app), namespace own\n" in result.err
    document = cli("jobs", "ls", "--app", "mailer:app", "--json").json
    assert (document["store"], document["namespace"]) == ("sqlite:///own.db", "own")
    # The app knows how often its task is tried.
    out = cli("why", job, "-A", "mailer:app").out
    assert "It waits for retry 1 of 4 in " in out
    out = cli("--url", "sqlite:///own.db", "--namespace", "own", "why", job).out
    assert "It waits for retry 1 in " in out


def test_doctor_examines_the_store_of_an_app(cli: Run, job: str):
    result = cli("doctor", "-A", "mailer:app")
    assert result.code == 0
    assert "1 job, none is due" in result.out
    assert cli("doctor", "-A", "mailer:app", "--probe").code in (0, 1)


@pytest.mark.parametrize("others", [("--url", "memory://"), ("--namespace", "x")])
def test_an_app_brings_its_own_url_and_namespace(cli: Run, mailer: Any, others: tuple[str, str]):
    for arguments in (
        ("-A", "mailer:app", *others, "jobs", "ls"),
        ("-A", "mailer:app", "jobs", "ls", *others),
        (*others, "jobs", "ls", "-A", "mailer:app"),
    ):
        result = cli(*arguments)
        assert result.code == 2
        assert "-A names a store, so leave out --url and --namespace." in result.err


def test_an_app_that_is_not_there(cli: Run):
    result = cli("-A", "no_such_module:app", "jobs", "ls")
    assert (result.code, result.out) == (2, "")
    assert "there is no module 'no_such_module'" in result.err
    document = cli("-A", "no_such_module", "jobs", "ls", "--json").json
    assert document["kind"] == "ConfigError"


def test_a_worker_names_its_app_itself(cli: Run, mailer: Any):
    result = cli("-A", "mailer:app", "worker", "mailer:app", "--burst")
    assert result.code == 2
    assert "this command takes no -A, --url and --namespace" in result.err
