"""/live and /ready of `tenure.http.health`: plain ASGI, mounted in Starlette and FastAPI."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from tenure import Tenure
from tenure.app import engine_of
from tenure.http import health
from tenure.testing import Faults, FaultyStore
from tests.http.wire import send
from tests.rig.wait import wait_until_async

MANY = 10_000
STORE_CALLS = ("open", "ping", "acquire", "release", "replicas", "counts")


def as_itself(app: Tenure) -> tuple[Any, str]:
    return health(app, timeout=1), ""


def in_starlette(app: Tenure) -> tuple[Any, str]:
    return Starlette(routes=[Mount("/health", app=health(app, timeout=1))]), "/health"


def in_fastapi(app: Tenure) -> tuple[Any, str]:
    inner, web = FastAPI(), FastAPI()
    inner.mount("/health", health(app, timeout=1))
    web.mount("/api", inner)
    return web, "/api/health"


@asynccontextmanager
async def client_of(web: Any, prefix: str = "") -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(app=web)
    async with httpx2.AsyncClient(transport=transport, base_url=f"http://test{prefix}/") as client:
        yield client


@pytest.mark.parametrize("serve", [as_itself, in_starlette, in_fastapi])
async def test_both_routes_answer_wherever_they_are_mounted(
    serve: Callable[[Tenure], tuple[Any, str]],
):
    app = Tenure("memory://")
    web, prefix = serve(app)
    async with client_of(web, prefix) as client, app:
        live, ready = await client.get("live"), await client.get("ready/")
        assert (live.status_code, ready.status_code) == (200, 200)
        assert live.json() == {
            "status": "healthy",
            "checks": [{"name": "loop", "status": "healthy", "seconds": 0.0}],
        }
        assert ready.json()["status"] == "healthy"
        assert ready.headers["content-type"] == "application/json"
        assert ready.headers["cache-control"] == "no-store"
        assert (await client.get("elsewhere")).status_code == 404
        refused = await client.post("ready")
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")
        head = await client.head("ready")
        assert (head.status_code, head.content) == (200, b"")
        assert int(head.headers["content-length"]) > 0


async def test_an_app_is_live_and_not_ready_while_its_store_is_away():
    faults = Faults()
    app = Tenure(FaultyStore("memory://", faults))
    async with client_of(health(app)) as client:
        assert (await client.get("ready")).status_code == 503  # it is not open
        assert (await client.get("live")).status_code == 200
        async with app:
            for call in STORE_CALLS:
                faults.lose_request(call, MANY)
            ready = await client.get("ready")
            assert (ready.status_code, ready.json()["status"]) == (503, "unhealthy")
            assert (await client.get("live")).status_code == 200


async def test_liveness_never_calls_the_store():
    faults = Faults()
    app = Tenure(FaultyStore("memory://", faults))
    async with client_of(health(app)) as client, app, app.lock("lamp"):
        before = faults.calls.copy()
        for _ in range(3):
            live = await client.get("live")
            assert live.status_code == 200
            assert [check["name"] for check in live.json()["checks"]] == [
                "loop",
                "heartbeat thread",
            ]
        assert faults.calls == before


async def test_a_process_whose_heartbeat_thread_hangs_is_not_live():
    app = Tenure("memory://", replica_ttl=1)
    release = threading.Event()
    async with client_of(health(app)) as client, app, app.worker() as worker:
        await worker.ready()
        assert (await client.get("live")).status_code == 200
        host = engine_of(app).host
        assert host is not None
        host.call_soon(release.wait, 30)
        try:
            statuses = []
            for _ in range(5):
                statuses.append((await client.get("live")).status_code)
                await asyncio.sleep(0.1)
        finally:
            release.set()
        assert statuses[0] == 200  # one slow answer kills no process
        assert statuses[-1] == 503

        async def is_live() -> bool:
            return (await client.get("live")).status_code == 200

        await wait_until_async(is_live, 20)


async def test_requests_at_the_same_time_share_one_look_at_the_store():
    faults = Faults()
    app = Tenure(FaultyStore("memory://", faults))
    async with client_of(health(app)) as client, app:
        faults.calls.clear()
        await asyncio.gather(*(client.get("ready") for _ in range(20)))
        await client.get("ready")
        assert faults.calls["ping"] == 1


async def test_a_request_that_is_given_up_does_not_end_the_look_of_the_others():
    faults = Faults()
    app = Tenure(FaultyStore("memory://", faults))
    faults.delay("ping", 0.3)
    async with client_of(health(app)) as client, app:
        first = asyncio.create_task(client.get("ready"))
        await asyncio.sleep(0.05)
        second = asyncio.create_task(client.get("ready"))
        await asyncio.sleep(0.05)
        first.cancel()
        assert (await second).status_code == 200


async def test_a_look_that_another_loop_has_left_is_not_awaited():
    app = Tenure("memory://")
    routes = health(app)
    other = asyncio.new_event_loop()  # on which the app was open before; it was closed meanwhile
    left: Any = other.create_future()
    other.close()
    routes._look = left
    async with client_of(routes) as client, app:
        assert (await client.get("ready")).status_code == 200


async def test_details_are_for_those_who_ask_for_them_in_the_code():
    app = Tenure("memory://")
    async with app, client_of(health(app)) as quiet, client_of(health(app, details=True)) as open_:
        assert "detail" not in (await quiet.get("ready")).text
        [store, *_] = (await open_.get("ready")).json()["checks"]
        assert store["detail"].startswith("answered in")


async def test_what_is_no_request_is_refused():
    with pytest.raises(ValueError, match="'lifespan'"):
        await health(Tenure("memory://"))({"type": "lifespan"}, None, None)  # type: ignore[arg-type]


async def test_it_needs_no_framework():
    reply = await send(health(Tenure("memory://")), "GET", b"/live")
    assert (reply.status, dict(reply.headers)[b"content-type"]) == (200, b"application/json")
