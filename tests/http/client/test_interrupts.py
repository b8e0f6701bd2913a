"""Interrupts in calls of the plain client: it stays usable, and no connection is lost.

The client may have one connection. If an interrupted call kept it, the next call would find none.
"""

import inspect
from collections.abc import Callable, Iterator
from types import FunctionType

import httpx2
import pytest

from tenure.http import Client
from tenure.http.client.client import RemoteJob
from tests.http.report_server import Server
from tests.rig.interrupts import INTERRUPTS, interrupted, waits_for_a_server

CALLS: dict[str, Callable[[Client, RemoteJob], object]] = {
    "Client.submit": lambda client, _: client.submit("/reports", {"size": 1}),
    "Client.job": lambda client, job: client.job(job.url),
    "RemoteJob.refresh": lambda _, job: job.refresh(),
    "RemoteJob.wait": lambda _, job: job.wait(),
    "RemoteJob.result": lambda _, job: job.result(),
    "RemoteJob.cancel": lambda _, job: job.cancel(),
    "RemoteJob.events": lambda _, job: list(job.events()),
}
AT_ONCE = {"Client.close", "Client.__enter__", "Client.__exit__"}
"""Calls that do not wait for the server."""


@pytest.fixture
def plain_client(server: Server, user: str) -> Iterator[Client]:
    single_connection = httpx2.Limits(max_connections=1, max_keepalive_connections=1)
    with Client(
        server.url, limits=single_connection, patience=20, headers={"X-User": user}
    ) as client:
        yield client


def test_every_public_call_is_tested_with_interrupts_or_returns_at_once():
    public = {
        f"{kind.__name__}.{name}"
        for kind in (Client, RemoteJob)
        for base in kind.__mro__
        if base.__module__.startswith("tenure.")
        for name, member in inspect.getmembers(
            base, lambda member: isinstance(member, FunctionType)
        )
        if not name.startswith("_") or name in ("__enter__", "__exit__")
    }
    assert CALLS.keys() | AT_ONCE == public


@pytest.mark.parametrize("kind", INTERRUPTS)
@pytest.mark.parametrize("call", CALLS)
def test_a_client_can_be_used_after_an_interrupt(
    plain_client: Client, server: Server, gate: str, call: str, kind: str
):
    job = plain_client.submit("/reports", {"gate": gate, "size": 2})
    error = INTERRUPTS[kind]()
    with (
        server.stuck(),
        pytest.raises(type(error)) as caught,
        interrupted(error, lambda: True, waits_for_a_server),
    ):
        CALLS[call](plain_client, job)
    assert caught.value is error
    server.open(gate)
    assert job.wait(timeout=20).is_finished
    assert plain_client.submit("/reports", {"size": 3}).result(timeout=20) == {"pages": "xxx"}


@pytest.mark.parametrize("kind", INTERRUPTS)
def test_a_client_can_be_used_after_an_interrupt_between_events(
    plain_client: Client, server: Server, gate: str, kind: str
):
    job = plain_client.submit("/reports", {"gate": gate, "size": 2})
    error = INTERRUPTS[kind]()
    with pytest.raises(type(error)) as caught:
        for _ in job.events():
            raise error
    assert caught.value is error
    server.open(gate)
    assert job.result(timeout=20) == {"pages": "xx"}
