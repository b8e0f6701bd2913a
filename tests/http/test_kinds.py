"""Bodies and results of every kind match those of a plain FastAPI route with the same handler."""

from typing import Annotated, Any

import pytest
from fastapi import Body, FastAPI

from tenure import Tenure
from tenure.core.values.json import encode
from tenure.http import AsyncRouter
from tests.http.wire import client_of
from tests.jobs.kinds import KINDS, Kind

JSON = {"Content-Type": "application/json"}
WORDS = {"constrained", "url", "iterable"}
"""Kinds that cannot be a body by themselves; a list of them can."""


def echoing(kind: Kind, bodies: list[Any]):
    """Return a handler that returns its body, and the value to send."""
    type_, value = kind.type, kind.value
    if kind.name in WORDS:
        type_, value = list.__class_getitem__(type_), [value]

    async def echo(body):
        bodies.append(body)
        return body

    echo.__annotations__ = {"body": type_, "return": type_}
    return echo, value


def in_body(handler):
    """Return a handler as FastAPI reads it without help: it looks for some types in the query."""

    async def plain(body):
        return await handler(body)

    kind = handler.__annotations__["return"]
    plain.__annotations__ = {"body": Annotated[kind, Body()], "return": kind}
    return plain


def schema_of(api: FastAPI, path: str) -> Any:
    answer = api.openapi()["paths"][path]["post"]["responses"]["200"]
    schema = answer["content"]["application/json"]["schema"]
    schema.pop("title", None)  # derived from the name of the function
    return schema


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind.is_for_fastapi], ids=lambda kind: kind.name
)
async def test_fastapi_sends_and_documents_the_same_for_a_job(kind: Kind):
    app, api = Tenure("memory://"), FastAPI()
    router = AsyncRouter(app, prefix="/slow", owner=lambda: "ann")
    bodies: list[Any] = []
    echo, value = echoing(kind, bodies)
    api.post("/plain")(in_body(echo))
    router.post("")(echo)
    api.include_router(router.router)
    assert schema_of(api, "/slow") == schema_of(api, "/plain")
    body = encode(value)
    async with app, app.worker(), client_of(api) as client:
        plain = await client.post("/plain", content=body, headers=JSON)
        slow = await client.post("/slow", content=body, headers={**JSON, "Prefer": "wait=10"})
        assert (plain.status_code, slow.status_code) == (200, 200), (plain.text, slow.text)
        assert slow.json() == plain.json()
        job = (await client.get(slow.headers["Location"])).json()
        assert (job["result"], job["error"]) == (plain.json(), None)
    assert repr(bodies[0]) == repr(bodies[1])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_starlette_serves_the_same_as_fastapi(kind: Kind):
    app = Tenure("memory://")
    router = AsyncRouter(app, prefix="/slow", owner=lambda: "ann")
    bodies: list[Any] = []
    echo, value = echoing(kind, bodies)
    task = router.post("")(echo)
    async with app, app.worker(), client_of(router.asgi) as client:
        headers = {**JSON, "Prefer": "wait=10"}
        slow = await client.post("/slow", content=encode(value), headers=headers)
        assert slow.status_code == 200, slow.text
        own = await (await task.enqueue(value)).wait(10)
        assert slow.json() == (await client.get(slow.headers["Location"])).json()["result"]
        assert own.state == "succeeded"
    if kind.name != "private attributes":
        assert bodies == [value, value]
