"""Bad requests: the right status, a problem as body, and nothing enqueued."""

import itertools
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.http.conftest import Replica
from tests.http.service import Face, Service, stored
from tests.http.wire import client_of, send, served

JSON = {"Content-Type": "application/json"}


@pytest.fixture
async def service(replica: Replica) -> Service:
    """A replica without a worker, so that jobs stay as they are."""
    return await replica(works=False)


def assert_problem(answer: httpx2.Response, status: int, kind: str, why: object = "") -> None:
    assert answer.status_code == status, (why, answer.text)
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body["type"] == f"urn:tenure:problem:{kind}"
    assert body["status"] == status
    assert body["title"]
    assert answer.headers["cache-control"] == "no-store"


BODIES = {
    "empty": (b"", 422, "invalid-request"),
    "blank": (b"  ", 400, "malformed-request"),
    "cut off": (b'{"month":', 400, "malformed-request"),
    "two": (b'{"month":3}{"month":3}', 400, "malformed-request"),
    "not JSON": (b"month=3", 400, "malformed-request"),
    "single quotes": (b"{'month':3}", 400, "malformed-request"),
    "NaN": (b'{"month":NaN}', 400, "malformed-request"),
    "infinite": (b'{"month":1e999}', 400, "malformed-request"),
    "endless number": (b'{"month":' + b"9" * 5000 + b"}", 400, "malformed-request"),
    "not UTF-8": (b'{"month":3,"note":"\xff"}', 400, "malformed-request"),
    "UTF-16": ('{"month":3}'.encode("utf-16"), 400, "malformed-request"),
    "half a sign": (b'{"month":3,"note":"\\ud800"}', 400, "malformed-request"),
    "byte order mark": (b'\xef\xbb\xbf{"month":3}', 400, "malformed-request"),
    "control sign": (b'{"month":3,"note":"\x01"}', 400, "malformed-request"),
    "deep": (b"[" * 100_000, 400, "malformed-request"),
    "deep and whole": (b"[" * 65 + b"]" * 65, 400, "malformed-request"),
    "just too deep": (
        b'{"month":3,"x":' + b"[" * 63 + b"]" * 63 + b"}",
        400,
        "malformed-request",
    ),
    "wrong type": (b'{"month":"x"}', 422, "invalid-request"),
    "null": (b"null", 422, "invalid-request"),
    "a list": (b"[]", 422, "invalid-request"),
    "missing": (b"{}", 422, "invalid-request"),
    "float": (b'{"month":1.5}', 422, "invalid-request"),
    "huge": (b'{"month":3,"note":"' + b"x" * 262_144 + b'"}', 413, "body-too-large"),
    "as large as may be": (b'{"month":"' + b"x" * (262_144 - 12) + b'"}', 422, "invalid-request"),
    "too large once it is wrapped": (
        b'{"month":3,"note":"' + b"x" * (262_144 - 21) + b'"}',
        413,
        "body-too-large",
    ),
}


async def test_a_malformed_body_is_refused(ann: httpx2.AsyncClient, service: Service):
    for what, (body, status, kind) in BODIES.items():
        answer = await ann.post("/reports", content=body, headers=JSON)
        assert_problem(answer, status, kind, what)
    assert await stored(service.app) == []


OTHER_TYPES = [
    b"",
    b"text/plain",
    b"application/x-www-form-urlencoded",
    b"multipart/form-data",
    b"application/jsonx",
    b"application/xml+json2",
    b"json",
    b"text/json",
    b"\xff",
]


async def test_a_body_with_another_media_type_is_refused(ann: httpx2.AsyncClient, service: Service):
    for headers in ([], *([("Content-Type", kind)] for kind in OTHER_TYPES)):
        answer = await ann.post("/reports", content=b'{"month":3}', headers=headers)
        assert_problem(answer, 415, "unsupported-media-type", headers)
    assert await stored(service.app) == []


async def test_a_body_with_a_json_media_type_is_accepted(ann: httpx2.AsyncClient):
    for kind in ("application/json", "Application/JSON; charset=utf-8", "application/vnd.x+json"):
        answer = await ann.post("/reports", content=b'{"month":3}', headers={"Content-Type": kind})
        assert answer.status_code == 202, kind


async def test_an_invalid_field_is_named_without_quoting_its_value(ann: httpx2.AsyncClient):
    answer = await ann.post("/reports", json={"month": "canary-1", "secret": ["canary-2"]})
    assert_problem(answer, 422, "invalid-request")
    assert answer.json()["errors"]
    assert "canary" not in answer.text


async def test_a_large_body_is_refused_before_it_is_read(service: Service, face: Face):
    """By its Content-Length; or, without one, as soon as too much has arrived."""
    chunk = b"x" * 65_536
    headers = [(b"x-user", b"ann"), (b"content-type", b"application/json")]
    announced = [*headers, (b"content-length", b"10485760")]
    application = service.face(face)
    reply = await send(
        application, "POST", b"/reports", headers=announced, chunks=itertools.repeat(chunk, 160)
    )
    assert (reply.status, reply.chunks_read) == (413, 0)
    reply = await send(
        application, "POST", b"/reports", headers=headers, chunks=itertools.repeat(chunk, 160)
    )
    assert (reply.status, reply.chunks_read) == (413, 5)
    lying = [*headers, (b"content-length", b"10")]
    reply = await send(
        application, "POST", b"/reports", headers=lying, chunks=itertools.repeat(chunk, 160)
    )
    assert (reply.status, reply.chunks_read) == (413, 5)
    assert await stored(service.app) == []


async def test_ten_megabytes_are_refused_over_the_wire(service: Service, face: Face):
    def chunks() -> Iterator[bytes]:
        for _ in range(160):
            yield b" " * 65_536

    async def body():
        for chunk in chunks():
            yield chunk

    async with served(service.face(face)) as url:
        for content in (b" " * 10_485_760, body()):
            async with httpx2.AsyncClient(base_url=url, headers={"x-user": "ann"}) as client:
                try:
                    answer = await client.post("/reports", content=content, headers=JSON)
                except httpx2.WriteError:
                    continue  # the server refused it while the client was still sending
                assert_problem(answer, 413, "body-too-large")
    assert await stored(service.app) == []


async def test_an_endpoint_without_a_body_does_not_read_one(service: Service, face: Face):
    headers = [(b"x-user", b"ann"), (b"content-type", b"text/plain")]
    reply = await send(
        service.face(face), "POST", b"/reports/slow", headers=headers, chunks=[b"x" * 300_000] * 9
    )
    assert reply.status == 202
    assert reply.chunks_read <= 1


async def test_an_endpoint_can_have_its_own_body_limit(service: Service, face: Face):
    @service.router.post("/small", body_limit=10)
    async def small(body: list[int]) -> None: ...

    async with client_of(service.face(face)) as ann:
        assert (await ann.post("/reports/small", json=[1, 2, 3])).status_code == 202
        assert_problem(await ann.post("/reports/small", json=[100] * 9), 413, "body-too-large")


PREFERENCES = [
    "wait",
    "wait=",
    "wait=-1",
    "wait=1e9",
    "wait=x",
    "wait=0",
    "waiting=9",
    "respond-async",
    ";;;===,,,",
    "wait=99999999999999999999",
    '"',
    "\xff" * 2000,
    "wait=٣",
]


async def test_a_preference_that_makes_no_sense_is_ignored(
    ann: httpx2.AsyncClient, service: Service
):
    for prefer in PREFERENCES:
        headers = [("Prefer", prefer.encode())]
        answer = await ann.post("/reports/slow", headers=headers)
        assert answer.status_code == 202, prefer
        location = answer.headers["location"]
        status = await ann.get(location, headers=headers)
        assert status.status_code == 200, prefer
        assert "preference-applied" not in status.headers, prefer
        assert (await ann.get(f"{location}/result", headers=headers)).status_code == 409, prefer


HEADERS = [
    ("If-None-Match", b'"'),
    ("If-None-Match", b"\xff, W/, ," + b'"x",' * 500),
    ("Accept", b"\xff;;q=,"),
    ("Range", b"bytes=0-"),
    ("Expect", b"200-ok"),
    ("Content-Length", b"-1"),
    ("Content-Length", b"x"),
    ("Transfer-Encoding", b"gzip"),
    ("Host", b"../../evil"),
    ("X-Forwarded-Prefix", b"/evil"),
    ("Origin", b"null"),
]


async def test_odd_headers_change_nothing(ann: httpx2.AsyncClient):
    location = (await ann.post("/reports/slow")).headers["location"]
    assert location.startswith("/reports/jobs/")
    for header in HEADERS:
        answer = await ann.get(location, headers=[header])
        assert answer.status_code == 200, header
        assert answer.json()["links"]["job"] == location


async def test_an_invalid_event_id_starts_the_stream_from_the_beginning(
    service: Service, ann: httpx2.AsyncClient
):
    location = (await ann.post("/reports/slow")).headers["location"]
    await ann.delete(location)
    for last in ("-1", "x", "", "1.5", "9" * 400, "\xff", "1, 1", "NaN", "0x10", "²"):
        headers = [("Last-Event-ID", last.encode())]
        answer = await ann.get(f"{location}/events", headers=headers)
        assert answer.status_code == 200, last
        assert answer.text.count("\nevent: state\n") == 1


QUERIES = [
    "limit=0",
    "limit=201",
    "limit=-1",
    "limit=x",
    "limit=",
    "limit=0002001",
    "limit=1e2",
    "limit=" + "9" * 5000,
    "limit=٣",
    "state=done",
    "state=",
    "cursor=x",
    "cursor=",
    "cursor=" + "x" * 5000,
    "cursor=%00",
    "limit=5&limit=x",
]


async def test_an_invalid_list_request_is_refused(ann: httpx2.AsyncClient):
    for query in QUERIES:
        answer = await ann.get(f"/reports/jobs?{query}")
        assert_problem(answer, 422, "invalid-request", query)
        [error] = answer.json()["errors"]
        assert error["parameter"] == query.partition("=")[0]


async def test_an_invalid_path_parameter_is_refused(ann: httpx2.AsyncClient, service: Service):
    for year in ("x", "1.5", "%00", "9" * 5000, "-"):
        answer = await ann.put(f"/reports/years/{year}")
        assert_problem(answer, 422, "invalid-request", year)
    assert await stored(service.app) == []


async def test_a_path_with_a_trailing_line_break_is_another_path(
    ann: httpx2.AsyncClient, service: Service
):
    for method, path in (
        ("POST", "/reports/slow%0a"),
        ("GET", "/reports/jobs%0a"),
        ("GET", "/reports/jobs/x/result%0a"),
    ):
        answer = await ann.request(method, path)
        assert answer.status_code == 404, path
    assert await stored(service.app) == []


async def test_a_client_that_leaves_amid_its_body_is_no_error(service: Service, face: Face):
    sent: list[Any] = []
    parts = iter([{"type": "http.request", "body": b"{", "more_body": True}])

    async def receive() -> Any:
        return next(parts, {"type": "http.disconnect"})

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"x-user", b"ann"), (b"content-type", b"application/json")]
    scope = {
        "type": "http", "method": "POST", "path": "/reports", "raw_path": b"/reports",
        "query_string": b"", "root_path": "", "headers": headers, "http_version": "1.1",
        "scheme": "http", "server": ("x", 80), "client": ("y", 1),
    }  # fmt: skip
    await service.face(face)(scope, receive, send)
    assert sent[0]["status"] == 400
    assert await stored(service.app) == []


async def test_a_result_that_the_client_does_not_accept_is_refused(replica: Replica, face: Face):
    service = await replica()
    async with client_of(service.face(face), timeout=20) as ann:
        answer = await ann.delete("/reports/years/2020", headers={"Prefer": "wait=20"})
        assert (answer.status_code, answer.text) == (200, "a,2020,3")
        place = answer.headers["content-location"]
        for accept in ("text/csv", "text/*", "*/*", "application/json, text/csv;q=0.1"):
            assert (await ann.get(place, headers={"Accept": accept})).text == "a,2020,3"
        refused = await ann.get(place, headers={"Accept": "application/json"})
        assert_problem(refused, 406, "not-acceptable")
        job = (await ann.get(answer.headers["location"])).json()
        assert (job["state"], job["result"]) == ("succeeded", None)
