"""Wherever the routes are mounted, links lead back and connections open on demand."""

import asyncio
import gc
import math
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import APIRouter, Depends, FastAPI, HTTPException
from starlette.applications import Starlette
from starlette.routing import Mount

from tenure import Tenure
from tenure.core.clock import SystemClock
from tenure.errors import StoreUnavailable
from tenure.http import AsyncRouter
from tenure.http.server import app_per_loop as lending
from tenure.http.server import store_trouble
from tenure.stores.connect import connect
from tenure.testing import Faults, FaultyStore
from tests.contract.worlds import World
from tests.http.conftest import Replica
from tests.http.service import Face, Service, as_face, user
from tests.http.wire import client_of, remote, served
from tests.rig.sizes import SIZE
from tests.rig.waiting import wait_until_async


def included(service: Service, *prefixes: str) -> FastAPI:
    inner: Any = service.router.router
    for prefix in prefixes[:-1]:
        outer = APIRouter()
        outer.include_router(inner, prefix=prefix)
        inner = outer
    api = FastAPI()
    api.include_router(inner, prefix=prefixes[-1])
    return api


def below(app: Any, path: str) -> FastAPI:
    api = FastAPI()
    api.mount(path, app)
    return api


PLACES = {
    "as it is": (lambda service: included(service, ""), ""),
    "included": (lambda service: included(service, "/v1"), "/v1"),
    "included twice": (lambda service: included(service, "/a", "/b"), "/b/a"),
    "included by name": (lambda service: included(service, "/reports"), "/reports"),
    "below a parameter": (lambda service: included(service, "/of/{tenant}"), "/of/x%20y"),
    "mounted": (lambda service: below(included(service, "/v1"), "/sub"), "/sub/v1"),
    "asgi": (lambda service: service.router.asgi, ""),
    "asgi mounted": (
        lambda service: Starlette(routes=[Mount("/m", app=service.router.asgi)]),
        "/m",
    ),
    "asgi below FastAPI": (lambda service: below(service.router.asgi, "/x/y"), "/x/y"),
    "behind a proxy": (lambda service: included(service, ""), "/outside"),
    "behind a proxy, alike": (lambda service: included(service, ""), "/rep"),
}


@pytest.mark.parametrize("place", PLACES)
async def test_links_lead_back(replica: Replica, place: str):
    service = await replica()
    make, path = PLACES[place]
    prefix = "" if place.startswith("behind a proxy") else path
    root = path.removesuffix(prefix)  # removed by a proxy that sends it as the root path
    async with client_of(make(service), root_path=root, timeout=20) as ann:
        for method, below_ in (("POST", "/slow"), ("PUT", "/years/2020"), ("DELETE", "/years/1")):
            answer = await ann.request(method, f"{prefix}/reports{below_}")
            assert answer.status_code == 202, answer.text
            job = answer.json()
            location = f"{path}/reports/jobs/{job['id']}"
            assert answer.headers["location"] == job["links"]["job"] == location
            status = await ann.get(location.removeprefix(root))
            assert status.json()["links"] == job["links"]
            cancelled = await ann.delete(location.removeprefix(root))
            assert cancelled.json()["links"] == job["links"]
        [*_, listed] = (await ann.get(f"{prefix}/reports/jobs")).json()["jobs"]
        assert listed["links"]["job"].startswith(f"{path}/reports/jobs/")
        waited = await ann.put(f"{prefix}/reports/years/1", headers={"Prefer": "wait=20"})
        assert waited.headers["content-location"].startswith(f"{path}/reports/jobs/")


async def test_links_lead_back_over_the_wire(service: Service):
    async with served(below(included(service, "/v1"), "/sub")) as url, remote(url) as ann:
        location = (await ann.post("/sub/v1/reports/slow")).headers["location"]
        assert (await ann.get(location)).status_code == 200
        assert (await ann.delete(location)).status_code in (200, 202)


def make_router(app: Tenure) -> AsyncRouter:
    router = AsyncRouter(app, prefix="/r", owner=user)

    @router.post("")
    async def chore() -> int:
        return 1

    return router


@pytest.mark.filterwarnings("error")
async def test_connections_open_when_they_are_needed(real_world: World, face: Face):
    """They are closed with the application if its lifespan ends."""
    app = Tenure(real_world.unopened())
    router = make_router(app)
    api = FastAPI()
    if face == "fastapi":
        api.include_router(router.router)
    else:
        api = router.asgi
    assert not app.is_open
    async with served(api) as url, remote(url) as ann:
        answers = await asyncio.gather(*(ann.post("/r") for _ in range(5)))
        assert {answer.status_code for answer in answers} == {202}
        assert not app.is_open
        assert len(router.lending._clones) == 1
    assert len(router.lending._clones) == 0


async def test_an_app_that_is_open_on_this_loop_is_used(real_world: World):
    app = Tenure(real_world.unopened())
    router = make_router(app)
    async with app, app.worker(), client_of(router.asgi, timeout=20) as ann:
        answer = await ann.post("/r", headers={"Prefer": "wait=20"})
        assert (answer.status_code, answer.json()) == (200, 1)
        assert len(router.lending._clones) == 0


def test_every_loop_has_a_connection_of_its_own(namespace: str, face: Face):
    """As each test of a user's suite has. Connections of a closed loop are released with it."""
    app = Tenure(f"memory://{namespace}", namespace=namespace)
    router = make_router(app)
    api = FastAPI()
    api.include_router(router.router)
    served_ = api if face == "fastapi" else router.asgi

    async def once() -> int:
        async with client_of(served_) as ann:
            assert (await ann.post("/r")).status_code == 202
            jobs = (await ann.get("/r/jobs")).json()["jobs"]
        return len(jobs)

    counts = [asyncio.run(once()) for _ in range(5)]
    assert counts[0] == 1
    assert len(router.lending._clones) == 1
    assert len(app._store._database.listeners) == 1


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # a correct warning
async def test_connections_of_closed_loops_are_given_back(real_world: World):
    """As soon as another loop is used, even without the end of a lifespan."""
    app = Tenure(real_world.unopened())
    router = make_router(app)

    async def once() -> None:
        async with client_of(router.asgi, timeout=20) as ann:
            # Not a post: cancelling its wake-ups in flight would drop connections.
            assert (await ann.get("/r/jobs")).status_code == 200

    def left_open() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    await asyncio.to_thread(asyncio.run, once())
    await router.lending.close()
    gc.collect()
    gc.disable()  # the garbage collector would close some of them later
    try:
        before = left_open()
        for _ in range(5):
            await asyncio.to_thread(asyncio.run, once())
        await router.lending.close()
        # SQLite closes its file in a thread of its own.
        await wait_until_async(lambda: left_open() <= before, SIZE.patience)
    finally:
        gc.enable()
        gc.collect()


class Gate:
    """A store that cannot be opened for now, and is slow to fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = 0
        self.go = asyncio.Event()
        self.is_away = True
        really_open = Tenure.open

        async def open_(app: Tenure) -> None:
            self.opened += 1
            await self.go.wait()
            if self.is_away:
                msg = "away"
                raise StoreUnavailable(msg)
            await really_open(app)

        monkeypatch.setattr(Tenure, "open", open_)


async def test_a_store_that_hangs_is_asked_once_for_all_requests(
    namespace: str, face: Face, monkeypatch: pytest.MonkeyPatch
):
    """The first request may be cancelled: the others share one attempt, not one each."""
    monkeypatch.setattr(lending, "_ERROR_KEPT", 10 * SIZE.patience)
    gate = Gate(monkeypatch)
    router = make_router(Tenure(f"memory://{namespace}", namespace=namespace))
    async with client_of(as_face(router, face), timeout=20) as ann:
        first = asyncio.create_task(ann.post("/r"))
        await wait_until_async(lambda: gate.opened, SIZE.patience)
        others = [asyncio.create_task(ann.post("/r")) for _ in range(4)]
        first.cancel()
        await asyncio.wait([first])
        assert first.cancelled()
        gate.go.set()
        answers = [*await asyncio.gather(*others), await ann.post("/r")]
        assert {answer.status_code for answer in answers} == {503}
        assert gate.opened == 1

        monkeypatch.setattr(lending, "_ERROR_KEPT", 0.0)
        gate.is_away = False
        answers = await asyncio.gather(*(ann.post("/r") for _ in range(4)))
        assert {answer.status_code for answer in answers} == {202}
        assert gate.opened == 2
    await router.lending.close()


async def test_closing_ends_what_is_being_opened(
    namespace: str, face: Face, monkeypatch: pytest.MonkeyPatch
):
    gate = Gate(monkeypatch)
    router = make_router(Tenure(f"memory://{namespace}", namespace=namespace))
    async with client_of(as_face(router, face), timeout=20) as ann:
        asking = asyncio.create_task(ann.post("/r"))
        await wait_until_async(lambda: gate.opened, SIZE.patience)
        await router.lending.close()
        assert (await asking).status_code == 503
        assert not router.lending._clones
        gate.go.set()
        gate.is_away = False
        assert (await ann.post("/r")).status_code == 202  # the application can be opened again
    await router.lending.close()


async def test_an_unreachable_store_answers_503_and_is_logged(
    face: Face, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(store_trouble._unavailable, "_logged_at", -math.inf)
    router = make_router(Tenure("redis://ann:hunter2@127.0.0.1:1"))
    api = FastAPI()
    api.include_router(router.router)
    async with client_of(api if face == "fastapi" else router.asgi, timeout=20) as ann:
        for answer in (await ann.post("/r"), await ann.get("/r/jobs")):
            assert answer.status_code == 503
            assert answer.json()["type"] == "urn:tenure:problem:store-unavailable"
            assert "127.0.0.1" not in answer.text
    [warning] = [line for line in caplog.records if line.name == "tenure"]
    assert warning.levelname == "WARNING"
    assert "the store is away" in warning.getMessage()
    assert "127.0.0.1:1" in warning.getMessage()
    assert "hunter2" not in warning.getMessage()


@pytest.mark.parametrize("is_opened_by_the_service", [True, False])
async def test_a_service_that_starts_without_its_store_answers_503(
    namespace: str, face: Face, is_opened_by_the_service: bool
):
    faults = Faults()
    faults.lose_request("open", 10**6)
    store = connect(f"memory://{namespace}", namespace=namespace, clock=SystemClock())
    app = Tenure(FaultyStore(store, faults), connect="lazy")
    router = make_router(app)
    async with AsyncExitStack() as stack:
        if is_opened_by_the_service:
            await stack.enter_async_context(app)
        stack.push_async_callback(router.lending.close)
        ann = await stack.enter_async_context(client_of(as_face(router, face), timeout=20))
        answer = await ann.post("/r")
        assert answer.status_code == 503
        assert answer.json()["type"] == "urn:tenure:problem:store-unavailable"
        assert "Retry-After" in answer.headers
        faults.heal()

        async def is_stored() -> bool:
            return (await ann.post("/r")).status_code == 202

        await wait_until_async(is_stored, SIZE.patience)


async def test_dependencies_run_on_every_route(replica: Replica):
    ran = []

    async def look(x_pass: str = "") -> None:
        ran.append(x_pass)
        if x_pass != "yes":
            raise HTTPException(418, "no")

    service = await replica(dependencies=[Depends(look)])
    async with client_of(included(service, ""), timeout=20) as ann:
        location = (await ann.post("/reports/slow?x_pass=yes")).headers["location"]
        for path in ("/reports/jobs", location, f"{location}/result", f"{location}/events"):
            answer: httpx2.Response = await ann.get(path)
            assert answer.status_code == 418, path
        assert (await ann.post("/reports/slow")).status_code == 418
        assert (await ann.delete(location)).status_code == 418
        assert (await ann.get("/reports/jobs/x/y/z")).status_code == 418
    assert len(ran) == 8
