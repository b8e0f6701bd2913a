"""Events, by either client: none twice, always the last one, over dropped streams."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from msgspec import json

from tenure import JobNotFound
from tenure.http import Client, JobEvent, RequestRefused, ServerUnreachable, UnusableAnswer
from tenure.http.client.remote_job import _Lines
from tests.http.client.both_clients import Quiet, each, followed, got
from tests.http.network import (
    Answered,
    Cut,
    Doubled,
    HeldOpen,
    RequestHeaderLost,
    Unreachable,
)
from tests.http.report_server import Server
from tests.rig.servers import free_port
from tests.rig.wait import wait_until_async


async def test_events_follow_a_job_to_its_end(client, server, gate):
    job = await got(client.submit("/reports", {"steps": 2, "size": 1, "gate": gate}))
    seen = await followed(job.events(), server, gate)
    assert strictly_rise(seen)
    assert (seen[-1].kind, seen[-1].job.result) == ("result", {"pages": "x"})
    assert seen[-1].job.progress.message == "step\u20281"
    assert job.resource == seen[-1].job

    assert [event async for event in each(job.events())] == seen[-1:]
    assert [event async for event in each(job.events(after=seen[-1].revision))] == []


def strictly_rise(seen: list[JobEvent]) -> bool:
    revisions = [event.revision for event in seen]
    return bool(revisions) and revisions == sorted(set(revisions))


@pytest.mark.parametrize("cleanly", [False, True])
async def test_a_dropped_stream_is_resumed_where_it_ended(
    client, network, clock, server, gate, cleanly
):
    job = await got(client.submit("/reports", {"steps": 3, "size": 1, "gate": gate}))
    network.expect(Cut(1, cleanly=cleanly), Unreachable(), Answered(503), Cut(1, cleanly=cleanly))
    seen = await followed(job.events(), server, gate)
    assert strictly_rise(seen)
    assert seen[-1].job.state == "succeeded"
    resumed_after = network.header(
        "last-event-id", of=lambda request: request.url.path.endswith("/events")
    )
    first, second = str(seen[0].revision), str(seen[1].revision)
    assert resumed_after == [None, first, first, first, second]
    assert len(clock.pauses) == 4


async def test_slow_reading_does_not_use_up_patience(client, network, clock, server, gate):
    job = await got(client.submit("/reports", {"steps": 2, "gate": gate}))
    network.expect(*[Cut(1, cleanly=True)] * 2, Unreachable(), Answered(503))
    seen = []
    async for event in each(job.events()):
        seen.append(event)
        clock.pause(600)  # ten times the patience of a client
        server.open(gate)
    assert strictly_rise(seen)
    assert seen[-1].job.state == "succeeded"


async def test_a_silent_stream_is_resumed_again_and_again(client, network, clock):
    job = await got(client.submit("/reports", {"size": 1}))
    network.expect(*[Quiet(clock, 45)] * 5)
    seen = [event async for event in each(job.events())]
    assert seen[-1].job.state == "succeeded"
    between = [pause for pause in clock.pauses if pause != 45]
    assert len(between) == 5
    assert min(between) >= 0.25


async def test_a_server_that_stays_away_after_a_silent_stream_is_given_up(client, network, clock):
    job = await got(client.submit("/reports", {}))
    network.expect(Quiet(clock, 45), *[Unreachable()] * 1000)
    with pytest.raises(ServerUnreachable) as gone:
        [event async for event in each(job.events())]
    assert gone.value.key is None
    assert 30 < sum(clock.pauses) - 45 <= 60


async def test_an_event_that_is_sent_twice_is_returned_once(client, network, server, gate):
    job = await got(client.submit("/reports", {"steps": 3, "gate": gate}))
    network.expect(Doubled())
    seen = await followed(job.events(), server, gate)
    assert strictly_rise(seen)
    assert seen[-1].job.state == "succeeded"

    network.expect(RequestHeaderLost("last-event-id"))
    after = seen[-1].revision
    assert [event async for event in each(job.events(after=after))] == []


async def test_old_events_are_skipped_and_later_ones_are_not(client, network, server, gate):
    job = await got(client.submit("/reports", {"steps": 3, "gate": gate}))
    seen = await followed(job.events(), server, gate)
    text = "".join(
        f"id: {revision}\nevent: {each.kind}\ndata: {json.encode(each.job).decode()}\n\n"
        for each, revision in [
            (seen[0], 1),
            (seen[0], 2),
            (seen[1], 7),
            (seen[0], 3),
            (seen[-1], 9),
        ]
    )
    events = {"Content-Type": "text/event-stream"}
    network.expect(Answered(200, events, text.encode()))
    again = [event async for event in each(job.events(after=2))]
    assert [event.revision for event in again] == [7, 9]
    assert [event.kind for event in again] == [seen[1].kind, "result"]


@pytest.mark.parametrize("revision", ["", "id: x\n", "id: \u0663\n", "id: -1\n"])
async def test_events_without_a_revision_are_refused(client, network, revision):
    job = await got(client.submit("/reports", {}))
    text = f"{revision}data: {{}}\n\n".encode()
    network.expect(Answered(200, {"Content-Type": "text/event-stream"}, text))
    with pytest.raises(UnusableAnswer, match="no revision"):
        [event async for event in each(job.events())]


async def test_events_end_with_the_job_however_long_the_stream_is_open(client, network):
    job = await got(client.submit("/reports", {}, wait=20))
    network.expect(HeldOpen())
    assert len([event async for event in each(job.events(timeout=30))]) == 1


async def test_events_raise_a_timeout_error_at_their_deadline(client, gate):
    job = await got(client.submit("/reports", {"gate": gate}))
    since = time.monotonic()
    with pytest.raises(TimeoutError, match="goes on"):
        async for _ in each(job.events(timeout=0.3)):
            pass
    assert time.monotonic() - since < 10
    await got(job.cancel())


async def test_events_that_cannot_be_had_raise_the_matching_error(client, network, clock):
    job = await got(client.submit("/reports", {}))
    gone = b'{"type": "urn:tenure:problem:not-found", "title": "", "status": 404}'
    network.expect(Answered(404, body=gone), Answered(401), Answered(200, body=b"<html>"))
    for error in (JobNotFound, RequestRefused, UnusableAnswer):
        with pytest.raises(error):
            [event async for event in each(job.events())]
    network.expect(*[Unreachable()] * 1000)
    with pytest.raises(ServerUnreachable):
        [event async for event in each(job.events())]
    assert sum(clock.pauses) <= 60


async def test_leaving_a_stream_leaves_no_connection_behind(client, server, gate):
    job = await got(client.submit("/reports", {"gate": gate}))
    events = job.events()
    async for _ in each(events):
        break
    await got(events.aclose() if hasattr(events, "aclose") else events.close())
    server.open(gate)
    await got(job.wait(timeout=20))


EVENTS = (
    'id: 1\nevent: state\ndata: {"a":"\u2028\x85"}\n\n: ping\n\nid: 2\r\ndata: a\r\ndata: b\r\n\r\n'
)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_are_parsed_however_they_are_cut_into_parts(size):
    raw, lines = EVENTS.encode(), _Lines()
    parts = [raw[at : at + size] for at in range(0, len(raw), size)]
    assert [fields for part in parts for fields in lines.feed(part)] == [
        {"id": "1", "event": "state", "data": '{"a":"\u2028\x85"}'},
        {"id": "2", "data": "a\nb"},
    ]


async def test_a_stream_survives_a_restart_of_the_server(kind, tmp_path, user, gate):
    url, port = f"sqlite:///{tmp_path}/jobs.db", free_port()
    client = kind(f"http://127.0.0.1:{port}", headers={"X-User": user}, verify=False)
    first, second = Server(url, port), Server(url, port)
    first.start()
    try:
        job = await got(client.submit("/reports", {"steps": 1, "gate": gate}))
        follow = asyncio.to_thread(list, job.events()) if kind is Client else listed(job.events())
        following = asyncio.create_task(follow)
        await wait_until_async(lambda: job.resource.state == "running")
    finally:
        await asyncio.to_thread(first.stop)
    assert not following.done()
    second.open(gate, 2)
    with second.running():
        seen = await following
    assert strictly_rise(seen)
    assert seen[-1].job.state == "succeeded"
    await got(client.close())


async def listed(events: AsyncIterator[JobEvent]) -> list[JobEvent]:
    return [event async for event in events]
