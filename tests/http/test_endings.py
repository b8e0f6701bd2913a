"""Each way a job can end, as its client reads it; and that an end is the end."""

import asyncio

import httpx2
import pytest

from tenure.core.states import FINISHED
from tenure.testing import Faults
from tests.http.conftest import Replica
from tests.http.service import HIDDEN, Face, Service, Stage
from tests.http.wire import client_of
from tests.rig.sizes import SIZE
from tests.rig.waiting import wait_until_async

PROBLEM = "application/problem+json"


async def ended(client: httpx2.AsyncClient, path: str, **options) -> tuple[str, dict]:
    """Submit, wait for the end, and return where the job is and what it says."""
    location = (await client.post(path, **options)).headers["location"]
    answer = await client.get(location, headers={"Prefer": "wait=20"})
    assert answer.json()["status"] in FINISHED
    assert "retry-after" not in answer.headers
    return location, answer.json()


async def assert_final(client: httpx2.AsyncClient, location: str) -> None:
    """Check that nothing a client may do changes a job that has ended."""
    before = await client.get(location)
    assert (await client.delete(location)).status_code == 200
    for method in ("POST", "PUT", "PATCH"):
        assert (await client.request(method, location)).status_code == 404
    after = await client.get(location)
    assert after.content == before.content
    assert after.headers["etag"] == before.headers["etag"]


async def test_success(real_replica: Replica):
    async with client_of((await real_replica()).face("fastapi"), timeout=20) as ann:
        location, job = await ended(ann, "/reports", json={"month": 3})
        assert job["status"] == "succeeded"
        assert job["result"] == {"lines": 3, "secret": "", "spoken": ""}
        assert job["error"] is None
        assert job["created"] <= job["started"] <= job["finished"] < job["expires"]
        result = await ann.get(f"{location}/result")
        assert result.status_code == 200
        assert result.json() == job["result"]
        assert result.headers["content-type"] == "application/json"
        await assert_final(ann, location)


async def test_failure_keeps_its_words_to_itself(real_replica: Replica, caplog):
    async with client_of((await real_replica()).face("fastapi"), timeout=20) as ann:
        location, job = await ended(ann, "/reports/failing")
        assert job["status"] == "failed"
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


async def test_a_problem_of_the_handlers_own(ann: httpx2.AsyncClient):
    location, job = await ended(ann, "/reports/refusing")
    assert (job["status"], job["attempt"]) == ("failed", 1)
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


async def test_a_timeout(ann: httpx2.AsyncClient):
    location, job = await ended(ann, "/reports/timing-out")
    assert job["error"]["type"] == "urn:tenure:problem:job-timed-out"
    result = await ann.get(f"{location}/result")
    assert result.status_code == 504
    assert result.headers["content-type"] == PROBLEM
    await assert_final(ann, location)


async def test_a_job_that_was_lost_too_often(replica: Replica, face: Face):
    service = await replica(works=False, settings={"loss_budget": 0})
    async with client_of(service.face(face)) as ann:
        location = (await ann.post("/reports/slow")).headers["location"]
        store = service.app._store
        await store.join("doomed", ttl=1.0, meta={})
        assert (await store.claim("doomed", 1, ["default"], 1)).jobs
        await wait_until_async(service.app.recover, SIZE.patience)
        job = (await ann.get(location)).json()
        assert job["status"] == "failed"
        assert job["error"]["type"] == "urn:tenure:problem:job-lost"
        result = await ann.get(f"{location}/result")
        assert result.status_code == 500
        assert result.json() == job["error"]
        await assert_final(ann, location)


async def test_a_job_that_was_kept_long_enough(real_replica: Replica):
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


async def test_cancelled_while_waiting(real_replica: Replica):
    service = await real_replica(works=False)
    async with client_of(service.face("starlette")) as ann:
        location = (await ann.post("/reports/slow")).headers["location"]
        told = await ann.delete(location)
        assert told.status_code == 200
        assert told.json()["status"] == "cancelled"
        result = await ann.get(f"{location}/result")
        assert result.status_code == 410
        assert result.json()["type"] == "urn:tenure:problem:cancelled"
        assert result.headers["content-type"] == PROBLEM
        await assert_final(ann, location)


async def test_cancelled_while_running(real_replica: Replica, stage: Stage):
    service = await real_replica(settings={"replica_ttl": 1})
    async with client_of(service.face("fastapi"), timeout=20) as ann:
        location = (await ann.post("/reports/slow")).headers["location"]
        await wait_until_async(lambda: stage.ran, SIZE.patience)
        told = await ann.delete(location)
        if told.status_code == 202:  # it may have ended before anybody could look
            assert told.json()["cancelling"]
            assert int(told.headers["retry-after"]) >= 1
        assert told.status_code in (200, 202)
        again = await ann.delete(location)
        assert again.status_code in (200, 202)
        job = (await ann.get(location, headers={"Prefer": "wait=20"})).json()
        assert job["status"] == "cancelled"
        assert (await ann.get(f"{location}/result")).status_code == 410
        await assert_final(ann, location)


async def test_a_result_before_the_end(ann: httpx2.AsyncClient, stage: Stage):
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
    """Whatever wins: what DELETE says is true, and stays so."""
    service = await real_replica()
    ends = set()
    async with client_of(service.face("fastapi"), timeout=20) as ann:
        for number in range(12):
            location = (await ann.post("/reports", json={"month": 1})).headers["location"]
            await asyncio.sleep(number * 0.0005)
            told = await ann.delete(location)
            assert told.status_code == (200 if told.json()["status"] in FINISHED else 202)
            end = (await ann.get(location, headers={"Prefer": "wait=20"})).json()
            if told.status_code == 200:
                assert end["status"] == told.json()["status"]
            result = await ann.get(f"{location}/result")
            assert (end["status"], result.status_code) in {("succeeded", 200), ("cancelled", 410)}
            ends.add(end["status"])
            await assert_final(ann, location)
    assert ends


async def test_an_operator_may_begin_anew(service: Service, ann: httpx2.AsyncClient, stage: Stage):
    location, job = await ended(ann, "/reports/failing")
    etag = (await ann.get(location)).headers["etag"]
    await (await service.app.job(job["id"])).requeue()
    anew = await ann.get(location)
    assert anew.json()["status"] in ("waiting", "running", "failed")
    assert int(anew.headers["etag"].strip('"')) > int(etag.strip('"'))


@pytest.mark.parametrize("call", ["get", "cancel", "find"])
async def test_a_store_that_is_away_is_said_so(
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
