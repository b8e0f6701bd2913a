"""Jobs of other owners are answered byte for byte like unknown jobs, on every route."""

import itertools
from typing import Annotated, Any

import httpx2
import pytest
from fastapi import Depends, Header
from starlette.requests import HTTPConnection, Request

from tenure import ConfigError, Tenure
from tenure.http import AsyncRouter, Problem
from tests.http.conftest import Replica
from tests.http.service import Face, Service, as_face
from tests.http.wire import Reply, client_of, send

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
BELOW = (b"", b"/result", b"/events")
UNKNOWN = b"01900000-0000-7000-8000-000000000000"
MALFORMED = (
    b"x",
    b"1",
    b"..",
    b".",
    b"%2e%2e",
    b"%2E%2E%2F%2E%2E",
    b"..%2fjobs",
    b"%00",
    b"%0d%0aX-Evil:%201",
    b"%ff%fe",
    b"%F0%9F%92%A9",
    b"x" * 4000,
    b"9" * 300,
    b"-1",
    b"null",
    b"*",
    b"%25",
    b"01900000-0000-4000-8000-000000000000",  # not the UUID version of job ids
    b"01900000000070008000000000000000",
    b"{job_id}",
    b"' OR 1=1 --".replace(b" ", b"%20"),
)


async def ask(application: Any, method: str, target: bytes, user: str = "ben") -> Reply:
    reply = await send(application, method, target, headers=[(b"x-user", user.encode())])
    reply.headers = sorted(header for header in reply.headers if header[0] != b"date")
    return reply


async def job_of_ann(application: Any, path: str = "/reports/slow") -> bytes:
    async with client_of(application) as client:
        return (await client.post(path)).json()["id"].encode()


async def test_every_route_answers_404_for_jobs_of_other_owners(service: Service, face: Face):
    application = service.face(face)
    theirs = await job_of_ann(application)
    for method, below in itertools.product(METHODS, BELOW):
        never_was = await ask(application, method, b"/reports/jobs/" + UNKNOWN + below)
        foreign = await ask(application, method, b"/reports/jobs/" + theirs + below)
        assert foreign == never_was, (method, below)
        # A method that a path does not support is refused for any id.
        is_taken = method in ("GET", "HEAD") or (method == "DELETE" and not below)
        assert foreign.status == (404 if is_taken else 405)
        assert (b"content-type", b"application/problem+json") in foreign.headers
        for id_ in MALFORMED:
            odd = await ask(application, method, b"/reports/jobs/" + id_ + below)
            if is_taken:
                assert odd == never_was, (method, id_, below)
            else:
                assert odd.status in (404, 405)
        if below and is_taken:
            odd = await ask(application, method, b"/reports/jobs/" + theirs + below + b"%0a")
            assert odd == never_was, (method, below)
    assert [job.record.cancelling for job in await service.app.jobs()] == [False]


async def test_a_path_that_is_almost_a_job_is_not_found(service: Service, face: Face):
    """Not even for its owner, so that such paths do not reveal which jobs exist."""
    application = service.face(face)
    theirs = await job_of_ann(application)
    for user in ("ann", "ben"):
        never_was = await ask(application, "GET", b"/reports/jobs/" + UNKNOWN, user)
        for form in (b"%s/", b"/%s", b"%s//", b"%s/x", b"%s/result/", b"%s//result", b"%s/%%0a"):
            for id_ in (theirs, UNKNOWN):
                reply = await ask(application, "GET", b"/reports/jobs/" + form % id_, user)
                assert reply == never_was, form


async def test_an_id_in_other_letter_case_is_another_id(service: Service, face: Face):
    application = service.face(face)
    theirs = await job_of_ann(application)
    never_was = await ask(application, "GET", b"/reports/jobs/" + UNKNOWN, "ann")
    for id_ in (theirs.upper(), theirs.replace(b"-", b""), theirs + b"%0a", b"%20" + theirs):
        if id_ != theirs:
            assert await ask(application, "GET", b"/reports/jobs/" + id_, "ann") == never_was


async def test_a_list_shows_its_owner_their_own_jobs_only(real_replica: Replica):
    service = await real_replica(works=False)
    async with client_of(service.face("fastapi")) as ann:
        for _ in range(5):
            await ann.post("/reports/slow")
        await ann.post("/reports/slow", headers={"x-user": "ben"})
        names = {"ann": 5, "ben": 1, "ANN": 0, "an": 0, "*": 0, "%": 0, 'ann"': 0}
        for user, expected in names.items():
            whole = (await ann.get("/reports/jobs", headers={"x-user": user})).json()
            assert len(whole["jobs"]) == expected, user
            assert whole["cursor"] is None

        # A cursor is a place in a list, for any user.
        page = (await ann.get("/reports/jobs?limit=2")).json()
        others = f"/reports/jobs?cursor={page['cursor']}"
        assert (await ann.get(others, headers={"x-user": "eve"})).json()["jobs"] == []


async def test_a_job_is_seen_through_its_own_router_only(replica: Replica, face: Face):
    service = await replica(works=False)
    other = type(service.router)(service.app, prefix="/bills", owner=service.router.owner)

    @other.post("")
    async def bill() -> None: ...

    id_ = await job_of_ann(service.face(face))
    elsewhere = as_face(other, face)
    foreign = await ask(elsewhere, "GET", b"/bills/jobs/" + id_, "ann")
    assert foreign == await ask(elsewhere, "GET", b"/bills/jobs/" + UNKNOWN, "ann")
    async with client_of(elsewhere) as client:
        assert (await client.get("/bills/jobs")).json()["jobs"] == []
        assert (await client.delete(f"/bills/jobs/{id_.decode()}")).status_code == 404


async def test_jobs_that_were_not_submitted_over_http_are_not_shown(service: Service, face: Face):
    @service.app.task
    async def chore() -> None: ...

    job = await chore.enqueue()
    application = service.face(face)
    reply = await ask(application, "GET", f"/reports/jobs/{job.id}".encode(), "ann")
    assert reply == await ask(application, "GET", b"/reports/jobs/" + UNKNOWN, "ann")


async def test_a_user_without_access_is_refused_on_every_route(service: Service, face: Face):
    application = service.face(face)
    theirs = (await job_of_ann(application)).decode()
    paths = ["", f"/{theirs}", f"/{theirs}/result", f"/{theirs}/events", "/x/y/z"]
    async with client_of(application, user="") as anonymous:
        for path in paths:
            assert (await anonymous.get(f"/reports/jobs{path}")).status_code == 401, path
        assert (await anonymous.delete(f"/reports/jobs/{theirs}")).status_code == 401
        assert (await anonymous.post("/reports/slow")).status_code == 401
        assert (await anonymous.post("/reports", json={"month": 3})).status_code == 401
    assert len(await service.app.jobs()) == 1


@pytest.mark.parametrize("missing", [None, "", " \t"])
async def test_a_missing_owner_is_refused(replica: Replica, face: Face, missing):
    """Otherwise all callers without an owner would see each other's jobs."""
    service = await replica(owner=lambda: missing) if face == "fastapi" else None
    service = service or await replica(owner=lambda _: missing)
    async with client_of(service.face(face)) as client:
        for answer in (
            await client.get("/reports/jobs"),
            await client.post("/reports/slow"),
            await client.get("/reports/jobs/x"),
            await client.get("/reports/jobs/x/y/z"),
        ):
            assert answer.status_code == 403
            assert answer.json()["type"] == "urn:tenure:problem:unknown-owner"
    assert await service.app.jobs() == []


class User:
    """Its text is its memory address, which another object can get later."""


@pytest.mark.parametrize("owner", [User(), b"ann", True, 0.5, ["ann"], {"id": 7}])
async def test_an_owner_that_is_not_a_name_is_refused(replica: Replica, face: Face, owner: object):
    service = await replica(works=False, owner=lambda: owner)
    async with client_of(service.face(face)) as client:
        for path in ("/reports/jobs", "/reports/jobs/x"):
            with pytest.raises(ConfigError, match=f"returned a {type(owner).__name__}"):
                await client.get(path)
        with pytest.raises(ConfigError, match="the id of the user"):
            await client.post("/reports/slow")
    assert await service.app.jobs() == []


def who_by_header(x_user: Annotated[str, Header()]) -> str:
    return x_user


def who_by_request_and_more(request: Request, token: str) -> str:
    return token


@pytest.mark.parametrize(
    "options",
    [
        {"dependencies": [Depends(lambda: None)], "owner": lambda: "x"},
        {"owner": who_by_header},
        {"owner": who_by_request_and_more},
    ],
    ids=["dependencies", "a header", "more than the request"],
)
def test_dependencies_of_fastapi_are_refused_by_asgi(options: dict[str, Any]):
    router = AsyncRouter(Tenure("memory://"), prefix="/r", **options)
    with pytest.raises(ConfigError, match="FastAPI"):
        _ = router.asgi
    assert router.router is not None


def by_name(request: "Request") -> str:
    return request.headers["x-user"]


def by_base(request: HTTPConnection) -> str:
    return request.headers["x-user"]


def by_anything(request: Any, *args: Any, also: int = 0, **more: Any) -> str:
    return request.headers["x-user"]


def by_what_is_not_here(request: "Elsewhere") -> str:  # noqa: F821 - that is the point
    return request.headers["x-user"]


class Unreadable:
    """Callable, but its signature cannot be read."""

    def __init__(self, signature: object) -> None:
        self.__signature__ = signature

    def __call__(self, request: Request) -> str:
        return request.headers["x-user"]


def unreadable(self: object) -> None:
    raise ValueError


class Opaque(Unreadable):
    """Has no signature at all."""

    __signature__ = property(unreadable)

    def __init__(self) -> None: ...


OWNERS = [by_name, by_base, by_anything, by_what_is_not_here, Unreadable("x"), Opaque()]


@pytest.mark.parametrize("owner", OWNERS, ids=lambda owner: getattr(owner, "__name__", "object"))
async def test_any_callable_that_takes_a_request_can_be_the_owner_function(
    replica: Replica, owner: Any
):
    service = await replica(works=False, owner=owner)
    async with client_of(service.face("starlette")) as ann:
        await ann.post("/reports/slow")
        assert len((await ann.get("/reports/jobs")).json()["jobs"]) == 1
        ben = {"x-user": "ben"}
        assert (await ann.get("/reports/jobs", headers=ben)).json()["jobs"] == []


def needing_more(request: Request, *, token: str) -> str:
    return token


def of_text(request: str) -> str:
    return request


def of_either(request: Request | None) -> str:
    return ""


@pytest.mark.parametrize("owner", [needing_more, of_text, of_either])
def test_a_callable_that_needs_more_than_a_request_cannot_be_the_owner_function(owner: Any):
    router = AsyncRouter(Tenure("memory://"), prefix="/r", owner=owner)
    with pytest.raises(ConfigError, match="gets the request alone"):
        _ = router.asgi


async def test_an_owner_may_refuse_with_a_problem(replica: Replica, face: Face):
    async def strict(request: Request) -> str:
        raise Problem(403, "Not you", headers={"X-Why": "because"})

    service = await replica(owner=strict)
    async with client_of(service.face(face)) as client:
        for answer in (await client.get("/reports/jobs/x"), await client.post("/reports/slow")):
            assert answer.status_code == 403
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.headers["x-why"] == "because"
            assert answer.json()["title"] == "Not you"


async def test_without_an_owner_function_a_warning_is_logged(replica: Replica, face: Face, caplog):
    service = await replica(owner=None)
    async with client_of(service.face(face), user="") as client:
        assert "have no owner" in caplog.text
        answer = await client.post("/reports/slow")
        assert (await client.get(answer.headers["location"])).status_code == 200
        assert len((await client.get("/reports/jobs")).json()["jobs"]) == 1


async def test_a_number_can_be_an_owner(replica: Replica, face: Face):
    service = await replica(owner=(lambda: 7) if face == "fastapi" else (lambda _: 7))
    async with client_of(service.face(face)) as client:
        assert (await client.post("/reports/slow")).status_code == 202
        answer: httpx2.Response = await client.get("/reports/jobs")
        assert len(answer.json()["jobs"]) == 1
