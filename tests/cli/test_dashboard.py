"""`tenure dashboard`: where it listens, whom it lets in, and how it starts and ends."""

import base64
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.cli.conftest import Run

APP = """
from tenure import Tenure

app = Tenure("sqlite:///shop.db")


@app.task(queue="mail")
async def send() -> None: ...
"""
SIGN_IN = {"TENURE_DASHBOARD_USER": "ann", "TENURE_DASHBOARD_PASSWORD": "hunter2"}


@contextmanager
def served(folder: Path, *arguments: str, env: Mapping[str, str] = {}) -> Iterator[str]:
    """Run the command; yield its address. It must end with 0 after Ctrl-C."""
    command = [sys.executable, "-W", "error", "-m", "tenure", "dashboard", "--port", "0", "--json"]
    with subprocess.Popen(
        [*command, *arguments],
        cwd=folder,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            lines = []
            while not lines or lines[-1] != "}\n":
                line = process.stdout.readline()
                assert line, process.stderr.read()
                lines.append(line)
            yield json.loads("".join(lines))["address"]
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=20)
            assert (process.returncode, "Traceback" in errors) == (0, False), errors
        finally:
            process.kill()


def status_of(address: str, headers: Mapping[str, str] = {}) -> tuple[int, str]:
    try:
        with urlopen(Request(address, headers=dict(headers)), timeout=10) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_it_serves_an_app_on_this_machine_only(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    with served(tmp_path, "shop:app", "--title", "The shop") as address:
        assert address.startswith("http://127.0.0.1:")
        status, body = status_of(f"{address}api/session")
        session = json.loads(body)
        assert (status, session["app"], session["viewer"]) == (200, "The shop", None)
        assert session["may"] == {"act": False, "reveal": False, "owners": False}
        assert status_of(f"{address}api/jobs")[0] == 200
        # A page of another site that gives its name this address (DNS rebinding).
        assert status_of(f"{address}api/jobs", {"host": "evil.test"})[0] == 421


def test_a_sign_in_lets_one_viewer_act(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    with served(tmp_path, url, "--root-path", "/ops/", "--reveal", env=SIGN_IN) as address:
        assert address.endswith("/ops/")
        here = address.removesuffix("ops/")
        assert status_of(here)[0] == 401
        credentials = base64.b64encode(b"ann:hunter2").decode()
        headers = {"authorization": f"Basic {credentials}", "host": "ops.test"}
        status, body = status_of(f"{here}api/session", headers)
        assert (status, json.loads(body)["viewer"]) == (200, "ann")
        assert json.loads(body)["may"] == {"act": True, "reveal": True, "owners": True}
        # The store has no tables, and the command makes none.
        assert status_of(f"{here}api/jobs", headers)[0] == 503
    assert not (tmp_path / "shop.db").exists()


def test_it_waits_for_a_store_that_is_away(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen
        url = f"redis://127.0.0.1:{closed.getsockname()[1]}/0"
        with served(tmp_path, "--url", url) as address:
            status, body = status_of(f"{address}api/overview")
            assert (status, json.loads(body)["title"]) == (503, "The store cannot be read")


@pytest.mark.parametrize(
    ("arguments", "env", "message"),
    [
        (["--host", "0.0.0.0"], {}, "the dashboard needs a sign-in: set TENURE_DASHBOARD_USER"),
        (["--host", "10.1.2.3"], {}, "the dashboard needs a sign-in"),
        (["--host", "ops.test"], {}, "the dashboard needs a sign-in"),
        (["--host", "::"], {}, "the dashboard needs a sign-in"),
        ([], {"TENURE_DASHBOARD_USER": "ann"}, "Set both"),
        ([], {"TENURE_DASHBOARD_PASSWORD": "x"}, "Set both"),
        (["--reveal"], {}, "--reveal needs a sign-in"),
        (["--url", "memory://", "redis://x"], {}, "Give the URL once"),
        (["--url", "memory://", "shop:app"], {}, "leave out --url"),
        (["nowhere:app"], {}, "there is no module 'nowhere'"),
        (["ftp://x"], {}, "ftp"),
    ],
)
def test_wrong_uses_are_explained(
    cli: Run,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    env: dict[str, str],
    message: str,
) -> None:
    for name in SIGN_IN:
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    answer = cli("dashboard", "--port", "0", *arguments)
    assert answer.code == 2
    assert message in answer.err
    assert "hunter2" not in answer.err


def test_a_taken_port_is_explained(cli: Run, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        answer = cli("dashboard", "--url", f"sqlite:///{tmp_path}/shop.db", "--port", port)
    assert answer.code == 2
    assert f"cannot listen at 127.0.0.1:{port}: " in answer.err
    assert "--port" in answer.err
