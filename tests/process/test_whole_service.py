"""The service of docs/whole-service.md, started by its own commands, while its parts are killed."""

import json
import os
import re
import shlex
import socket
from collections.abc import Callable, Mapping
from contextlib import closing
from email.message import Message
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.rig.processes import Child, Fleet
from tests.rig.sizes import SIZE
from tests.rig.wait import wait_until

PAGE = (Path(__file__).parents[2] / "docs" / "whole-service.md").read_text("utf-8")
ANN = {"X-User": "ann"}
# Each process imports FastAPI, which takes long on a busy machine.
PATIENCE = 6 * SIZE.patience
Start = Callable[[str], Child]


def commands() -> list[str]:
    [block] = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return block.splitlines()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def start(fleet: Fleet, tmp_path: Path) -> Start:
    """Write the files of the page; start a command of it beside them."""
    for name, code in re.findall(
        r"^```python\n# (\S+\.py)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(code)
    paths = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    url = f"sqlite:///{tmp_path}/tenure.db"
    environment = {"TENURE_URL": url, "TENURE_REPLICA_TTL": "2", "PYTHONPATH": paths}

    def run(command: str) -> Child:
        words = shlex.split(command)
        module = words[1:] if words[0] == "python" else ["-m", *words]
        return fleet.start(*module, env=environment, cwd=tmp_path)

    return run


def ask(method: str, url: str, headers: Mapping[str, str] = ANN) -> tuple[int, Message, bytes]:
    """Make a request; return status, headers and body. Raises OSError if no server answers."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection = HTTPConnection(parts.hostname, parts.port, timeout=20)
    with closing(connection):
        connection.request(method, f"{parts.path}?{parts.query}", headers=dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


def is_up(url: str) -> bool:
    try:
        return ask("GET", f"{url}/health/ready")[0] == 200
    except OSError:
        return False


def submit(url: str) -> str:
    status, headers, body = ask("POST", f"{url}/reports?month=5")
    assert status == 202, body
    return headers["location"]


def result(url: str, job: str) -> object:
    bodies: list[bytes] = []

    def fetched() -> bool:
        status, _, body = ask("GET", f"{url}{job}/result")
        bodies.append(body)
        return status == 200

    wait_until(fetched, PATIENCE, "the job has a result")
    return json.loads(bodies[-1])


@pytest.mark.timeout(15 * SIZE.patience)
def test_the_service_of_the_page_outlives_its_parts(start: Start):
    migrate, first, second, work, nightly = commands()
    assert start(migrate).wait(PATIENCE) == 0
    urls, replicas = [], []
    for command in (first, second):
        port = free_port()
        urls.append(f"http://127.0.0.1:{port}")
        replicas.append(start(re.sub(r"--port \d+", f"--port {port}", command)))
    for url in urls:
        wait_until(lambda url=url: is_up(url), PATIENCE, f"{url} answers")

    # Routes of the service itself use the app as well; both replicas share the unique key.
    closings = [ask("POST", f"{url}/months/5/close") for url in urls]
    assert [status for status, _, _ in closings] == [200, 200]
    assert closings[0][2] == closings[1][2]

    # The pages are served, and ask who looks.
    assert [ask("GET", f"{url}/ops/jobs")[0] for url in urls] == [200, 200]
    assert ask("GET", f"{urls[0]}/ops/api/session", {})[0] == 401

    # Without workers jobs wait; the replica that took it dies.
    job = submit(urls[0])
    replicas[0].kill()
    worker = start(work)
    assert result(urls[1], job) == "report of month 5"

    script = start(nightly)
    assert script.wait(PATIENCE) == 0
    assert start(nightly).wait(PATIENCE) == 0  # its lock was given back

    # The supervisor dies, another one is started.
    worker.kill()
    job = submit(urls[1])
    start(work)
    assert result(urls[1], job) == "report of month 5"
