"""Each way a job can end, as its client reads it, and that an end is final."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import httpx2
import pytest

from tenure import Tenure
from tenure.core.jobs.states import FINISHED
from tenure.errors import AcquireTimeout, StoreError, StoreFull
from tenure.http import AsyncRouter, Problem
from tenure.http.problems import problem_of_report
from tenure.http.server import store_trouble
from tenure.runtime.attempts.reports import report_on
from tenure.testing import Faults
from tests.http.conftest import Replica
from tests.http.service import HIDDEN, Face, Service, Stage, as_face, user
from tests.http.wire import client_of
from tests.rig.sizes import SIZE
from tests.rig.waiting import wait_until_async

PROBLEM = "application/problem+json"


async def ended(client: httpx2.AsyncClient, path: str, **options) -> tuple[str, dict]:
    """Submit, wait for the end, and return the job's path and resource."""
    location = (await client.post(path, **options)).headers["location"]
    answer = await client.get(location, headers={"Prefer": "wait=20"})
    assert answer.json()["state"] in FINISHED
    assert "retry-after" not in answer.headers
    return location, answer.json()


async def assert_final(client: httpx2.AsyncClient, location: str) -> None:
    """Check that no request of a client changes a finished job."""
    before = await client.get(location)
    assert (await client.delete(location)).status_code == 200
    for method in ("POST", "PUT", "PATCH"):
        assert (await client.request(method, location)).status_code == 405
    after = await client.get(location)
    assert after.content == before.content
    assert after.headers["etag"] == before.headers["etag"]


async def test_a_successful_job_has_a_result(real_replica: Replica):
    async with client_of((await real_replica()).face("fastapi"), timeout=20) as ann:
        location, job = await ended(ann, "/reports", json={"month": 3})
        assert job["state"] == "succeeded"
        assert job["result"] == {"lines": 3, "secret": "", "spoken": ""}
        assert job["error"] is None
        assert job["created"] <= job["started"] <= job["finished"] < job["expires"]
        result = await ann.get(f"{location}/result")
        assert result.status_code == 200
        assert result.json() == job["result"]
        assert result.headers["content-type"] == "application/json"
        await assert_final(ann, location)


async def test_the_text_of_an_unexpected_error_does_not_reach_the_client(
    real_replica: Replica, caplog
):
    async with client_of((await real_replica()).face("fastapi"), timeout=20) as ann:
        location, job = await ended(ann, "/reports/failing")
        assert job["state"] == "failed"
        assert job["error"]["type"] == "urn:tenure:problem:job-failed"
        result = await ann.get(f"{location}/result")
        assert result.status_code == 500
        assert result.headers["content-type"] == PROBLEM
        assert result.json() == job["error"]
        events = await ann.get(f"{location}/events")
        listed = await ann.get("/reports/jobs")
        for answer in (result, events, listed):
            assert HIDDEN not in answer.text
            assert "ValueError" not in answer.text
            assert "Traceback" not in answer.text
        assert HIDDEN in caplog.text
        await assert_final(ann, location)


async def test_a_problem_that_the_handler_raises_reaches_the_client(ann: httpx2.AsyncClient):
    location, job = await ended(ann, "/reports/refusing")
    assert (job["state"], job["attempt"]) == ("failed", 1)
    result = await ann.get(f"{location}/result")
    assert result.status_code == 451
    assert result.headers["content-type"] == PROBLEM
    assert result.json() == {
        "type": "https://x.test/law",
        "title": "Not here",
        "status": 451,
        "detail": "The law",
        "month": 13,
    }
    assert result.json() == job["error"]


async def test_a_timed_out_job_is_a_problem(ann: httpx2.AsyncClient):
    location, job = await ended(ann, "/reports/timing-out")
    assert job["error"]["type"] == "urn:tenure:problem:job-timed-out"
    result = await ann.get(f"{location}/result")
    assert result.status_code == 504
    assert result.headers["content-type"] == PROBLEM
    await assert_final(ann, location)


@asynccontextmanager
async def working(namespace: str, face: Face, handler: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """Serve one handler, below "/own"."""
    app = Tenure(f"memory://{namespace}", namespace=namespace)
    router = AsyncRouter(app, prefix="/own", owner=user)
    router.post("", retry=None)(handler)
    async with app, app.worker(), client_of(as_face(router, face), timeout=20) as client:
        yield client


@pytest.mark.parametrize("error", [TimeoutError, AcquireTimeout])
async def test_a_timeout_of_the_handlers_own_is_a_failure_like_any_other(
    namespace: str, face: Face, error: type[Exception]
):
    async def ask_a_database() -> None:
        raise error(HIDDEN)

    async with working(namespace, face, ask_a_database) as ann:
        location, job = await ended(ann, "/own")
        assert job["error"]["type"] == "urn:tenure:problem:job-failed"
        assert (await ann.get(f"{location}/result")).status_code == 500


async def test_a_long_problem_is_kept_as_far_as_it_fits(namespace: str, face: Face):
    async def refuse() -> None:
        raise Problem(
            451,
            "Not \u0000 here",
            detail='"\u0007' * 3_000,
            type="https://x.test/law",
            errors=["x" * 5_000],
            month=13,
        )

    async with working(namespace, face, refuse) as ann:
        location, job = await ended(ann, "/own")
        result = await ann.get(f"{location}/result")
        assert result.status_code == 451
        assert result.headers["content-type"] == PROBLEM
        problem = result.json()
        assert problem == job["error"]
        assert (problem["status"], problem["type"]) == (451, "https://x.test/law")
        assert problem["title"] == "Not \u0000 here"
        assert problem["detail"].startswith('"\u0007' * 100)
        assert problem["detail"].endswith("\N{HORIZONTAL ELLIPSIS}")
        assert "errors" not in problem


def test_a_long_member_of_a_problem_does_not_displace_its_status():
    for long in ("x", "\n", "\u00e9", "\N{GRINNING FACE}", "\0"):
        for members in (
            {"title": long * 9_000},
            {"type": long * 9_000},
            {"detail": long * 9_000},
            {"title": long * 9_000, "type": long * 9_000, "detail": long * 9_000},
            {"detail": "short", "more": [long * 9_000], "rest": long * 9_000},
            {long * 9_000: 1},
        ):
            problem = Problem(418, **{"title": "Tea", **members})
            report = report_on(problem)
            assert len(report.message) <= 4_000
            kept = problem_of_report(report)
            assert kept is not None
            assert kept.status == kept.body["status"] == 418
            assert {"type", "title"} <= set(kept.body)
            if members.get("title") is None:
                assert kept.body["title"] == "Tea"
            if members.get("detail") == "short":
                assert kept.body["detail"] == "short"


async def test_a_job_that_was_lost_too_often_is_a_problem(replica: Replica, face: Face):
    service = await replica(works=False, settings={"loss_budget": 0})
    async with client_of(service.face(face)) as ann:
        location = (await ann.post("/reports/slow")).headers["location"]
        store = service.app._store
        await store.jobs.beat(["doomed"], ttl=1.0, meta={})
        assert (await store.jobs.claim("doomed", 1, ["default"], 1)).jobs
        await wait_until_async(service.app.recover, SIZE.patience)
        job = (await ann.get(location)).json()
        assert job["state"] == "failed"
        assert job["error"]["type"] == "urn:tenure:problem:job-lost"
        result = await ann.get(f"{location}/result")
        assert result.status_code == 500
        assert result.json() == job["error"]
        await assert_final(ann, location)


async def test_a_finished_job_is_kept_for_a_minute_at_least(real_replica: Replica):
    service = await real_replica()
    async with client_of(service.face("fastapi"), timeout=20) as ann:
        location, job = await ended(ann, "/reports/brief")
        finished, expires = (datetime.fromisoformat(job[at]) for at in ("finished", "expires"))
        assert (expires - finished).total_seconds() == 60
        assert await service.app.prune_jobs() == 0
        assert (await ann.get(location)).status_code == 200


@pytest.mark.usefixtures("forgotten_at_once")
async def test_a_job_is_gone_after_its_retention(real_replica: Replica):
    service = await real_replica()
    async with client_of(service.face("fastapi"), timeout=20) as ann:
        location, _ = await ended(ann, "/reports/brief")
        await wait_until_async(service.app.prune_jobs, SIZE.patience)
        unknown = await ann.get("/reports/jobs/01900000-0000-7000-8000-000000000000")
        assert unknown.status_code == 404
        for path in (location, f"{location}/result", f"{location}/events"):
            gone = await ann.get(path)
            assert (gone.status_code, gone.content) == (404, unknown.content)
            assert gone.headers == unknown.headers
        assert (await ann.delete(location)).content == unknown.content
        assert (await ann.get("/reports/jobs")).json()["jobs"] == []


async def test_a_waiting_job_can_be_cancelled(real_replica: Replica):
    service = await real_replica(works=False)
    async with client_of(service.face("starlette")) as ann:
        location = (await ann.post("/reports/slow")).headers["location"]
        reply = await ann.delete(location)
        assert reply.status_code == 200
        assert reply.json()["state"] == "cancelled"
        result = await ann.get(f"{location}/result")
        assert result.status_code == 410
        assert result.json()["type"] == "urn:tenure:problem:cancelled"
        assert result.headers["content-type"] == PROBLEM
        await assert_final(ann, location)


async def test_a_running_job_can_be_cancelled(real_replica: Replica, stage: Stage):
    service = await real_replica(settings={"replica_ttl": 1})
    async with client_of(service.face("fastapi"), timeout=20) as ann:
        location = (await ann.post("/reports/slow")).headers["location"]
        await wait_until_async(lambda: stage.ran, SIZE.patience)
        reply = await ann.delete(location)
        if reply.status_code == 202:  # the job may have ended before the cancel arrived
            assert reply.json()["cancelling"]
            assert int(reply.headers["retry-after"]) >= 1
        assert reply.status_code in (200, 202)
        again = await ann.delete(location)
        assert again.status_code in (200, 202)
        job = (await ann.get(location, headers={"Prefer": "wait=20"})).json()
        assert job["state"] == "cancelled"
        assert (await ann.get(f"{location}/result")).status_code == 410
        await assert_final(ann, location)


async def test_the_result_of_an_unfinished_job_is_a_conflict(ann: httpx2.AsyncClient, stage: Stage):
    location = (await ann.post("/reports/slow")).headers["location"]
    for headers in ({}, {"Prefer": "wait=0"}, {"Prefer": "wait=1"}):
        early = await ann.get(f"{location}/result", headers=headers)
        assert early.status_code == 409
        assert early.headers["content-type"] == PROBLEM
        assert early.json()["type"] == "urn:tenure:problem:not-ready"
        assert 1 <= int(early.headers["retry-after"]) <= 30
    stage.go.set()
    late = await ann.get(f"{location}/result", headers={"Prefer": "wait=20"})
    assert (late.status_code, late.json()) == (200, "done")


async def test_a_cancel_that_races_with_the_end(real_replica: Replica):
    """Whichever wins, the answer to DELETE is true and stays true."""

    async def submitted(client: httpx2.AsyncClient) -> str:
        return (await client.post("/reports", json={"month": 1})).headers["location"]

    async def cancelled(client: httpx2.AsyncClient, location: str) -> str:
        reply = await client.delete(location)
        assert reply.status_code == (200 if reply.json()["state"] in FINISHED else 202)
        end = (await client.get(location, headers={"Prefer": "wait=20"})).json()
        if reply.status_code == 200:
            assert end["state"] == reply.json()["state"]
        result = await client.get(f"{location}/result")
        assert (end["state"], result.status_code) in {("succeeded", 200), ("cancelled", 410)}
        await assert_final(client, location)
        return end["state"]

    # Force each side to win first: on some machines one of them wins every race.
    idle = await real_replica(works=False)
    async with client_of(idle.face("fastapi"), timeout=20) as ann:
        assert await cancelled(ann, await submitted(ann)) == "cancelled"
    service = await real_replica()
    async with client_of(service.face("fastapi"), timeout=20) as ann:
        location, _ = await ended(ann, "/reports", json={"month": 1})
        assert await cancelled(ann, location) == "succeeded"
        for number in range(12):
            location = await submitted(ann)
            await asyncio.sleep(number * 0.0005)
            assert await cancelled(ann, location) in ("succeeded", "cancelled")


async def test_a_requeued_job_is_shown_with_a_newer_revision(
    service: Service, ann: httpx2.AsyncClient, stage: Stage
):
    location, job = await ended(ann, "/reports/failing")
    etag = (await ann.get(location)).headers["etag"]
    await (await service.app.job(job["id"])).requeue()
    anew = await ann.get(location)
    assert anew.json()["state"] in ("waiting", "running", "failed")
    assert int(anew.headers["etag"].strip('"')) > int(etag.strip('"'))


@pytest.mark.parametrize("call", ["get", "cancel", "find"])
async def test_an_unavailable_store_answers_503(
    service: Service, ann: httpx2.AsyncClient, faults: Faults, call: str
):
    location = (await ann.post("/reports/slow")).headers["location"]
    asks = {
        "get": lambda: ann.get(location),
        "cancel": lambda: ann.delete(location),
        "find": lambda: ann.get("/reports/jobs"),
    }
    faults.lose_request(call, times=3)
    answer = await asks[call]()
    faults.heal()
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    assert answer.headers["content-type"] == PROBLEM


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (None, "the store is away"),
        (StoreFull, "the store is full"),
        (StoreError, "the store refuses"),
    ],
)
async def test_the_reason_of_a_store_failure_is_logged_once(
    ann: httpx2.AsyncClient,
    service: Service,
    faults: Faults,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    refusal: type[StoreError] | None,
    words: str,
):
    """An outage, which passes, is logged apart from a refusal, which needs manual repair."""
    for complaints in (store_trouble._unavailable, store_trouble._full, store_trouble._refused):
        monkeypatch.setattr(complaints, "_logged_at", -math.inf)
        monkeypatch.setattr(complaints, "_skipped", 0)
    monkeypatch.setattr(store_trouble, "_AT_MOST_EVERY", 10 * SIZE.patience)

    async def refuse(**_: object) -> None:
        msg = "no rights\n2026-01-01 ERROR forged"
        assert refusal is not None
        raise refusal(msg)

    def warnings() -> list[str]:
        return [
            line.getMessage() for line in caplog.records if "HTTP requests" in line.getMessage()
        ]

    async def ask() -> None:
        if refusal is None:
            faults.lose_request("find", times=1)
        assert (await ann.get("/reports/jobs")).status_code == 503

    if refusal is not None:
        monkeypatch.setattr(service.app._store.jobs, "find", refuse)
    for _ in range(3):
        await ask()
    [first] = warnings()
    assert words in first
    assert refusal is None or "no rights\\n2026" in first
    assert "\n" not in first
    monkeypatch.setattr(store_trouble, "_AT_MOST_EVERY", 0.0)
    await ask()
    assert "2 more" in warnings()[1]
