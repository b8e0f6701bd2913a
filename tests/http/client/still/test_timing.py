"""When a client retries, how long it waits and when it gives up: exact, on a still clock."""

import httpx2
import pytest

from tenure.http import RequestRefused, ServerUnreachable
from tests.http.client.both_clients import each, got
from tests.http.client.still_clock import PLACE, After, event, shown, stored, stream
from tests.http.network import Answered, Mishap, Network, Unreachable

JITTER = 0.125
"""The pause after the first failed try: half of its maximum."""
APART = 0.125
"""Added to the pause that a server asks for: half of a quarter of a second."""
ENDED = shown("succeeded", result=1)


def limits(network: Network, which: str) -> list[float]:
    """Return one of the limits that each request was sent with."""
    return [request.extensions["timeout"][which] for request in network.sent]


@pytest.mark.parametrize(
    ("timeout", "prefer", "silence", "connect"),
    [
        (None, "wait=20", 50, 10),
        (100, "wait=20", 50, 10),
        (30, "wait=20", 30, 10),
        (5, "wait=5", 5, 5),
        (1.5, "wait=2", 1.5, 1.5),
        (0.5, "wait=1", 0.5, 0.5),
    ],
)
async def test_the_timeouts_of_a_poll_follow_from_its_deadline(
    job, network, timeout, prefer, silence, connect
):
    network.expect(ENDED)
    await got(job.wait(timeout=timeout))
    assert network.header("prefer") == [prefer]
    assert limits(network, "read") == limits(network, "write") == limits(network, "pool")
    assert limits(network, "read") == [silence]
    assert limits(network, "connect") == [connect]


@pytest.mark.parametrize(
    ("applied", "took", "pauses"),
    [
        ("wait=20", 20, []),
        ("wait=20", 10, []),
        ("wait=20", 9.5, [1 + APART]),
        ("wait=20", 7, [1 + APART]),
        ("wait=2", 1, []),
        ("wait=1", 0.5, []),
        ("wait=1", 0.25, [1 + APART]),
        ("wait=0", 0, [1 + APART]),
        ("", 0, [1 + APART]),
        ("", 15, [1 + APART]),
    ],
)
async def test_a_client_pauses_unless_the_server_has_waited(
    job, network, clock, applied, took, pauses
):
    headers = {"Preference-Applied": applied} if applied else {}
    network.expect(After(clock, took, shown(headers=headers)), ENDED)
    await got(job.wait())
    assert clock.pauses == pauses


@pytest.mark.parametrize(
    ("retry_after", "pause"), [("3", 3 + APART), ("0", 0.25 + APART), ("soon", 1 + APART)]
)
async def test_a_pause_is_as_long_as_the_server_says(job, network, clock, retry_after, pause):
    network.expect(shown(headers={"Retry-After": retry_after}), ENDED)
    await got(job.wait())
    assert clock.pauses == [pause]


async def test_a_pause_ends_with_the_deadline(job, network, clock):
    network.expect(shown(headers={"Retry-After": "30"}))
    with pytest.raises(TimeoutError, match="not within 2 s"):
        await got(job.wait(timeout=2))
    assert clock.pauses == [2]
    assert len(network.sent) == 1


async def test_no_poll_follows_an_answer_that_came_too_late(job, network, clock):
    network.expect(After(clock, 2.5, shown()), ENDED)
    with pytest.raises(TimeoutError, match="not within 2 s"):
        await got(job.wait(timeout=2))
    assert sum(map(abs, clock.pauses)) == 0
    assert len(network.sent) == 1


async def test_nothing_is_sent_after_the_deadline(job, network):
    for ask in (job.wait, job.refresh, job.cancel, job.result):
        with pytest.raises(TimeoutError, match="not within 0 s"):
            await got(ask(timeout=0))
    with pytest.raises(TimeoutError, match="not within 0 s"):
        [event async for event in each(job.events(timeout=0))]
    assert network.sent == []


async def test_waiting_for_a_job_that_was_seen_to_end_sends_nothing(job, network):
    network.expect(ENDED)
    await got(job.refresh())
    await got(job.wait())
    assert await got(job.result()) == 1
    assert len(network.sent) == 1


async def test_a_short_time_is_enough_for_an_answer(job, network):
    network.expect(ENDED, stream(event(3, "succeeded")))
    await got(job.refresh(timeout=0.5))
    assert [event.revision async for event in each(job.events(timeout=0.5))] == [3]
    assert limits(network, "read") == [0.5, 0.5]


async def test_each_pause_after_a_failure_is_longer_up_to_a_cap(kind, network, clock):
    client = kind("http://server", transport=network, clock=clock, patience=1000)
    network.expect(*[Answered(503), Unreachable()] * 4, stored())
    await got(client.submit("/reports", {}))
    ceilings = [0.25, 0.5, 1, 2, 4, 8, 10, 10]
    assert clock.pauses == [0.25 + ceiling / 2 for ceiling in ceilings]
    await got(client.close())


@pytest.mark.parametrize(("retry_after", "pauses"), [("59", [59 + JITTER]), ("60", [])])
async def test_patience_is_a_minute(client, network, clock, retry_after, pauses):
    network.expect(Answered(503, {"Retry-After": retry_after}), stored())
    submitted = client.submit
    if pauses:
        await got(submitted("/reports", {}))
    else:
        with pytest.raises(RequestRefused, match="503"):
            await got(submitted("/reports", {}))
    assert clock.pauses == pauses


@pytest.mark.parametrize(("patience", "tries"), [(0.375, 2), (0.37, 1)])
async def test_patience_lasts_until_its_last_instant(kind, network, clock, patience, tries):
    client = kind("http://server", transport=network, clock=clock, patience=patience)
    network.expect(*[Unreachable()] * 10)
    with pytest.raises(ServerUnreachable):
        await got(client.submit("/reports", {}))
    assert len(network.sent) == tries
    await got(client.close())


@pytest.mark.parametrize(("timeout", "pauses"), [(0.375, []), (0.5, [0.375])])
async def test_a_pause_that_would_reach_the_deadline_is_not_begun(
    client, network, clock, timeout, pauses
):
    network.expect(*[Answered(503)] * 10)
    with pytest.raises(TimeoutError, match="has no answer") as late:
        await got(client.submit("/reports", {}, timeout=timeout))
    assert isinstance(late.value.__cause__, RequestRefused)
    assert clock.pauses == pauses


async def test_patience_begins_anew_with_each_request(job, network, clock):
    busy = Answered(503, {"Retry-After": "50"})
    network.expect(busy, shown(headers={"Retry-After": "50"}), busy, ENDED)
    await got(job.wait())
    assert clock.pauses == [50 + JITTER, 50 + APART, 50 + JITTER]


class Nameless(Mishap):
    def instead(self, request):
        raise httpx2.ReadTimeout("", request=request)


async def test_an_error_without_text_is_named_by_its_type(kind, network, clock):
    client = kind("http://server", transport=network, clock=clock, patience=0)
    network.expect(Nameless())
    with pytest.raises(ServerUnreachable, match="has no answer: ReadTimeout"):
        await got(client.submit("/reports", {}))
    await got(client.close())


PASSING = (408, 425, 429, 500, 502, 503, 504, 506, 599)
LASTING = (300, 301, 400, 404, 409, 426, 428, 430, 499, 501, 505)


@pytest.mark.parametrize("status", PASSING)
async def test_a_temporary_error_is_followed_by_another_try(job, network, status):
    network.expect(Answered(status), ENDED, Answered(status), stream(event(3, "succeeded")))
    await got(job.refresh())
    [last] = [event async for event in each(job.events())]
    assert last.job.state == "succeeded"
    assert len(network.sent) == 4


@pytest.mark.parametrize("status", LASTING)
async def test_a_permanent_error_is_not_retried(job, network, status):
    network.expect(Answered(status), Answered(status))
    with pytest.raises(RequestRefused, match=str(status)):
        await got(job.refresh())
    with pytest.raises(RequestRefused, match=str(status)):
        [event async for event in each(job.events())]
    assert len(network.sent) == 2


async def test_the_wait_of_a_submission_is_as_long_as_requested(client, network, clock):
    network.expect(stored(), *[shown()] * 10)
    job = await got(client.submit("/reports", {}, wait=3))
    assert not job.is_finished
    assert sum(clock.pauses) == 3
    assert network.header("prefer")[1] == "wait=3"


async def test_a_stored_job_is_returned_even_if_no_time_is_left_to_wait(client, network, clock):
    network.expect(After(clock, 1, Answered(200, PLACE, b"1")), After(clock, 3, Answered(503)))
    job = await got(client.submit("/reports", {}, wait=5, timeout=2))
    assert "unseen" in repr(job)
    assert len(network.sent) == 2


@pytest.mark.parametrize(
    ("timeout", "silence", "connect"), [(None, 45, 10), (60, 45, 10), (30, 30, 10), (4, 4, 4)]
)
async def test_the_read_timeout_of_a_stream_follows_from_its_deadline(
    job, network, timeout, silence, connect
):
    network.expect(stream(event(3, "succeeded")))
    assert [event.revision async for event in each(job.events(timeout=timeout))] == [3]
    assert limits(network, "read") == [silence]
    assert limits(network, "connect") == [connect]
    assert network.header("accept") == ["text/event-stream"]
    assert network.header("last-event-id") == [None]


@pytest.mark.parametrize(("timeout", "is_late"), [(3, True), (3.5, False), (2.5, True)])
async def test_an_event_after_the_deadline_is_the_last(job, network, clock, timeout, is_late):
    network.expect(After(clock, 3, stream(event(3, "running"))), stream(event(4, "succeeded")))
    seen = []

    async def listen():
        async for arrived in each(job.events(timeout=timeout)):
            seen.append(arrived.revision)  # noqa: PERF401 - also what came before the error

    if is_late:
        with pytest.raises(TimeoutError, match=f"not within {timeout:g} s"):
            await listen()
    else:
        await listen()
    assert seen == ([3] if is_late else [3, 4])


async def test_the_last_event_is_returned_even_after_the_deadline(job, network, clock):
    network.expect(After(clock, 30, stream(event(3, "succeeded"))))
    assert [event.revision async for event in each(job.events(timeout=20))] == [3]
    assert clock.pauses == []


async def test_one_stream_is_enough_for_all_events(job, network, clock):
    network.expect(stream(event(3), event(4), event(5, "succeeded", "result")))
    seen = [(event.revision, event.kind) async for event in each(job.events())]
    assert seen == [(3, "state"), (4, "state"), (5, "result")]
    assert len(network.sent) == 1
    assert clock.pauses == []


async def test_pauses_between_streams_begin_anew_after_an_event(job, network, clock):
    network.expect(
        Unreachable(), Unreachable(), stream(event(3)), Unreachable(), stream(event(4, "failed"))
    )
    seen = [event.revision async for event in each(job.events())]
    assert seen == [3, 4]
    assert clock.pauses == [0.375, 0.5, 0.375, 0.5]
    assert network.header("last-event-id") == [None, None, None, "3", "3"]


async def test_there_are_no_events_after_the_last_one(job, network, clock):
    network.expect(Answered(204))
    assert [event async for event in each(job.events(after=9))] == []
    assert sum(clock.pauses) == 0
    assert network.header("last-event-id") == ["9"]
