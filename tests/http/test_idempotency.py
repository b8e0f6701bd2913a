"""One key, one job: wherever and however often a request is repeated."""

import asyncio
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from tenure.core.clock import SystemClock
from tenure.core.jobs.records import Inserted
from tenure.testing import Faults
from tests.http.conftest import Replica
from tests.http.service import Face, Service, stored
from tests.http.wire import client_of
from tests.rig.sizes import SIZE
from tests.rig.waiting import wait_until_async


def keyed(key: str) -> dict[str, str]:
    return {"Idempotency-Key": key}


async def test_fifty_posts_with_one_key_are_one_job(real_replica: Replica):
    replicas = [await real_replica(works=False), await real_replica(works=False)]
    clients = [client_of(replica.face("fastapi")) for replica in replicas]

    async def post(number: int) -> httpx2.Response:
        # The layout of the JSON does not matter: it is the same request.
        body = b'{"month":3,"note":"x"}' if number % 3 else b'{ "note": "x", "month": 3 }'
        headers = {**keyed("k1"), "Content-Type": "application/json"}
        return await clients[number % 2].post("/reports", content=body, headers=headers)

    answers = await asyncio.gather(*map(post, range(50)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.headers["location"] for answer in answers}) == 1
    replayed = [answer.headers.get("idempotency-replayed") for answer in answers]
    assert sorted(map(str, replayed)) == ["None"] + ["true"] * 49
    assert len(await stored(replicas[0].app)) == 1

    await _others_get_their_own(clients[0], answers[0].headers["location"])
    assert len(await stored(replicas[0].app)) == 4

    # A restart: a new app on the same store.
    async with client_of((await real_replica(works=False)).face("starlette")) as after:
        again = await after.post("/reports", json={"month": 3, "note": "x"}, headers=keyed("k1"))
    assert again.headers["location"] == answers[0].headers["location"]
    assert again.headers["idempotency-replayed"] == "true"
    assert len(await stored(replicas[0].app)) == 4
    for client in clients:
        await client.aclose()


async def _others_get_their_own(client: httpx2.AsyncClient, location: str) -> None:
    """Check that a key is scoped to one owner, method, route and request."""
    for body, query in (({"month": 4}, ""), ({"month": 3, "note": "x"}, "?loud=true")):
        other = await client.post(f"/reports{query}", json=body, headers=keyed("k1"))
        assert other.status_code == 422
        assert other.headers["content-type"] == "application/problem+json"
        assert other.json()["type"] == "urn:tenure:problem:idempotency-key-reused"
        assert location.rpartition("/")[2] not in other.text

    body = {"month": 3, "note": "x"}
    headers = {**keyed("k1"), "x-user": "ben"}
    bens = await client.post("/reports", json=body, headers=headers)
    elsewhere = await client.put("/reports/years/3", json=body, headers=keyed("k1"))
    by_another_method = await client.patch("/reports/years/3", json=[1], headers=keyed("k1"))
    locations = {reply.headers["location"] for reply in (bens, elsewhere, by_another_method)}
    assert len(locations | {location}) == 4
    assert "idempotency-replayed" not in bens.headers


async def test_every_digit_of_a_number_counts(replica: Replica, face: Face):
    service = await replica(works=False)

    @service.router.post("/sums")
    async def add(body: dict[str, Decimal]) -> None: ...

    async with client_of(service.face(face)) as ann:
        headers = {**keyed("k"), "content-type": "application/json"}

        async def post(number: str) -> int:
            body = b'{"a": %s}' % number.encode()
            return (await ann.post("/reports/sums", content=body, headers=headers)).status_code

        assert await post("0.1") == 202
        assert await post("0.10000000000000000000001") == 422
        assert await post("1.00e-1") == 202
    assert len(await stored(service.app)) == 1


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ('{"a":1,"b":[1,2]}', ' { "b" : [1, 2], "a" : 1 } ', True),
        ('{"a":1.50}', '{"a":1.5}', True),
        ('{"a":150e-2}', '{"a":1.5}', True),
        ('{"a":1.5}', '{"a":"1.5"}', False),
        ('{"a":[1,2]}', '{"a":[2,1]}', False),
        ('{"a":1e-1000100}', '{"a":2e-1000100}', False),
        (
            '{"a":0.1234567890123456789012345678901}',
            '{"a":0.1234567890123456789012345678902}',
            False,
        ),
        ('{"a":null}', "{}", False),
    ],
)
async def test_which_bodies_are_the_same_request(
    replica: Replica, face: Face, first: str, second: str, is_same: bool
):
    service = await replica(works=False)

    @service.router.post("/any")
    async def any_(body: dict[str, Any]) -> None: ...

    async with client_of(service.face(face)) as ann:
        headers = {**keyed("k"), "content-type": "application/json"}
        for body, status in ((first, 202), (second, 202 if is_same else 422)):
            answer = await ann.post("/reports/any", content=body.encode(), headers=headers)
            assert answer.status_code == status


@pytest.mark.parametrize("number", ["1e-99999999999999999999", "0e99999999999999999999"])
async def test_a_number_beyond_all_bounds_still_counts_as_a_number(
    replica: Replica, face: Face, number: str
):
    service = await replica(works=False)

    @service.router.post("/sums")
    async def add(body: dict[str, float]) -> None: ...

    async with client_of(service.face(face)) as ann:
        headers = {**keyed("k"), "content-type": "application/json"}
        body = b'{"a": %s}' % number.encode()
        for _ in range(2):
            answer = await ann.post("/reports/sums", content=body, headers=headers)
            assert answer.status_code == 202
    assert len(await stored(service.app)) == 1


async def test_a_key_is_scoped_to_the_path_in_front_of_the_router(replica: Replica):
    service = await replica(works=False)
    api = FastAPI()
    api.include_router(service.router.router, prefix="/of/{tenant}")
    async with client_of(api) as ann:
        made = [
            (await ann.post(f"/of/{tenant}/reports/slow", headers=keyed("k"))).headers["location"]
            for tenant in ("a", "b", "a")
        ]
    assert made[0] == made[2]
    assert len(await stored(service.app)) == 2


async def test_a_quoted_key_is_the_same_as_a_bare_one(ann: httpx2.AsyncClient):
    bare = await ann.post("/reports", json={"month": 3}, headers=keyed("k 1"))
    quoted = await ann.post("/reports", json={"month": 3}, headers=keyed('"k 1"'))
    assert bare.headers["location"] == quoted.headers["location"]


async def test_without_a_key_each_request_is_a_job(ann: httpx2.AsyncClient):
    two = [await ann.post("/reports", json={"month": 3}) for _ in range(2)]
    assert two[0].headers["location"] != two[1].headers["location"]


async def test_a_repeat_after_the_end_gets_the_job_that_ended(ann: httpx2.AsyncClient):
    headers = {**keyed("k"), "Prefer": "wait=10"}
    first = await ann.post("/reports", json={"month": 3}, headers=headers)
    again = await ann.post("/reports", json={"month": 3}, headers=headers)
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.content == again.content
    assert again.headers["idempotency-replayed"] == "true"
    assert first.headers["location"] == again.headers["location"]


async def test_a_request_that_was_refused_leaves_its_key_free(
    ann: httpx2.AsyncClient, service: Service
):
    refused = await ann.post("/reports", json={"month": "x"}, headers=keyed("k"))
    assert refused.status_code == 422
    accepted = await ann.post("/reports", json={"month": 3}, headers=keyed("k"))
    assert accepted.status_code == 202
    assert "idempotency-replayed" not in accepted.headers


@pytest.mark.usefixtures("forgotten_at_once")
async def test_a_job_with_a_key_is_kept_longer_than_its_endpoint_says(real_replica: Replica):
    """The request does not run again, and its result is still available."""
    service = await real_replica()
    async with client_of(service.face("fastapi"), timeout=20) as client:
        headers = {**keyed("k"), "Prefer": "wait=10"}
        first = await client.post("/reports/brief", headers=headers)
        assert first.status_code == 200
        # The job without a key is gone.
        await client.post("/reports/brief", headers={"Prefer": "wait=10"})
        assert await wait_until_async(service.app.prune_jobs, SIZE.patience) == 1
        again = await client.post("/reports/brief", headers=headers)
        assert (again.status_code, again.json()) == (200, first.json())
        assert again.headers["idempotency-replayed"] == "true"
        assert len(await stored(service.app)) == 1


async def test_a_key_whose_job_is_removed_meanwhile_answers_410(
    real_replica: Replica, monkeypatch: pytest.MonkeyPatch
):
    service = await real_replica()

    async def existing(answers: Iterable[Inserted]) -> dict[str, None]:
        return dict.fromkeys(answer.id for answer in answers)

    async with client_of(service.face("fastapi"), timeout=20) as client:
        await client.post("/reports/brief", headers=keyed("k"))
        monkeypatch.setattr(service.app._services().jobs, "_existing", existing)
        again = await client.post("/reports/brief", headers=keyed("k"))
        assert again.status_code == 410
        assert again.json()["type"] == "urn:tenure:problem:expired"


async def test_the_key_stays_with_a_job_that_ended_late(
    replica: Replica, face: Face, monkeypatch: pytest.MonkeyPatch
):
    service = await replica(works=False)
    async with client_of(service.face(face), timeout=20) as client:
        first = await client.post("/reports", json={"month": 3}, headers=keyed("k"))
        later = SystemClock().wall() + 30 * 86_400_000_000
        monkeypatch.setattr(SystemClock, "wall", lambda _: later)
        assert (await client.delete(first.headers["location"])).is_success
        again = await client.post("/reports", json={"month": 3}, headers=keyed("k"))
        assert again.headers["idempotency-replayed"] == "true"
        assert again.headers["location"] == first.headers["location"]
        assert len(await stored(service.app)) == 1


@pytest.mark.parametrize("lost", ["request", "reply"])
async def test_an_accepted_submission_is_stored(
    replica: Replica, faults: Faults, face: Face, lost: str
):
    """Whatever the store lost: an answer of 202 has a job, and a repeat finds it."""
    service = await replica(works=False)
    async with client_of(service.face(face)) as client:
        # As often as the app retries by itself, so that the client sees the failure.
        getattr(faults, f"lose_{lost}")("insert", times=3)
        reply = await client.post("/reports", json={"month": 3}, headers=keyed("k"))
        assert reply.status_code == 503
        assert reply.headers["retry-after"] == "1"
        assert reply.json()["type"] == "urn:tenure:problem:store-unavailable"
        faults.heal()
        again = await client.post("/reports", json={"month": 3}, headers=keyed("k"))
        assert again.status_code == 202
        assert len(await stored(service.app)) == 1
        faults.delay("insert", 0.2)
        slow = await client.post("/reports", json={"month": 4})
        assert slow.status_code == 202
        assert len(await stored(service.app)) == 2


async def test_a_required_key_must_be_there(replica: Replica, face: Face):
    service = await replica(works=False)

    @service.router.post("/dear", idempotency="required")
    async def dear(n: int = 0) -> None: ...

    @service.router.post("/cheap", idempotency="off")
    async def cheap() -> None: ...

    async with client_of(service.face(face)) as client:
        missing = await client.post("/reports/dear")
        assert missing.status_code == 400
        # Errors of the request itself are reported first.
        assert (await client.post("/reports/dear?n=x")).status_code == 422
        assert missing.json()["type"] == "urn:tenure:problem:idempotency-key-missing"
        assert (await client.post("/reports/dear", headers=keyed("k"))).status_code == 202
        two = [await client.post("/reports/cheap", headers=keyed("k")) for _ in range(2)]
        assert two[0].headers["location"] != two[1].headers["location"]


async def test_a_malformed_key_is_refused(ann: httpx2.AsyncClient, service: Service):
    for key in ("", '""', "x" * 256, "käse", " ", "a\tb"):
        headers = [("Idempotency-Key", key.encode())]
        refused = await ann.post("/reports", json={"month": 3}, headers=headers)
        assert refused.status_code == 400, key
        assert refused.json()["type"] == "urn:tenure:problem:idempotency-key-malformed"
    assert await stored(service.app) == []
