"""Waiting and polling, by either client: at the server's pace, until the deadline."""

import asyncio
import time

import pytest

from tests.http.client.both_clients import AT_ONCE, Outage, Quiet, got
from tests.http.network import (
    Answered,
    HeaderSet,
    Mishap,
    ReplyLost,
    RequestHeaderLost,
    Trickled,
    Unreachable,
)
from tests.http.report_server import Server


async def test_waiting_survives_dropped_connections_and_errors(
    client, network, clock, server, gate
):
    job = await got(client.submit("/reports", {"gate": gate, "size": 1}))
    server.open(gate)
    network.expect(ReplyLost(), Answered(502), Unreachable(), Answered(503, {"Retry-After": "4"}))
    assert await got(job.result(timeout=60)) == {"pages": "x"}
    assert clock.pauses[3] >= 4
    assert len(network.sent) >= 6


async def test_one_long_poll_lasts_until_the_job_ends(client, network, clock, server, gate):
    job = await got(client.submit("/reports", {"gate": gate}))
    loop = asyncio.get_running_loop()
    opened = loop.run_in_executor(None, lambda: (time.sleep(0.2), server.open(gate)))
    await got(job.wait())
    await opened
    assert network.header("prefer")[1:] == ["wait=20"]
    assert clock.pauses == []


async def test_a_server_is_asked_to_wait_no_longer_than_the_deadline(client, network, gate):
    job = await got(client.submit("/reports", {"gate": gate}))
    with pytest.raises(TimeoutError):
        await got(job.wait(timeout=1.5))
    assert network.header("prefer")[1] == "wait=2"


async def test_a_server_that_does_not_wait_is_polled_at_its_pace(
    client, network, clock, server, gate
):
    job = await got(client.submit("/reports", {"gate": gate}))
    network.expect(
        RequestHeaderLost("prefer"),
        Then(RequestHeaderLost("prefer"), HeaderSet("Retry-After", "5")),
        Then(RequestHeaderLost("prefer"), Opened(server, gate)),
    )
    await got(job.wait(timeout=600))
    assert 1 <= clock.pauses[0] < 1.5
    assert 5 <= clock.pauses[1] < 5.5


@pytest.mark.parametrize("retry_after", AT_ONCE)
async def test_a_retry_after_of_zero_still_has_a_pause(client, network, clock, gate, retry_after):
    job = await got(client.submit("/reports", {"gate": gate}))
    network.expect(
        *[Then(RequestHeaderLost("prefer"), HeaderSet("Retry-After", retry_after))] * 100
    )
    with pytest.raises(TimeoutError):
        await got(job.wait(timeout=10))
    *pauses, _ = clock.pauses  # the last one ends with the deadline
    assert min(pauses) >= 0.25
    assert len(set(pauses)) == len(pauses)  # clients do not poll in step with each other
    await got(job.cancel())


class Then(Mishap):
    def __init__(self, *mishaps: Mishap):
        self._mishaps = mishaps

    def instead(self, request):
        for mishap in self._mishaps:
            mishap.instead(request)

    def afterwards(self, response):
        for mishap in self._mishaps:
            response = mishap.afterwards(response)
        return response


class Opened(Mishap):
    """Opens a gate while an answer is on its way."""

    def __init__(self, server: Server, gate: str):
        self._server, self._gate = server, gate

    def afterwards(self, response):
        self._server.open(self._gate)
        return response


async def test_a_deadline_ends_the_wait_and_not_the_job(client, server, gate):
    job = await got(client.submit("/reports", {"gate": gate, "size": 1}))
    since = time.monotonic()
    with pytest.raises(TimeoutError, match="goes on"):
        await got(job.result(timeout=0.3))
    assert 0.2 < time.monotonic() - since < 5
    server.open(gate)
    assert await got(job.result(timeout="20s")) == {"pages": "x"}


async def test_a_refresh_and_a_cancel_have_a_deadline(client, network, clock, gate):
    job = await got(client.submit("/reports", {"gate": gate}))
    outage = Outage()
    network.expect(*[outage] * 1000)
    for ask in (job.refresh, job.cancel, lambda timeout: client.job(job.url, timeout=timeout)):
        before = sum(clock.pauses)
        with pytest.raises(TimeoutError, match=f"not within 5 s: .*{job.id}"):
            await got(ask(timeout=5))
        assert sum(clock.pauses) - before < 5
    outage.is_over = True
    assert await got(job.refresh(timeout=20)) is job
    assert await got(job.cancel(timeout=20)) is job


async def test_patience_starts_when_a_poll_fails(kind, server, network, clock, user):
    client = kind(
        server.url, transport=network, clock=clock, headers={"X-User": user}, patience="10s"
    )
    job = await got(client.submit("/reports", {"size": 1}))
    network.expect(Quiet(clock, 25))
    assert await got(job.result(timeout=600)) == {"pages": "x"}
    await got(client.close())


async def test_an_answer_that_never_ends_does_not_outlast_the_deadline(client, network, gate):
    job = await got(client.submit("/reports", {"gate": gate}))
    network.expect(Trickled())
    since = time.monotonic()
    with pytest.raises(TimeoutError):
        await got(job.wait(timeout=0.2))
    assert time.monotonic() - since < 5
    await got(job.cancel())
