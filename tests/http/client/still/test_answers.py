"""How a client reads answers: results, problems, locations, odd streams."""

import sys
from types import SimpleNamespace
from uuid import UUID

import pytest
from msgspec import json

from tenure import JobCancelled, JobFailed, JobNotFound, ResultUnavailable
from tenure.http import RequestRefused, UnusableAnswer
from tenure.http.client import transport as lines
from tenure.http.client.conversation import Ask, on_the_same_host, origin, retry_after
from tenure.http.client.remote_job import _Lines
from tenure.http.request import Headers
from tests.http.client.both_clients import each, got
from tests.http.client.still_clock import (
    EVENT_STREAM,
    ID,
    PLACE,
    StillClock,
    event,
    job_of,
    shown,
    stored,
)
from tests.http.network import Answered

DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    ("problem", "reason", "text"),
    [
        (None, "failed", ""),
        ({"title": "No month"}, "failed", "No month"),
        ({"detail": "The year has 12"}, "failed", "The year has 12"),
        ({"type": "", "title": "A", "detail": "B"}, "failed", "A. B"),
        ({"type": "urn:x:y", "title": "A", "detail": ""}, "urn:x:y", "A"),
        ({"type": "urn:tenure:problem:job-lost", "title": "Lost"}, "job-lost", "Lost"),
    ],
)
async def test_job_failed_has_reason_and_problem(job, network, problem, reason, text):
    network.expect(shown("failed", error=problem))
    with pytest.raises(JobFailed) as failed:
        await got(job.result())
    assert failed.value.reason == reason
    assert failed.value.problem == (problem or {})
    assert text in str(failed.value)


@pytest.mark.parametrize("problem", [None, {"detail": "by its owner"}, {"title": "Cancelled"}])
async def test_job_cancelled_has_the_reason(job, network, problem):
    network.expect(shown("cancelled", error=problem))
    with pytest.raises(JobCancelled) as cancelled:
        await got(job.result())
    assert (problem or {}).get("detail", "") in str(cancelled.value)
    assert cancelled.value.problem == (problem or {})


async def test_a_result_that_is_not_available_raises_an_error(job, network):
    network.expect(shown("succeeded", error={"title": "Damaged", "detail": "Ask again"}))
    with pytest.raises(ResultUnavailable, match=r"Damaged\. Ask again"):
        await got(job.result())
    assert len(network.sent) == 1


@pytest.mark.parametrize(
    ("kind_of_body", "result"),
    [
        ("application/json", {"a": 1}),
        ("Application/JSON ; charset=utf-8", {"a": 1}),
        ("application/vnd.x+json", {"a": 1}),
        ("text/csv; header=present", b'{"a":1}'),
        ("application/octet-stream; of=application/json", b'{"a":1}'),
        ("", b'{"a":1}'),
    ],
)
async def test_a_result_with_a_url_of_its_own_is_fetched(job, network, kind_of_body, result):
    headers = {"Content-Type": kind_of_body} if kind_of_body else {}
    network.expect(shown("succeeded"), Answered(200, headers, b'{"a":1}'))
    assert await got(job.result()) == result
    assert [request.url.path for request in network.sent] == [
        f"/reports/jobs/{ID}",
        f"/reports/jobs/{ID}/result",
    ]
    assert network.header("prefer")[1] is None


DEEP_RESULT = job_of("succeeded", result="deep").replace(b'"deep"', DEEP)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"id": 7}', DEEP, DEEP_RESULT, b"\xff"])
async def test_an_answer_that_does_not_describe_a_job_is_refused(job, network, body):
    network.expect(Answered(200, {}, body))
    with pytest.raises(UnusableAnswer, match=f"GET /reports/jobs/{ID}"):
        await got(job.refresh())


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'"text"', DEEP])
async def test_a_refusal_of_a_proxy_keeps_its_text(job, network, body):
    network.expect(Answered(400, {}, body), Answered(302, {"Location": "/login"}, body))
    with pytest.raises(RequestRefused) as refused:
        await got(job.refresh())
    assert refused.value.type == "about:blank"
    assert refused.value.title == "No problem is named"
    assert refused.value.detail == ""
    with pytest.raises(RequestRefused) as elsewhere:
        await got(job.refresh())
    assert "/login" in elsewhere.value.detail


async def test_only_a_problem_of_the_routes_means_that_a_job_is_not_found(job, network):
    named = json.encode({"type": "urn:tenure:problem:not-found", "title": "", "status": 404})
    other = json.encode({"type": "urn:x:not-found", "title": "", "status": 404})
    network.expect(Answered(404, {}, named), Answered(404, {}, other))
    with pytest.raises(JobNotFound, match=ID):
        await got(job.refresh())
    with pytest.raises(RequestRefused) as refused:
        await got(job.refresh())
    assert not isinstance(refused.value, JobNotFound)


@pytest.mark.parametrize(
    ("status", "headers"),
    [(200, {}), (200, {"Content-Type": "text/html"}), (201, EVENT_STREAM), (299, EVENT_STREAM)],
)
async def test_an_answer_that_is_no_event_stream_is_refused(job, network, status, headers):
    network.expect(Answered(status, headers, event(3, "succeeded")))
    with pytest.raises(UnusableAnswer, match="no stream of events"):
        [event async for event in each(job.events())]


async def test_a_result_too_deep_to_read_is_refused(job, network):
    network.expect(shown("succeeded"), Answered(200, {"Content-Type": "application/json"}, DEEP))
    with pytest.raises(UnusableAnswer, match="/result"):
        await got(job.result())


async def test_an_event_without_a_kind_is_a_change_of_state(job, network):
    parts = event(3), event(4, "running", "progress"), b"id: 5\nevent: x\n\n", event(6, "failed")
    network.expect(Answered(200, EVENT_STREAM, b"".join(parts)))
    seen = [(event.revision, event.kind, event.job.state) async for event in each(job.events())]
    assert seen == [(3, "state", "running"), (4, "progress", "running"), (6, "state", "failed")]


async def test_an_event_that_was_seen_before_can_end_the_stream(job, network):
    network.expect(Answered(200, EVENT_STREAM, event(2) + event(3, "succeeded")))
    assert [event async for event in each(job.events(after=3))] == []
    assert job.is_finished
    assert len(network.sent) == 1


@pytest.mark.parametrize(
    ("raw", "fields"),
    [
        (b"id: 1\n: ping\ndata: x\n\n", [{"id": "1", "data": "x"}]),
        (b": \xff\nid: 1\ndata: x\n\n", [{"id": "1", "data": "x"}]),
        (b"id: 1\nid: 2\ndata: x\n\n", [{"id": "2", "data": "x"}]),
        (b"id: 1\n\ndata: x\n\n", [{"data": "x"}]),
        (b"id: 1\ndata: x\n\ndata: y\n\n", [{"id": "1", "data": "x"}, {"data": "y"}]),
        (b"data: a\ndata:\ndata:  b\n\n", [{"data": "a\n\n b"}]),
        (b"data\nid:1\n\n", [{"data": "", "id": "1"}]),
        (b"id: 1\ndata: x\n", []),
    ],
)
def test_an_event_stream_is_parsed(raw, fields):
    assert list(_Lines().feed(raw)) == fields


HOUR = "Wed, 01 Jan 2020 12:00:00 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "7"}, 7),
        ({"Retry-After": " 7 "}, 7),
        ({"Retry-After": "1234567890123"}, 123_456_789),
        ({"Retry-After": "\u0663"}, None),
        ({"Retry-After": "-1"}, None),
        ({"Retry-After": "1.5"}, None),
        ({"Retry-After": "Wed, 01 Jan 2020 12:00:09 GMT", "Date": HOUR}, 9),
        ({"Retry-After": "Wed, 01 Jan 2020 11:59:00 GMT", "Date": HOUR}, 0),
        ({"Retry-After": HOUR, "Date": "soon"}, None),
        ({"Retry-After": "Wed, 01 Jan 99999999999999999999 12:00:00 GMT"}, None),
        ({"Retry-After": "Sun, 13 Sep 2020 12:26:45 GMT"}, 5),
    ],
)
def test_retry_after_is_parsed(headers, seconds, monkeypatch):
    clock = StillClock()
    monkeypatch.setattr(clock, "wall", lambda: 1_600_000_000_000_000)
    assert retry_after(Headers(headers), clock) == seconds


@pytest.mark.parametrize(
    ("request_url", "location", "url"),
    [
        ("http://h/r", "/r/jobs/1", "http://h/r/jobs/1"),
        ("http://h/r", "jobs/1", "http://h/jobs/1"),
        ("http://h/r", "/r/jobs/1?x=1#y", "http://h/r/jobs/1"),
        ("http://h/r", "/r/jobs/1#y?x", "http://h/r/jobs/1"),
        ("http://h/r", "http://h:80/r/jobs/1", "http://h:80/r/jobs/1"),
        ("http://h:80/r", "http://H/r/jobs/1", "http://H/r/jobs/1"),
        ("https://h/r", "https://h:443/r/jobs/1", "https://h:443/r/jobs/1"),
        ("http://h/r", "https://h/r/jobs/1", None),
        ("http://h/r", "http://h:443/r/jobs/1", None),
        ("http://h/r", "http://h:81/r/jobs/1", None),
        ("http://h:8000/r", "http://h/r/jobs/1", None),
        ("http://h/r", "mailto:ann@h", None),
        ("http://h/r", "http://[h/r", None),
    ],
)
def test_a_location_is_resolved_on_the_same_host_only(request_url, location, url):
    ask = Ask(method="POST", url=request_url, headers={})
    if url is not None:
        assert on_the_same_host(ask, location) == url
    else:
        with pytest.raises(UnusableAnswer, match="POST /r"):
            on_the_same_host(ask, location)


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("http://h", ("http", "h", 80)),
        ("https://h/x", ("https", "h", 443)),
        ("http://h:8000", ("http", "h", 8000)),
        ("ftp://h", ("ftp", "h", None)),
        ("/x", None),
        ("", None),
        ("http://h:x", None),
    ],
)
def test_an_origin_is_scheme_host_and_port(url, parts):
    assert origin(url) == parts


async def test_a_submission_without_a_body_has_no_content_type(client, network):
    network.expect(stored(), stored())
    await got(client.submit("/reports"))
    await got(client.submit("/reports", 0))
    assert network.header("content-type") == [None, "application/json"]
    assert [UUID(key).version for key in network.header("idempotency-key")] == [4, 4]


async def test_the_headers_of_a_job_are_sent_with_its_requests(client, network):
    network.expect(shown())
    await got(client.job(f"/reports/jobs/{ID}", headers={"X-User": "ann"}))
    assert network.header("x-user") == ["ann"]


async def test_missing_fields_of_a_job_have_defaults(client, network):
    network.expect(shown())
    job = await got(client.job(f"/reports/jobs/{ID}"))
    assert (job.resource.attempt, job.resource.cancelling, job.resource.progress) == (
        0,
        False,
        None,
    )


async def test_a_result_in_the_first_answer_is_looked_up(client, network):
    network.expect(Answered(201, PLACE, b"1"), shown("succeeded", result=1))
    job = await got(client.submit("/reports", {}))
    assert (job.is_finished, job.resource.result) == (True, 1)


async def test_leaving_the_block_closes_the_client(kind, network):
    client = kind("http://server", transport=network)
    if hasattr(client, "__enter__"):
        with client as entered:
            assert entered is client
    else:
        async with client as entered:
            assert entered is client
    assert client._http.is_closed


def test_httpx2_is_preferred(kind, monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx", SimpleNamespace(**{kind.__name__: None}))
    monkeypatch.setattr(lines, "_network_errors", lambda: ())
    assert type(kind("http://server", verify=False)._http).__module__.startswith("httpx2")


def test_an_httpx2_that_lacks_a_package_is_named_in_the_error(kind, monkeypatch):
    def incomplete(name: str) -> None:
        raise ModuleNotFoundError("No module named 'certifi'", name="certifi")

    monkeypatch.setattr(lines, "import_module", incomplete)
    with pytest.raises(ModuleNotFoundError, match="certifi"):
        kind("http://server")


async def test_the_body_of_an_answer_may_come_in_parts(job, network):
    body = job_of("succeeded", result=list(range(50_000)))
    network.expect(Answered(200, {}, body))
    assert (await got(job.result()))[-1] == 49_999
