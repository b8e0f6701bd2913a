"""Every path takes its methods and names them in Allow, on both frameworks alike."""

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from tenure import Tenure
from tenure.http import AsyncRouter
from tests.http.service import Face, as_face
from tests.http.wire import client_of

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")


@pytest.fixture
def api(face: Face):
    app = Tenure("memory://")
    router = AsyncRouter(app, prefix="/r", owner=lambda: "ann")

    @router.post("")
    async def build() -> int:
        return 1

    @router.put("", name="again")
    async def again() -> int:
        return 1

    @router.delete("/years/{year}", name="remove")
    async def remove(year: int) -> int:
        return year

    @router.patch("/years/{number}", name="change")
    async def change(number: int) -> int:
        return number

    @router.post("/jobs", name="hire")
    async def hire() -> int:
        return 1

    return app, as_face(router, face)


TAKES = {
    "/r": "POST, PUT",
    "/r/years/7": "DELETE, PATCH",
    "/r/jobs": "GET, HEAD, POST",
    "{job}": "DELETE, GET, HEAD",
    "{job}/result": "GET, HEAD",
    "{job}/events": "GET, HEAD",
    "/r/jobs/nope": "DELETE, GET, HEAD",
    "/r/jobs/01900000-0000-7000-8000-000000000000": "DELETE, GET, HEAD",
}


@pytest.mark.parametrize(("path", "takes"), TAKES.items())
async def test_a_method_that_a_path_does_not_support_is_refused_with_the_allowed_ones(
    api: Any, path: str, takes: str
):
    app, served = api
    async with app, client_of(served) as client:
        job = (await client.post("/r")).headers["Location"]
        for method in METHODS:
            if method in takes.split(", "):
                continue
            refused = await client.request(method, path.format(job=job))
            assert (method, refused.status_code) == (method, 405)
            assert refused.headers["Allow"] == takes
            if method != "HEAD":
                assert refused.json()["type"] == "urn:tenure:problem:method-not-allowed"


@pytest.mark.parametrize("path", ["/r/jobs/a/b", "/r/jobs/a/result/x", "/r/jobs/", "/r/jobs//"])
async def test_an_unknown_path_is_not_found_with_any_method(api: Any, path: str):
    app, served = api
    async with app, client_of(served) as client:
        for method in METHODS:
            answer = await client.request(method, path)
            assert (method, answer.status_code) == (method, 404)
            if method != "HEAD":
                assert answer.json()["type"] == "urn:tenure:problem:not-found"


async def test_head_is_get_without_the_body(api: Any):
    app, served = api
    async with app, app.worker(), client_of(served) as client:
        done = await client.post("/r", headers={"Prefer": "wait=10"})
        job = done.headers["Location"]
        for path in ("/r/jobs", job, f"{job}/result", f"{job}/events"):
            get, head = await client.get(path), await client.head(path)
            assert head.status_code == get.status_code == 200
            for name in ("content-type", "etag", "cache-control", "vary"):
                assert head.headers.get(name) == get.headers.get(name), (path, name)
        assert (await client.head("/r/jobs/nope")).status_code == 404


async def test_head_is_in_no_document(api: Any, face: Face):
    _, served = api
    if face == "fastapi":
        paths = served.openapi()["paths"]
        assert {method for path in paths.values() for method in path} == {
            "get",
            "post",
            "put",
            "patch",
            "delete",
        }


async def test_a_route_of_the_application_beside_an_endpoint_is_served(face: Face):
    """A route for another method of the same path does not interfere."""
    if face == "starlette":
        return
    app = Tenure("memory://")
    router = AsyncRouter(app, prefix="/r", owner=lambda: "ann")

    @router.post("")
    async def build() -> int:
        return 1

    served = as_face(router, face)
    served.get("/r")(lambda: "mine")
    async with app, client_of(served) as client:
        assert (await client.get("/r")).json() == "mine"


async def test_a_route_added_to_the_router_keeps_its_own_methods(face: Face):
    """A wrong method on it once ended in a 500. Its methods join those of an endpoint in Allow."""
    if face == "starlette":
        return
    app = Tenure("memory://")
    router = AsyncRouter(app, prefix="/r", owner=lambda: "ann")

    @router.post("")
    async def build() -> int:
        return 1

    added = router.router
    added.get("/extra")(lambda: "mine")
    added.patch("")(lambda: "mine, too")
    served = as_face(router, face)
    async with app, client_of(served) as client:
        assert (await client.get("/r/extra")).json() == "mine"
        refused = await client.post("/r/extra")
        assert (refused.status_code, refused.headers["Allow"]) == (405, "GET")
        assert (await client.patch("/r")).json() == "mine, too"
        assert (await client.put("/r")).headers["Allow"] == "PATCH, POST"


@pytest.mark.parametrize("outer", ["", "/api/r"])
async def test_a_path_that_several_routes_fit_names_the_methods_of_all(face: Face, outer: str):
    app = Tenure("memory://")
    router = AsyncRouter(app, prefix="/r", owner=lambda: "ann")

    @router.post("/{year}")
    async def build(year: str) -> str:
        return year

    @router.patch("/{number:int}", name="count")
    async def count(number: int) -> int:
        return number

    served: Any = as_face(router, face)
    if outer:
        served = Starlette(routes=[Mount(outer, served)])
    async with app, client_of(served) as client:
        for path, takes in {
            "/r/jobs": "GET, HEAD, POST",
            "/r/5": "PATCH, POST",
            "/r/x": "POST",
            "/r/jobs/nope": "DELETE, GET, HEAD",
        }.items():
            refused = await client.request("PROPFIND", f"{outer}{path}")
            assert (path, refused.status_code) == (path, 405)
            assert (path, refused.headers["Allow"]) == (path, takes)
