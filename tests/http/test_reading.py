"""Reading jobs: entity tags, long polls, Retry-After, lists in pages."""

import asyncio
import time

import httpx2

from tenure.http.job_resource import Pace
from tenure.testing import Faults
from tests.http.conftest import Replica
from tests.http.service import Face, Service, Stage
from tests.http.wire import client_of
from tests.rig.sizes import SIZE
from tests.rig.waiting import wait_until_async


async def submit(ann: httpx2.AsyncClient, path: str = "/reports/slow") -> str:
    return (await ann.post(path)).headers["location"]


async def test_a_submission_is_answered_with_its_job(ann: httpx2.AsyncClient, stage: Stage):
    answer = await ann.post("/reports/slow")
    assert answer.status_code == 202
    body = answer.json()
    location = f"/reports/jobs/{body['id']}"
    assert answer.headers["location"] == location
    assert body["links"] == {
        "job": location,
        "result": f"{location}/result",
        "events": f"{location}/events",
    }
    assert body["state"] == "waiting"
    assert 1 <= int(answer.headers["retry-after"]) <= 30
    assert answer.headers["content-type"] == "application/json"
    assert "idempotency-replayed" not in answer.headers
    assert answer.headers["cache-control"] == "private, no-cache"


async def test_an_unchanged_job_is_answered_with_304(replica: Replica, face: Face):
    service = await replica(works=False)
    async with client_of(service.face(face)) as ann:
        location = await submit(ann)
        first = await ann.get(location)
        tag = first.headers["etag"]
        for if_none_match in (tag, f"W/{tag}", f'"x", {tag}', "*"):
            again = await ann.get(location, headers={"If-None-Match": if_none_match})
            assert (again.status_code, again.content) == (304, b""), if_none_match
            assert again.headers["etag"] == tag
            assert again.headers["retry-after"]
        for if_none_match in ('"0"', tag.strip('"'), '""'):
            again = await ann.get(location, headers={"If-None-Match": if_none_match})
            assert again.status_code == 200, if_none_match
        await ann.delete(location)
        changed = await ann.get(location, headers={"If-None-Match": tag})
        assert changed.status_code == 200
        assert changed.headers["etag"] != tag
        # A job of another owner is not found, even with the right entity tag.
        foreign = {"If-None-Match": changed.headers["etag"], "x-user": "ben"}
        assert (await ann.get(location, headers=foreign)).status_code == 404


async def test_a_long_poll_waits_for_the_end(real_replica: Replica, stage: Stage):
    service = await real_replica()
    async with client_of(service.face("fastapi"), timeout=20) as ann:
        location = await submit(ann)
        short = await ann.get(location, headers={"Prefer": "wait=1"})
        assert short.json()["state"] in ("waiting", "running")
        assert short.headers["preference-applied"] == "wait=1"
        waiting = asyncio.create_task(ann.get(location, headers={"Prefer": "wait=20"}))
        await asyncio.sleep(0.05)
        stage.go.set()
        started = time.monotonic()
        assert (await waiting).json()["result"] == "done"
        assert time.monotonic() - started < 10


async def test_a_long_poll_by_revision_waits_for_a_change(replica: Replica, face: Face):
    service = await replica(works=False)
    async with client_of(service.face(face), timeout=20) as ann:
        location = await submit(ann)
        tag = (await ann.get(location)).headers["etag"]
        unchanged = await ann.get(location, headers={"If-None-Match": tag, "Prefer": "wait=1"})
        assert unchanged.status_code == 304
        headers = {"If-None-Match": tag, "Prefer": "wait=20"}
        waiting = asyncio.create_task(ann.get(location, headers=headers))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        store = service.app._store
        await store.jobs.beat(["r1"], ttl=60, meta={})
        await store.jobs.claim("r1", 1, ["default"], 1)
        answer = await waiting
        assert (answer.status_code, answer.json()["state"]) == (200, "running")


async def test_no_request_waits_longer_than_allowed(replica: Replica, face: Face):
    service = await replica(works=False, max_wait=0.05)

    @service.router.post("/never", max_wait=0)
    async def never() -> None: ...

    @service.router.post("/long", max_wait=0.2)
    async def long() -> None: ...

    async with client_of(service.face(face)) as ann:
        for path, longest in (("/reports/slow", 1), ("/reports/never", 1), ("/reports/long", 2)):
            started = time.monotonic()
            answer = await ann.post(path, headers={"Prefer": "wait=100"})
            assert answer.status_code == 202
            location = answer.headers["location"]
            assert (await ann.get(location, headers={"Prefer": "wait=100"})).status_code == 200
            assert time.monotonic() - started < longest


async def test_a_submission_may_wait_for_the_result(ann: httpx2.AsyncClient, service: Service):
    for prefer in ("wait=20", "respond-async, wait=20", 'wait="20"; foo', "Wait = 20"):
        answer = await ann.post("/reports", json={"month": 3}, headers={"Prefer": prefer})
        assert (answer.status_code, answer.json()["lines"]) == (200, 3), prefer
        assert answer.headers["preference-applied"] == "wait=20"
        assert answer.headers["content-location"] == f"{answer.headers['location']}/result"
    # Only a result is 200; a failure is shown by the job.
    failed = await ann.post("/reports/failing", headers={"Prefer": "wait=20"})
    assert (failed.status_code, failed.json()["state"]) == (202, "failed")


async def test_a_stored_job_is_answered_with_202_even_if_the_store_fails_afterwards(
    replica: Replica, face: Face, faults: Faults
):
    service = await replica(works=False)
    async with client_of(service.face(face), timeout=20) as ann:
        faults.lose_request("get", times=100)
        answer = await ann.post("/reports/slow", headers={"Prefer": "wait=5"})
        assert answer.status_code == 202
        faults.heal()
        assert (await ann.get(answer.headers["location"])).status_code == 200


async def test_a_client_that_goes_away_cancels_nothing(ann: httpx2.AsyncClient, stage: Stage):
    waiting = asyncio.create_task(ann.post("/reports/slow", headers={"Prefer": "wait=20"}))
    await wait_until_async(lambda: stage.ran, SIZE.patience)
    waiting.cancel()
    stage.go.set()
    [job] = (await ann.get("/reports/jobs")).json()["jobs"]
    job = (await ann.get(job["links"]["job"], headers={"Prefer": "wait=20"})).json()
    assert job["state"] == "succeeded"


async def test_a_list_comes_in_pages(real_replica: Replica):
    service = await real_replica(works=False)
    async with client_of(service.face("starlette")) as ann:
        made = [(await ann.post("/reports/slow")).json()["id"] for _ in range(7)]
        await ann.delete(f"/reports/jobs/{made[2]}")
        seen, query = [], "limit=3"
        for _ in range(20):
            page = (await ann.get(f"/reports/jobs?{query}")).json()
            assert len(page["jobs"]) <= 3
            seen += [job["id"] for job in page["jobs"]]
            if page["cursor"] is None:
                break
            query = f"limit=3&cursor={page['cursor']}"
        assert seen == made[::-1]
        [cancelled] = (await ann.get("/reports/jobs?state=cancelled")).json()["jobs"]
        assert cancelled["id"] == made[2]
        assert len((await ann.get("/reports/jobs?state=waiting")).json()["jobs"]) == 6
        assert "result" not in cancelled or cancelled["result"] is None


async def test_retry_after_follows_how_long_jobs_took(service: Service):
    pace = Pace()
    assert pace.usual == 1

    class Done:
        state = "succeeded"

        def __init__(self, id_: int, seconds: float) -> None:
            self.id, self.started, self.finished = str(id_), 0, int(seconds * 1e6)

    for number in range(10):
        pace.see(Done(number, 7.5))
        pace.see(Done(number, 500))  # counted already
    assert pace.usual == 8

    class Running:
        state, started = "running", 0

    assert pace.retry_after(Running, int(5e6)) == 3
    assert pace.retry_after(Running, int(60e6)) == 1
    for number in range(100, 200):
        pace.see(Done(number, 3600))
    assert pace.usual == 30
