"""Headers of requests that become headers of jobs, and the request id in responses."""

import logging
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI, HTTPException, Request

from tenure import ConfigError, Outgoing, Tenure, current_job
from tenure.http import AsyncClient, AsyncRouter, Headers, Problem
from tenure.http.server.job_headers import JOB_HEADERS, JobHeaders, request_id
from tests.http.conftest import Replica
from tests.http.service import Face, Service
from tests.http.wire import client_of, send

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SENT = {"traceparent": TRACE, "tracestate": "vendor=opaque, other=1", "x-request-id": "r-1"}
ANN = {"X-User": "ann"}


def kept(sent: dict[str, str], names: tuple[str, ...] = JOB_HEADERS) -> dict[str, str]:
    return JobHeaders(names, ()).of(Headers(sent))


@pytest.mark.parametrize(
    "trace",
    [
        TRACE,
        "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-comes-later",
        "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00",
    ],
)
def test_a_trace_context_is_kept(trace: str):
    assert kept({"traceparent": trace}) == {"traceparent": trace}
    assert kept({"Traceparent": trace, "X-User": "ann"}) == {"traceparent": trace}


@pytest.mark.parametrize(
    "trace",
    [
        "",
        "x",
        f" {TRACE}",
        f"{TRACE}\n",
        f"{TRACE}, {TRACE}",
        f"{TRACE}-more",
        TRACE.upper(),
        TRACE.replace("00-4b", "ff-4b"),
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        f"01{TRACE[2:]}-{'x' * 101}",
        f"01{TRACE[2:]}-\x00",
    ],
)
def test_a_malformed_trace_context_is_dropped_with_its_state(trace: str):
    assert kept({**SENT, "traceparent": trace}) == {"x-request-id": "r-1"}
    assert kept({"tracestate": "vendor=1"}) == {}


@pytest.mark.parametrize("state", ["", "x" * 513, "a=\x00", "a=1\n", "\u00e4", " a=1"])
def test_a_malformed_trace_state_is_dropped_alone(state: str):
    assert kept({"traceparent": TRACE, "tracestate": state}) == {"traceparent": TRACE}
    assert len(kept({"traceparent": TRACE, "tracestate": "x" * 512})) == 2


@pytest.mark.parametrize("id_", ["", "a b", "x" * 201, "a\n", "a\x7f", "\u00e4", "\ud800"])
def test_a_malformed_request_id_is_dropped(id_: str):
    assert kept({"x-request-id": id_}) == {}
    assert request_id(Headers({"x-request-id": id_})) is None
    assert request_id(Headers({})) is None
    assert request_id(Headers({"X-Request-Id": "x" * 200})) == "x" * 200


def test_headers_of_a_request_leave_room_for_those_of_hooks():
    names = tuple(f"x-{number}" for number in range(10))
    sent = dict.fromkeys(names, "y" * 500)
    assert list(kept(sent, names)) == ["x-0", "x-1", "x-2", "x-3"]
    exact = {"x-0": "y" * 509, "x-1": "y" * 509, "x-2": "y" * 509, "x-3": "y" * 509}
    assert kept(exact, names) == exact
    assert list(kept({**exact, "x-3": "y" * 510}, names)) == ["x-0", "x-1", "x-2"]


def test_only_headers_that_are_named_are_copied():
    assert kept({"X-Tenant": "acme", **SENT}, ("X-Tenant", "x-tenant")) == {"x-tenant": "acme"}
    assert kept(SENT, ()) == {}
    assert kept({"tracestate": "a=1"}, ("tracestate",)) == {"tracestate": "a=1"}


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (["Authorization"], "'authorization'"),
        (["X-Tenant", "cookie"], "'cookie'"),
        ("x-request-id", "must be a list of names"),
        (["x tenant"], "'x tenant' must consist"),
        ([""], "must consist"),
        ([f"x-{number}" for number in range(11)], "names 11 headers"),
    ],
)
def test_names_of_headers_that_no_job_may_have_are_refused(names, problem):
    with pytest.raises(ConfigError, match=problem):
        AsyncRouter(Tenure("memory://"), owner=lambda: "ann", job_headers=names)


@pytest.fixture
async def traced(real_replica: Replica) -> Service:
    """A replica on each store whose jobs return their headers."""
    service = await real_replica()

    @service.router.post("/headers")
    async def show(headers: Headers) -> dict[str, str]:
        return {**current_job().headers}

    return service


async def test_a_job_has_the_headers_of_its_request(traced: Service, face: Face, caplog):
    caplog.set_level(logging.DEBUG, "tenure")
    async with client_of(traced.face(face), timeout=20) as client:
        headers = {**ANN, **SENT, "X-Other": "canary", "Prefer": "wait=10"}
        reply = await client.post("/reports/headers", headers=headers)
        assert (reply.status_code, reply.json()) == (200, SENT)
        assert reply.headers["X-Request-Id"] == "r-1"
    [job] = await traced.app.jobs()
    assert job.headers == SENT
    assert b"r-1" not in job.record.payload
    records = [record for record in caplog.records if getattr(record, "job", "") == job.id]
    assert {getattr(record, "request_id", None) for record in records} <= {"r-1"}


async def test_a_repeated_request_with_another_trace_gets_the_same_job(
    replica: Replica, face: Face
):
    service = await replica(works=False)
    async with client_of(service.face(face)) as client:
        replies = [
            await client.post(
                "/reports/slow",
                headers={**ANN, "Idempotency-Key": "k", "X-Request-Id": f"r-{number}"},
            )
            for number in (1, 2)
        ]
    assert [reply.status_code for reply in replies] == [202, 202]
    assert [reply.headers["X-Request-Id"] for reply in replies] == ["r-1", "r-2"]
    assert replies[1].headers["Idempotency-Replayed"] == "true"
    [job] = await service.app.jobs()
    assert job.headers == {"x-request-id": "r-1"}


@pytest.mark.parametrize(
    "headers",
    [
        [(b"x-request-id", b"a"), (b"x-request-id", b"b")],
        [(b"x-request-id", b"\xff\xfe")],
        [(b"x-request-id", b"x" * 5000), (b"traceparent", b"y" * 5000)],
        [(b"traceparent", TRACE.encode()), (b"traceparent", TRACE.encode())],
        [(b"tracestate", b"\x00" * 600)],
        [(b"x-request-id", b"a\r\nset-cookie: x")],
    ],
)
async def test_malformed_headers_fail_no_request(replica: Replica, face: Face, headers):
    service = await replica(works=False)
    application = service.face(face)
    reply = await send(
        application, "POST", b"/reports/slow", headers=[(b"x-user", b"ann"), *headers]
    )
    assert reply.status == 202
    assert b"x-request-id" not in dict(reply.headers)
    [job] = await service.app.jobs()
    assert job.headers == {}


async def test_every_response_repeats_the_request_id(replica: Replica, face: Face):
    service = await replica(works=False)
    async with client_of(service.face(face)) as client:
        id_ = (await client.post("/reports/slow", headers=ANN)).json()["id"]
        calls = [
            ("GET", f"/reports/jobs/{id_}"),
            ("HEAD", f"/reports/jobs/{id_}"),
            ("GET", f"/reports/jobs/{id_}/result"),
            ("GET", "/reports/jobs"),
            ("GET", "/reports/jobs/unknown"),
            ("GET", "/reports/jobs/a/b/c"),
            ("PUT", f"/reports/jobs/{id_}"),
            ("POST", "/reports"),
            ("PUT", "/reports/years/x"),
            ("DELETE", f"/reports/jobs/{id_}"),
            ("GET", f"/reports/jobs/{id_}/events"),
        ]
        statuses = set()
        for method, path in calls:
            reply = await client.request(method, path, headers={**ANN, "X-Request-Id": "r-7"})
            assert reply.headers.get("X-Request-Id") == "r-7", (method, path)
            statuses.add(reply.status_code)
            silent = await client.request(method, path, headers=ANN)
            assert "X-Request-Id" not in silent.headers
    assert {200, 404, 405, 409, 422} <= statuses


@pytest.mark.parametrize("face", ["fastapi", "starlette"])
async def test_what_a_framework_refuses_by_itself_repeats_the_request_id_too(face: str):
    """A dependency of FastAPI refuses with an HTTPException, which the framework answers."""
    app = Tenure("memory://")

    def owner(request: Request) -> str:
        raise HTTPException(401, "who are you?")

    router = AsyncRouter(app, prefix="/reports", owner=owner)

    @router.post("")
    async def build() -> None: ...

    web: Any = router.asgi
    if face == "fastapi":
        web = FastAPI()
        web.include_router(router.router)
    transport = httpx2.ASGITransport(web)
    client = httpx2.AsyncClient(transport=transport, base_url="http://shop.test")
    async with app, client:
        for method, path in (("POST", "/reports"), ("GET", "/reports/jobs")):
            reply = await client.request(method, path, headers={"X-Request-Id": "r-7"})
            assert reply.status_code == 401
            assert reply.headers.get_list("X-Request-Id") == ["r-7"], (method, path)
            silent = await client.request(method, path)
            assert "X-Request-Id" not in silent.headers


async def test_hooks_see_and_may_refuse_the_jobs_of_requests(replica: Replica, face: Face):
    service = await replica(works=False)

    @service.app.on_enqueue
    def check(job: Outgoing) -> None:
        if job.headers.get("x-request-id") == "bad":
            raise Problem(403, "Refused by the hook")
        job.headers["by"] = "hook"

    async with client_of(service.face(face)) as client:
        bad = await client.post("/reports/slow", headers={**ANN, "X-Request-Id": "bad"})
        good = await client.post("/reports/slow", headers={**ANN, "X-Request-Id": "good"})
    assert (bad.status_code, bad.json()["title"]) == (403, "Refused by the hook")
    assert bad.headers["X-Request-Id"] == "bad"
    assert good.status_code == 202
    [job] = await service.app.jobs()
    assert job.headers == {"x-request-id": "good", "by": "hook"}


async def test_a_problem_may_have_a_request_id_of_its_own(replica: Replica, face: Face):
    service = await replica(works=False)

    @service.app.on_enqueue
    def refuse(job: Outgoing) -> None:
        raise Problem(403, "no", headers={"x-request-ID": "own"})

    async with client_of(service.face(face)) as client:
        reply = await client.post("/reports/slow", headers={**ANN, "X-Request-Id": "sent"})
    assert reply.headers.get_list("X-Request-Id") == ["own"]


async def test_the_client_sends_headers_with_a_submission(service: Service, face: Face):
    transport = httpx2.ASGITransport(service.face(face))
    options = {"transport": transport, "headers": ANN}
    async with AsyncClient("http://reports", **options) as client:
        job = await client.submit("/reports", {"month": 3}, headers=SENT)
        await job.wait(10)
    assert (await service.app.jobs())[0].headers == SENT
