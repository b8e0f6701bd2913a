"""`tenure ping`: for probes, so its exit status counts."""

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cli.conftest import Place, Run
from tests.rig.processes import Fleet
from tests.rig.wait import wait_until

CHILD = {
    "pid": 8,
    "replica": "r",
    "alive": True,
    "retiring": False,
    "running": 3,
    "ended": 5,
    "memory": 1,
}
CHILDREN = [{**CHILD, "age_seconds": 60.0}, {**CHILD, "age_seconds": 5.0}]
STATUS: dict[str, Any] = {
    "pid": 7,
    "stopping": False,
    "ready": True,
    "last_beat_seconds_ago": 0.5,
    "children": CHILDREN,
}

Answering = Callable[[bytes | None], Path]


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[Answering]:
    """Make a socket at which somebody answers with these bytes, or not at all."""
    listener = socket.socket(socket.AF_UNIX)
    path = tmp_path / "health"

    def answer(reply: bytes) -> None:
        while True:
            try:
                line, _ = listener.accept()
            except OSError:
                return
            with closing(line):
                line.sendall(reply)

    def start(reply: bytes | None) -> Path:
        listener.bind(os.fspath(path))
        listener.listen()
        if reply is not None:
            threading.Thread(target=answer, args=(reply,), daemon=True).start()
        return path

    yield start
    # Closing alone does not wake the thread that waits in accept.
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def told_by(status: dict[str, Any]) -> bytes:
    return msgspec.json.encode(status) + b"\n"


@pytest.mark.parametrize(
    ("changes", "state", "ready"),
    [
        ({}, "ready", True),
        ({"ready": False, "last_beat_seconds_ago": None}, "starting", False),
        ({"ready": False, "waiting_for_store": True}, "waiting for its store", False),
        (
            {"ready": False, "last_beat_seconds_ago": 60.0},
            "not ready: the store last answered 1 min ago",
            False,
        ),
        ({"ready": False, "stopping": True}, "stopping", False),
    ],
)
def test_it_asks_whether_a_worker_lives_or_also_works(
    cli: Run, answering: Answering, changes: dict[str, Any], state: str, ready: bool
):
    path = answering(told_by({**STATUS, **changes}))
    alive = cli("ping", "--health", path)
    assert (alive.code, alive.err) == (0, "")
    assert alive.out == (
        f"worker 7 is {state}; worker processes: 2, the oldest for 1 min; running jobs: 6\n"
    )
    assert cli("ping", "--health", path, "--ready").code == (0 if ready else 1)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"alive": False}, "paused or dead: process 9"),
        ({"replica": None}, "not joined yet: process 9"),
    ],
)
def test_one_that_is_not_ready_names_the_process_that_is_missing(
    cli: Run, answering: Answering, change: dict[str, Any], why: str
):
    other = {**CHILD, "pid": 9, "age_seconds": 5.0, **change}
    path = answering(told_by({**STATUS, "ready": False, "children": [CHILDREN[0], other]}))
    assert cli("ping", "--health", path).out.startswith(f"worker 7 is not ready: {why}; ")


def test_one_whose_process_waits_to_be_started_again_counts_them(cli: Run, answering: Answering):
    """Its store may have answered just now."""
    path = answering(told_by({**STATUS, "ready": False, "processes": 3}))
    out = cli("ping", "--health", path).out
    assert out.startswith("worker 7 is not ready: 2 of 3 worker processes have started; ")


@pytest.mark.parametrize("children", [[], [{**CHILD, "age_seconds": 0.02, "running": 0}]])
def test_no_age_is_told_where_there_is_none(cli: Run, answering: Answering, children: list[Any]):
    path = answering(told_by({**STATUS, "ready": False, "children": children}))
    result = cli("ping", "--health", path)
    assert result.out.endswith(f"worker processes: {len(children)}; running jobs: 0\n")


def test_with_json_it_hands_on_what_the_worker_says(cli: Run, answering: Answering):
    assert cli("ping", "--json", "--health", answering(told_by(STATUS))).json == STATUS


def test_the_path_may_stand_in_the_environment(
    cli: Run, answering: Answering, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TENURE_HEALTH", str(answering(told_by(STATUS))))
    assert cli("ping").code == 0


def test_without_a_path_it_asks_for_one(cli: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TENURE_HEALTH", raising=False)
    result = cli("ping")
    assert result.code == 2
    assert "--health PATH, or TENURE_HEALTH." in result.err


def test_where_no_worker_is_it_ends_with_1(cli: Run, tmp_path: Path):
    result = cli("ping", "--health", tmp_path / "health")
    assert (result.code, result.out) == (1, "")
    assert result.err.endswith("health: No such file or directory.\n")
    result = cli("ping", "--json", "--health", tmp_path / "health")
    assert result.code == 1
    assert result.json["kind"] == "NoAnswer"


def test_a_worker_that_says_nothing_is_not_waited_for(cli: Run, answering: Answering):
    result = cli("ping", "--health", answering(None), "--timeout", "100ms")
    assert result.code == 1
    assert result.err.endswith("health: timed out.\n")


@pytest.mark.parametrize("reply", [b"", b"HTTP/1.1 400 Bad Request\r\n", b"[1]"])
def test_something_else_is_no_worker(cli: Run, answering: Answering, reply: bytes):
    result = cli("ping", "--health", answering(reply))
    assert result.code == 1
    assert result.err.endswith("health: what answers there is no worker.\n")


MODULE = """
import asyncio, pathlib, sys, time
from tenure import Tenure

app = Tenure()

@app.task
async def stay() -> None:
    while not pathlib.Path("done").exists():
        await asyncio.sleep(0.02)

if "child_process" in sys.argv[0]:
    while not pathlib.Path("begin").exists():
        time.sleep(0.02)
"""


def test_a_worker_from_its_start_to_its_end(
    cli: Run, fleet: Fleet, file_place: Place, tmp_path: Path
):
    path = tmp_path / "health"
    (tmp_path / "shop.py").write_text(MODULE)
    command = ("-m", "tenure", "worker", "shop:app", "--processes", "2", "--health", str(path))
    environment = {"TENURE_URL": file_place.url}

    def ping(*options: str) -> int:
        return cli("ping", "--health", path, *options).code

    worker = fleet.start(*command, env=environment, cwd=tmp_path)
    wait_until(lambda: ping() == 0, 20)
    assert ping("--ready") == 1  # its children are not there yet
    (tmp_path / "begin").touch()
    wait_until(lambda: ping("--ready") == 0, 20)
    status = cli("ping", "--health", path, "--json").json
    assert (status["pid"], len(status["children"])) == (worker.pid, 2)

    second = fleet.start(*command, env=environment, cwd=tmp_path)
    assert second.wait() == 2
    assert f"another supervisor answers at {path}." in second.stderr
    assert ping("--ready") == 0

    os.kill(worker.pid, signal.SIGSTOP)
    assert ping("--timeout", "100ms") == 1
    os.kill(worker.pid, signal.SIGCONT)
    assert ping() == 0

    scope: dict[str, Any] = {}
    exec(MODULE.replace("Tenure()", f"Tenure({file_place.url!r})"), scope)
    with file_place.app() as app:
        job = app.enqueue(scope["stay"].request())
        wait_until(lambda: job.refresh().state == "running", 20)
    worker.terminate()
    wait_until(lambda: "is stopping" in cli("ping", "--health", path).out, 20)
    assert (ping(), ping("--ready")) == (0, 1)
    (tmp_path / "done").touch()
    assert worker.wait() == 0
    assert not path.exists()
