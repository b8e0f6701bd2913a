"""Damaged job records and full stores: what clients see, and what they must not see."""

import httpx2
import pytest

from tenure.app import engine_of
from tenure.errors import StoreFull
from tenure.http.server.event_stream import job_events
from tenure.stores.contract import Store
from tenure.testing import Faults
from tests.contract.worlds import World
from tests.http.conftest import Replica
from tests.http.service import HIDDEN, Service
from tests.http.wire import client_of
from tests.security.hands import Hand, hand_of

ANN = {"X-User": "ann"}
KEY = {**ANN, "Idempotency-Key": "one"}
UNREADABLE = "urn:tenure:problem:job-unreadable"


@pytest.fixture
def hand(request: pytest.FixtureRequest, real_world: World) -> Hand:
    if real_world.family == "memory":
        pytest.skip("no other process can write to memory")
    return hand_of(request, real_world)


def check_unreadable(answer: httpx2.Response) -> None:
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["type"] == UNREADABLE
    assert problem["title"] == "The job cannot be read"
    # No hint at the place or the kind of the damage.
    for word in ("tenure_", "job:", "record", "attempt", "tenure jobs", "localhost", HIDDEN):
        assert word not in answer.text.replace(UNREADABLE, "")


@pytest.mark.parametrize("is_aside", [False, True])
async def test_a_damaged_job_is_not_unknown(real_replica: Replica, hand: Hand, is_aside: bool):
    service = await real_replica(works=False)
    async with client_of(service.face("starlette"), timeout=20) as client:
        job = (await client.post("/reports", json={"month": 3}, headers=KEY)).json()
        hand.spoil_job(job["id"])
        if is_aside:
            await come_across(engine_of(service.app).services().store)
        links = job["links"]
        for link in ("job", "result", "events"):
            check_unreadable(await client.get(links[link], headers=ANN))
        check_unreadable(await client.delete(links["job"], headers=ANN))
        waited = await client.get(links["job"], headers={**ANN, "Prefer": "wait=5"})
        check_unreadable(waited)
        again = await client.post("/reports", json={"month": 3}, headers=KEY)
        check_unreadable(again)
        # Other jobs are not affected.
        assert (await client.get("/reports/jobs", headers=ANN)).json()["jobs"] == []
        other = (await client.post("/reports", json={"month": 4}, headers=ANN)).json()
        assert (await client.get(other["links"]["job"], headers=ANN)).status_code == 200
        await service.app.delete_job(job["id"])
        assert (await client.get(links["job"], headers=ANN)).status_code == 404
        again = await client.post("/reports", json={"month": 3}, headers=KEY)
        assert again.status_code == 202
        assert again.json()["id"] != job["id"]


async def come_across(store: Store) -> None:
    """Quarantine unreadable records, as a worker does."""
    await store.jobs.beat(["ben"], ttl=600, meta={})
    await store.jobs.claim("ben", 1, ["default"], 9)


async def test_a_stream_ends_when_its_job_is_damaged(real_replica: Replica, hand: Hand):
    service = await real_replica(works=False)
    async with client_of(service.face("starlette"), timeout=20) as client:
        job = (await client.post("/reports", json={"month": 3}, headers=ANN)).json()
    events = job_events(engine_of(service.app).services(), job["id"], 0, lambda _: b"{}")
    assert (await anext(events)).startswith(b"id:")
    hand.spoil_job(job["id"])
    assert [event async for event in events] == []


async def test_a_full_store_is_not_reported_as_an_outage(
    ann: httpx2.AsyncClient, service: Service, faults: Faults, monkeypatch: pytest.MonkeyPatch
):
    async def refuse(*_: object, **__: object) -> None:
        raise StoreFull("the store redis://10.0.0.1 is full: maxmemory")

    for call in ("insert", "cancel"):
        monkeypatch.setattr(engine_of(service.app).services().store.jobs, call, refuse)
    answer = await ann.post("/reports", json={"month": 3}, headers=ANN)
    assert answer.status_code == 503
    assert answer.json() == {
        "type": "urn:tenure:problem:store-full",
        "title": "There is no room for more",
        "status": 503,
        "detail": "Nothing was stored. Retry later: the store frees room as it removes old jobs.",
    }
    assert int(answer.headers["retry-after"]) >= 10
    assert "10.0.0.1" not in answer.text
