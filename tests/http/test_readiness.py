"""Readiness of an app as a probe sees it; docs/http.md and docs/locks.md describe it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest
from fastapi import FastAPI, Response

from tenure import StoreError, StoreUnavailable, Tenure
from tenure.http import AsyncRouter
from tenure.testing import Faults, FaultyStore
from tests.rig.waiting import wait_until_async

MANY = 10_000
ALL = ("open", "insert", "get", "counts")


def serve(app: Tenure, *, opens: bool) -> FastAPI:
    """Return an application that opens the app in its lifespan, or lets the router open it."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if opens:
            async with app:
                yield
        else:
            yield

    reports = AsyncRouter(app, prefix="/reports", owner=lambda: "ann")

    @reports.post("")
    async def build(month: int) -> str:
        return f"month {month}"

    api = FastAPI(lifespan=lifespan)
    api.include_router(reports.router)

    @api.get("/ready")
    async def ready(response: Response) -> None:
        response.status_code = 200 if app.is_ready else 503

    return api


@asynccontextmanager
async def client_of(api: FastAPI) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(app=api)
    client = httpx2.AsyncClient(transport=transport, base_url="http://test")
    async with api.router.lifespan_context(api), client:
        yield client


async def test_an_app_is_ready_once_its_store_was_reached_and_stays_ready_in_an_outage():
    faults = Faults()
    faults.lose_request("open", MANY)
    app = Tenure(FaultyStore("memory://", faults), connect="lazy")
    async with client_of(serve(app, opens=True)) as client:
        assert (await client.get("/ready")).status_code == 503
        assert (await client.post("/reports", params={"month": 5})).status_code == 503
        faults.heal()
        await app.ready()
        assert (await client.get("/ready")).status_code == 200
        assert (await client.post("/reports", params={"month": 5})).status_code == 202

        for call in ALL:
            faults.lose_request(call, MANY)
        with pytest.raises(StoreUnavailable):
            await app.queues()
        await app.ready()
        assert (await client.get("/ready")).status_code == 200
        assert (await client.post("/reports", params={"month": 5})).status_code == 503
        faults.heal()
        await wait_until_async(app.queues)


async def test_the_connection_of_a_router_does_not_make_the_app_ready():
    app = Tenure("memory://")
    async with client_of(serve(app, opens=False)) as client:
        assert (await client.post("/reports", params={"month": 5})).status_code == 202
        assert (await client.get("/ready")).status_code == 503
        with pytest.raises(StoreError, match="not open"):
            await app.ready()
