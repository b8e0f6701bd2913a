"""Exceptions and results of handlers, and what clients see of them."""

import asyncio
from typing import Any

import pytest
from fastapi import HTTPException

from tenure import Backoff, Tenure
from tenure.http import AsyncRouter
from tests.http.conftest import Replica
from tests.http.service import Face, as_face
from tests.http.wire import client_of


@pytest.mark.parametrize(
    ("detail", "members"),
    [
        ("no such month", {"detail": "no such month"}),
        (None, {}),
        ([{"month": 13}], {"errors": [{"month": 13}]}),
    ],
)
async def test_an_exception_of_fastapi_that_blames_the_client_is_a_problem(
    replica: Replica, face: Face, detail: Any, members: dict[str, Any]
):
    service = await replica()
    tries: list[int] = []

    @service.router.post("/missing")
    async def missing() -> None:
        tries.append(1)
        raise HTTPException(404, detail)

    async with client_of(service.face(face), timeout=20) as ann:
        location = (await ann.post("/reports/missing")).headers["location"]
        answer = await ann.get(f"{location}/result", headers={"Prefer": "wait=20"})
        assert answer.status_code == 404
        expected = {"type": "about:blank", "title": "Not Found", "status": 404}
        assert answer.json() == expected | members
    assert tries == [1]


async def test_an_exception_of_fastapi_that_blames_the_server_is_retried(
    replica: Replica, face: Face
):
    service = await replica()
    tries: list[int] = []

    @service.router.post("/flaky", retry=Backoff(base=0.001, max_attempts=3))
    def flaky() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise HTTPException(503, "try again")
        return len(tries)

    async with client_of(service.face(face), timeout=20) as ann:
        answer = await ann.post("/reports/flaky", headers={"Prefer": "wait=20"})
        assert answer.json() == 3


async def test_a_result_stored_before_its_media_type_was_declared_is_served(
    namespace: str, face: Face
):
    store = Tenure(f"memory://{namespace}", namespace=namespace, grace=0)

    def deployed(**options: Any) -> tuple[Tenure, AsyncRouter]:
        app = Tenure(store._store.clone(), grace=0)
        router = AsyncRouter(app, prefix="/r")

        @router.post("", **options)
        async def build() -> Any if not options else str:
            await asyncio.sleep(0)
            return {"a": 1} if not options else "a,1"

        return app, router

    async with store:
        app, router = deployed()
        async with app, app.worker(), client_of(as_face(router, face), timeout=20) as client:
            old = await client.post("/r", headers={"Prefer": "wait=20"})
        app, router = deployed(media_type="text/csv")
        async with app, app.worker(), client_of(as_face(router, face), timeout=20) as client:
            result = await client.get(old.headers["content-location"])
            assert (result.status_code, result.json()) == (200, {"a": 1})
            assert result.headers["content-type"] == "application/json"
            new = await client.post("/r", headers={"Prefer": "wait=20"})
            assert (new.text, new.headers["content-type"][:8]) == ("a,1", "text/csv")
