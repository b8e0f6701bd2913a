"""The command line as a test sees it: run in this process, or as a program of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
from click.testing import CliRunner

from tenure import blocking
from tenure.cli.commands import tenure
from tests.rig.fixtures import require
from tests.rig.mounts import told_mounts
from tests.rig.servers import Postgres

pytest.register_assert_rewrite("tests.cli.examination")

_OURS = (
    "TENURE_URL",
    "TENURE_NAMESPACE",
    "TENURE_SCOPE",
    "TENURE_CONNECT",
    "REDIS_URL",
    "DATABASE_URL",
    "KUBERNETES_SERVICE_HOST",
    "NO_COLOR",
    "FORCE_COLOR",
    "TTY_COMPATIBLE",
)


@dataclass(frozen=True)
class Result:
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout; nothing may stand beside it."""
        assert self.err == ""
        return json.loads(self.out)


class Run(Protocol):
    """Runs `tenure` with these arguments; `given` is typed in."""

    def __call__(self, *arguments: str | Path, answer: str = "") -> Result:
        """Return what it said."""


@dataclass(frozen=True)
class Place:
    """A store that several processes can see, made ready, with a namespace of this test's own."""

    family: str
    url: str
    namespace: str

    @property
    def options(self) -> tuple[str, ...]:
        return ("--url", self.url, "--namespace", self.namespace)

    def app(self) -> blocking.Tenure:
        """Return an app for the test itself, which holds what the commands look at."""
        return blocking.Tenure(self.url, namespace=self.namespace)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out memory where other processes are to see the store."""
    items[:] = [item for item in items if _fits(item)]


def _fits(item: pytest.Item) -> bool:
    if item.path.parent != Path(__file__).parent or "place" not in getattr(
        item, "fixturenames", ()
    ):
        return True
    callspec = getattr(item, "callspec", None)
    return callspec is None or callspec.params.get("family") != "memory"


@pytest.fixture(autouse=True)
def _own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the store, or leaves one, of whoever runs it."""
    for name in _OURS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _files_on_a_disk(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`scripts/test.py` may keep the files of tests in memory, which doctor warns about."""
    told_mounts(monkeypatch, tmp_path_factory.mktemp("mounts"), {Path("/"): "ext4"})


@pytest.fixture
def cli() -> Run:
    """The command within this process."""

    def run(*arguments: str | Path, answer: str = "") -> Result:
        result = CliRunner().invoke(tenure, [*map(str, arguments)], answer, prog_name="tenure")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Result(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def shell(tmp_path: Path) -> Run:
    """The command as a program: `python -m tenure`."""

    def run(*arguments: str | Path, answer: str = "") -> Result:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "tenure", *map(str, arguments)],
            input=answer,
            capture_output=True,
            encoding="utf-8",
            cwd=tmp_path,
            env=dict(os.environ),
            timeout=30,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def place(family: str, world_url: str, namespace: str) -> Place:
    """A store on each kind of server, opened once so that its format is there."""
    place = Place(family, world_url, namespace)
    with place.app():
        return place


@pytest.fixture
def file_place(tmp_path: Path) -> Place:
    """A store in a file, for what does not depend on the store."""
    place = Place("sqlite", f"sqlite:///{tmp_path}/shop.db", "tenure")
    with place.app():
        return place


@pytest.fixture(scope="module")
def roomy_postgres() -> Iterator[Postgres]:
    """A PostgreSQL server whose settings are as good as they get, for a whole module."""
    require("postgres")
    settings = {"fsync": "on", "full_page_writes": "on", "max_connections": "20"}
    settings["max_prepared_transactions"] = "2"
    with Postgres(config=settings) as server:
        yield server
