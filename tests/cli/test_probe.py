"""`tenure doctor --probe`: health for probes, so its exit status and its time count."""

import asyncio
import subprocess
import sys
import time

import pytest

import tenure
from tenure import blocking
from tests.cli.conftest import Place, Run
from tests.rig.fixtures import Endpoint, ProxyTo
from tests.rig.wait import wait_until_async


def test_a_healthy_store_ends_with_0(cli: Run, place: Place):
    result = cli(*place.options, "doctor", "--probe")
    assert (result.code, result.err) == (0, "")
    first, *rows = result.out.splitlines()
    assert first == "healthy"
    assert [row.split()[1] for row in rows] == [
        *("store", "writes", "clock", "grade", "workers", "queues")
    ]
    with place.app() as app:
        assert app.locks() == []


def test_the_document_is_that_of_the_app(cli: Run, file_place: Place):
    document = cli(*file_place.options, "doctor", "--probe", "--json").json
    assert document["store"] == file_place.url
    with file_place.app() as app:
        expected = app.health().document()
    for check in [*document["checks"], *expected["checks"]]:
        del check["seconds"], check["detail"]
    assert {name: document[name] for name in expected} == expected


def test_what_is_degraded_ends_with_1(cli: Run, file_place: Place):
    shop = tenure.Tenure(file_place.url)

    @shop.task
    def send_mail() -> None: ...

    with blocking.Tenure(shop) as app:
        app.enqueue(send_mail.request())
    result = cli(*file_place.options, "doctor", "--probe")
    assert result.code == 1
    assert "none is alive; unfinished jobs: 1" in result.out


def test_timers_without_a_worker_are_degraded(cli: Run, file_place: Place):
    shop = tenure.Tenure(file_place.url)

    @shop.timer(every="1h")
    async def sync_orders() -> None: ...

    async def a_worker_that_leaves() -> None:
        async with shop, shop.worker():
            await wait_until_async(shop.timers)

    asyncio.run(a_worker_that_leaves())
    result = cli(*file_place.options, "doctor", "--probe")
    assert (result.code, "the timers in the store do not tick" in result.out) == (1, True)


@pytest.mark.parametrize("url", ["redis://me:secret@127.0.0.1:1", "sqlite:///missing.db"])
def test_what_cannot_be_opened_is_unhealthy_and_ends_with_2(cli: Run, url: str):
    document = cli("--url", url, "doctor", "--probe", "--json")
    assert (document.code, document.json["status"]) == (2, "unhealthy")
    assert "secret" not in document.out


def test_a_grade_can_be_required(cli: Run, file_place: Place):
    assert cli(*file_place.options, "doctor", "--probe", "--require", "A").code == 0
    result = cli("--url", "memory://", "doctor", "--probe", "--require", "A")
    assert (result.code, "guarantee grade D" in result.out) == (2, True)


def test_a_silent_server_takes_no_longer_than_the_timeout(
    cli: Run, valkey_server: Endpoint, proxy: ProxyTo
):
    line = proxy(valkey_server)
    line.freeze()
    began = time.monotonic()
    result = cli("--url", line.url(valkey_server.url), "doctor", "--probe", "--timeout", "500ms")
    assert (result.code, "no answer within 0.5 s" in result.out) == (2, True)
    assert time.monotonic() - began < 4  # connections give up after 5 s


def test_the_time_that_opening_takes_is_part_of_the_timeout(
    cli: Run, file_place: Place, monkeypatch: pytest.MonkeyPatch
):
    left = []
    open_app, health = tenure.Tenure.open, tenure.Tenure.health

    async def open_slowly(app: tenure.Tenure) -> None:
        await asyncio.sleep(0.2)
        await open_app(app)

    async def look(app: tenure.Tenure, timeout: float) -> tenure.Health:
        left.append(timeout)
        return await health(app, timeout)

    monkeypatch.setattr(tenure.Tenure, "open", open_slowly)
    monkeypatch.setattr(tenure.Tenure, "health", look)
    cli(*file_place.options, "doctor", "--probe", "--timeout", "20s")
    assert 0 < left[0] <= 19.8


SILENT_NAME_SERVER = """
import socket, sys, time
socket.getaddrinfo = lambda *_, **__: time.sleep(20)
from tenure.cli.main import entry
entry()
"""


@pytest.mark.parametrize("url", ["redis://store.test/0", "postgresql://store.test/shop"])
def test_a_silent_name_server_takes_no_longer_than_the_timeout(url: str):
    """In a process of its own: its end is what a probe waits for."""
    command = [sys.executable, "-c", SILENT_NAME_SERVER, "--url", url]
    began = time.monotonic()
    ended = subprocess.run(
        [*command, "doctor", "--probe", "--timeout", "500ms"], capture_output=True, check=False
    )
    assert (ended.returncode, b"no answer within 0.5 s" in ended.stdout) == (2, True)
    assert time.monotonic() - began < 12  # most of it is the start of Python


def test_options_of_the_full_examination_are_refused(cli: Run):
    result = cli("doctor", "--probe", "--strict")
    assert (result.code, "--probe knows no --strict" in result.err) == (2, True)
