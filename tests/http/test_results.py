"""Results that are not available, and models that limit which fields a client may set."""

from typing import Any

import httpx2
import pytest
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from tenure import ResultUnavailable, Tenure
from tenure.http import AsyncClient, AsyncRouter
from tests.http.service import Face, as_face
from tests.http.wire import client_of

WAIT = {"Prefer": "wait=10"}


class Report(BaseModel):
    lines: int


@pytest.mark.parametrize(
    "value",
    [{"lines": "secret"}, object(), Report(lines=int("9" * 3000))],
    ids=["misfit", "object", "large"],
)
async def test_an_unavailable_result_of_a_successful_job_is_a_problem(face: Face, value: Any):
    app = Tenure("memory://", result_limit=2000)
    router = AsyncRouter(app, prefix="/reports", owner=lambda: "ann")

    @router.post("")
    async def build() -> Report:
        return value

    api = as_face(router, face)
    async with app, app.worker(), client_of(api) as client:
        sent = await client.post("/reports", headers=WAIT)
        assert sent.status_code == 202
        job = sent.json()
        assert (job["state"], job["result"], job["attempt"]) == ("succeeded", None, 1)
        assert job["error"]["type"] == "urn:tenure:problem:result-unavailable"
        result = await client.get(job["links"]["result"])
        assert (result.status_code, result.json()) == (500, job["error"])
        assert "secret" not in sent.text + result.text
        events = await client.get(job["links"]["events"])
        assert "result-unavailable" in events.text
        assert "secret" not in events.text
        async with AsyncClient("http://test", transport=httpx2.ASGITransport(api)) as remote:
            handle = await remote.job(f"http://test{job['links']['job']}")
            with pytest.raises(ResultUnavailable, match="its result is not available"):
                await handle.result(timeout=10)


class Settings(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)
    page_size: int = 10
    is_admin: bool = Field(False, validation_alias="x-internal-admin")


async def test_a_field_with_an_alias_is_not_set_by_its_name(face: Face):
    app, bodies = Tenure("memory://"), []
    router = AsyncRouter(app, prefix="/settings", owner=lambda: "ann")

    @router.post("")
    async def change(body: Settings) -> Settings:
        bodies.append(body)
        return body

    async with app, app.worker(), client_of(as_face(router, face)) as client:
        body = {"pageSize": 20, "is_admin": True, "page_size": 30}
        done = await client.post("/settings", json=body, headers=WAIT)
        assert done.json() == {"pageSize": 20, "isAdmin": False}
    assert bodies == [Settings(pageSize=20)]


class Line(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)
    item_count: int
    unit_price: float


async def test_every_error_of_a_model_has_a_pointer(face: Face):
    app = Tenure("memory://")
    router = AsyncRouter(app, prefix="/orders", owner=lambda: "ann")

    @router.post("")
    async def order(body: list[Line]) -> int:
        return len(body)

    async with app, client_of(as_face(router, face)) as client:
        body = [{"itemCount": 1, "unitPrice": 2}, {"itemCount": "x"}, {"item_count": 1}]
        wrong = await client.post("/orders", json=body)
        assert wrong.status_code == 422
        assert sorted(error["pointer"] for error in wrong.json()["errors"]) == [
            "/1/itemCount",
            "/1/unitPrice",
            "/2/itemCount",
            "/2/unitPrice",
        ]
        assert await app.jobs() == []
