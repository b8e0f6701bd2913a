"""Hooks and limits: set by public options, applied before anything is stored."""

import asyncio
import dataclasses
import sys
import time

import httpx2
import pytest
from fastapi import FastAPI

from tenure import ConfigError, Tenure
from tenure.http import AsyncRouter, JobResource, Limits, Problem, Responses, Submission
from tenure.testing import Faults
from tests.http.conftest import Replica
from tests.http.service import Ask, Face, Service, Stage, stored, user
from tests.http.wire import client_of


async def test_a_hook_sees_a_submission_before_it_is_stored(replica: Replica, face: Face):
    service = await replica(works=False)
    seen: list[Submission] = []

    async def look(submission: Submission) -> None:
        seen.append(submission)
        if submission.arguments["body"].month > 12:
            raise Problem(402, "Pay first", headers={"X-Price": "7"}, price=7)

    def plain(submission: Submission) -> None:
        assert submission.owner == "ann"

    @service.router.put("/looked/{year}", before_enqueue=look)
    async def looked(year: int, body: Ask, q: str = "z") -> None: ...

    @service.router.post("/plain", before_enqueue=plain)
    async def plainly() -> None: ...

    async with client_of(service.face(face)) as ann:
        headers = {"Accept-Language": "de", "Authorization": "x"}
        refused = await ann.put(
            "/reports/looked/2024", json={"month": 13, "secret": "s3"}, headers=headers
        )
        assert refused.status_code == 402
        assert refused.headers["x-price"] == "7"
        assert refused.json()["price"] == 7
        assert await stored(service.app) == []
        [submission] = seen
        assert (submission.owner, submission.method, submission.path) == (
            "ann",
            "PUT",
            "/looked/{year}",
        )
        assert dict(submission.headers) == {"accept-language": "de"}
        assert submission.arguments["year"] == 2024
        assert submission.arguments["body"].secret.get_secret_value() == "s3"
        assert (await ann.put("/reports/looked/1", json={"month": 1})).status_code == 202
        assert (await ann.post("/reports/plain")).status_code == 202
        bad = await ann.put("/reports/looked/x", json={"month": 1})
        assert (bad.status_code, len(seen)) == (422, 2)


async def test_a_hook_does_not_see_a_repeated_submission(replica: Replica, face: Face):
    service = await replica(works=False)
    looked: list[Submission] = []

    def once(submission: Submission) -> None:
        looked.append(submission)
        if len(looked) > 1:
            raise Problem(402, "Pay again")

    @service.router.post("/once", before_enqueue=once)
    async def slowly(q: int = 0) -> None: ...

    async with client_of(service.face(face)) as ann:
        keyed = {"Idempotency-Key": "k"}
        first = await ann.post("/reports/once", headers=keyed)
        again = await ann.post("/reports/once", headers=keyed)
        assert (again.status_code, again.headers["location"]) == (202, first.headers["location"])
        assert (await ann.post("/reports/once?q=2", headers=keyed)).status_code == 422
        assert (await ann.post("/reports/once")).status_code == 402
    with pytest.raises(TypeError):
        looked[0].arguments["q"] = 7  # the submission is read-only


async def test_a_hook_can_change_the_form_of_answers(replica: Replica, face: Face):
    def short(job: JobResource) -> dict:
        return {"job": job.id, "state": job.state, "all": len(dataclasses.fields(job))}

    def wrapped(body: dict) -> dict:
        return {"problem": body}

    service = await replica(responses=Responses(job=short, problem=wrapped))
    async with client_of(service.face(face), timeout=20) as ann:
        answer = await ann.post("/reports", json={"month": 3})
        assert set(answer.json()) == {"job", "state", "all"}
        location = answer.headers["location"]
        final = (await ann.get(location, headers={"Prefer": "wait=20"})).json()
        assert final["state"] == "succeeded"
        assert (await ann.delete(location)).json() == final
        events = (await ann.get(f"{location}/events")).text
        assert '"state":"succeeded"' in events
        assert (await ann.get("/reports/jobs")).json()["jobs"] == [final]
        missing = await ann.get("/reports/jobs/x")
        assert missing.json()["problem"]["status"] == 404
        bad = await ann.post("/reports", json={})
        assert bad.json()["problem"]["status"] == 422
        assert (await ann.get(f"{location}/result")).json()["lines"] == 3


async def post(ann: httpx2.AsyncClient, path: str, user: str = "ann", **headers) -> httpx2.Response:
    return await ann.post(path, headers={"x-user": user, **headers})


async def test_the_jobs_of_one_owner_are_limited(real_replica: Replica, stage: Stage):
    service = await real_replica(limits=Limits(running=2))
    async with client_of(service.face("fastapi"), timeout=20) as ann:
        locations = [(await post(ann, "/reports/slow")).headers["location"] for _ in range(2)]
        refused = await post(ann, "/reports/slow")
        assert refused.status_code == 429
        assert refused.json()["type"] == "urn:tenure:problem:too-many-jobs"
        assert 1 <= int(refused.headers["retry-after"]) <= 30
        assert len(await stored(service.app)) == 2
        assert (await post(ann, "/reports/slow", "ben")).status_code == 202
        stage.go.set()
        for location in locations:
            await ann.get(location, headers={"Prefer": "wait=20"})
        assert (await post(ann, "/reports/slow")).status_code == 202


async def test_the_jobs_of_one_minute_are_limited(real_replica: Replica):
    service = await real_replica(works=False, limits=Limits(per_minute=2))
    async with client_of(service.face("starlette")) as ann:
        began = time.monotonic()
        for _ in range(2):
            assert (await post(ann, "/reports/slow")).status_code == 202
        refused = await post(ann, "/reports/slow")
        assert refused.status_code == 429
        assert refused.json()["type"] == "urn:tenure:problem:too-many-requests"
        # The first of them is then older than a minute.
        assert began + 60 - time.monotonic() < int(refused.headers["retry-after"]) <= 61
        assert (await post(ann, "/reports/slow", "ben")).status_code == 202


async def test_jobs_are_counted_and_not_read(replica: Replica, faults: Faults, face: Face):
    service = await replica(works=False, limits=Limits(running=3, per_minute=3))
    async with client_of(service.face(face)) as ann:
        assert (await post(ann, "/reports/slow")).status_code == 202
    assert faults.calls["count_tagged"] == 1
    assert faults.calls["find"] == faults.calls["get"] == 0


async def test_a_full_queue_refuses_submissions(real_replica: Replica):
    service = await real_replica(works=False, limits=Limits(waiting=2))
    async with client_of(service.face("fastapi")) as ann:
        for user_ in ("ann", "ben"):
            assert (await post(ann, "/reports/slow", user_)).status_code == 202
        refused = await post(ann, "/reports/slow", "eve")
        assert refused.status_code == 503
        assert refused.json()["type"] == "urn:tenure:problem:queue-full"
        assert int(refused.headers["retry-after"]) >= 1
        assert len(await stored(service.app)) == 2


async def test_an_endpoint_may_have_limits_of_its_own(replica: Replica, face: Face):
    service = await replica(works=False, limits=Limits(running=1))

    @service.router.post("/wide", limits=Limits(running=3))
    async def wide() -> None: ...

    async with client_of(service.face(face)) as ann:
        answers = [(await post(ann, "/reports/wide")).status_code for _ in range(4)]
        assert answers == [202, 202, 202, 429]
        assert (await post(ann, "/reports/slow")).status_code == 429


async def test_a_burst_passes_a_limit_by_little(replica: Replica, face: Face):
    service = await replica(works=False, limits=Limits(running=5))
    async with client_of(service.face(face)) as ann:
        for _ in range(5):
            await asyncio.gather(*(post(ann, "/reports/slow") for _ in range(10)))
    assert 5 <= len(await stored(service.app)) <= 15


async def test_a_repeat_of_an_accepted_submission_is_not_limited(replica: Replica, face: Face):
    """It creates no job, and its client has to learn the location of the first one."""
    service = await replica(works=False, limits=Limits(running=1, per_minute=1, waiting=1))
    async with client_of(service.face(face)) as ann:
        first = await post(ann, "/reports/slow", **{"Idempotency-Key": "k"})
        again = await post(ann, "/reports/slow", **{"Idempotency-Key": "k"})
        assert (first.status_code, again.status_code) == (202, 202)
        assert first.headers["location"] == again.headers["location"]
        assert again.headers["idempotency-replayed"] == "true"
        other = await post(ann, "/reports/slow", **{"Idempotency-Key": "another"})
        assert other.status_code in (429, 503)


@pytest.mark.parametrize(
    ("limits", "countable"),
    [
        ({"running": 0}, "200"),
        ({"running": 201}, "200"),
        ({"per_minute": "x"}, "200"),
        ({"waiting": -5}, "10,000"),
        ({"waiting": "lots"}, "10,000"),
        ({"waiting": True}, "10,000"),
        ({"waiting": 10_001}, "10,000"),
    ],
)
def test_limits_that_cannot_be_counted_are_refused(limits: dict, countable: str):
    with pytest.raises(ConfigError, match=f"must be a whole number from 1 to {countable}"):
        Limits(**limits)


async def test_the_largest_limit_of_waiting_jobs_is_reached(replica: Replica, face: Face):
    service = await replica(works=False, limits=Limits(waiting=10_000))

    @service.app.task
    async def filler() -> None: ...

    async with client_of(service.face(face)) as ann:
        await service.app.enqueue_many(filler.request() for _ in range(9_999))
        assert (await post(ann, "/reports/slow")).status_code == 202
        refused = await post(ann, "/reports/slow")
        assert refused.status_code == 503
        assert refused.json()["type"] == "urn:tenure:problem:queue-full"


def make() -> AsyncRouter:
    return AsyncRouter(Tenure("memory://"), prefix="/r", owner=user)


async def handler() -> None: ...


def test_two_routers_of_one_name_are_refused():
    app = Tenure("memory://")
    AsyncRouter(app, prefix="/reports")
    with pytest.raises(ConfigError, match="already has an AsyncRouter named '/reports'"):
        AsyncRouter(app, prefix="/reports")
    AsyncRouter(app, prefix="/reports", name="others")
    AsyncRouter(Tenure("memory://"), prefix="/reports")


@pytest.mark.parametrize(
    "path",
    ["/jobs/{x}", "/jobs/x", "/{a}/{b}", "/{a:path}", "/jobs/x/y/z", "/jobs/x/result",
     "/jobs/{rest:path}", "/{a}/{b}/result", "/{a}/{b:path}", "x", "/x/", "//x", "/{a}x{", "/{}"]
)  # fmt: skip
def test_a_path_that_collides_or_is_invalid_is_refused(path: str):
    async def taking(a: str = "", b: str = "", x: str = "", rest: str = "") -> None: ...

    for method in ("POST", "PUT", "PATCH", "DELETE"):
        with pytest.raises(ConfigError, match=r"would hide|must begin"):
            make().endpoint(method, path)(taking)


@pytest.mark.parametrize("path", ["/{a}/x", "/{a}/result/{b}", "/x/{a}"])
def test_a_path_that_only_looks_like_a_job_is_accepted(path: str):
    async def taking(a: str = "", b: str = "") -> None: ...

    assert make().post(path)(taking) is not None


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: AsyncRouter(FastAPI()), "the Tenure app that stores the jobs, not a FastAPI"),
        (
            lambda: AsyncRouter(Tenure("memory://"), owner="ann"),
            "must be a function that returns the caller's id",
        ),
        (
            lambda: AsyncRouter(Tenure("memory://"), headers=["Cookie"]),
            "'cookie': this header contains a secret",
        ),
        (lambda: make().post(lambda: None), "needs parentheses: @router.post\\(''\\)"),
        (lambda: make().post("", max_wait="10m"), "at most 300 s, not '10m'"),
    ],
)
def test_wrong_arguments_raise_an_error_that_names_them(declare, message: str):
    with pytest.raises(ConfigError, match=message):
        declare()


@pytest.mark.parametrize(
    ("framework", "face", "extra"),
    [("fastapi", "router", "fastapi"), ("starlette", "asgi", "http")],
)
def test_a_framework_that_is_missing_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, framework: str, face: str, extra: str
):
    for name in [name for name in sys.modules if name.partition(".")[0] == framework]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"tenure.http.server.{framework}", raising=False)
    monkeypatch.delitem(sys.modules, "tenure.http.server.asgi", raising=False)
    with pytest.raises(ModuleNotFoundError, match=rf"pip install 'tenure\[{extra}\]'"):
        getattr(AsyncRouter(Tenure("memory://"), prefix="/r", owner=lambda: "ada"), face)


def test_two_handlers_in_one_place_are_refused():
    router = make()

    async def of(a: str) -> None: ...
    async def other(b: str) -> None: ...

    router.post("/x/{a}")(of)
    router.put("/x/{a}", name="by-put")(of)
    with pytest.raises(ConfigError, match="already"):
        router.post("/x/{b}")(other)


def test_an_endpoint_declared_after_the_routes_were_built_is_refused(face: Face):
    router = make()
    _ = router.router if face == "fastapi" else router.asgi
    with pytest.raises(ConfigError, match="too late"):
        router.post("")(handler)


def test_other_wrong_declarations_are_refused():
    app = Tenure("memory://")
    for prefix in ("reports", "/reports/", "/{x}", "//x", "/"):
        with pytest.raises(ConfigError, match="prefix"):
            AsyncRouter(app, prefix=prefix)
    with pytest.raises(ConfigError, match="media_type"):
        make().post("", media_type="text/csv")(handler)
    with pytest.raises(ConfigError, match="idempotency"):
        make().post("", idempotency="perhaps")
    with pytest.raises(ConfigError, match="max_wait"):
        make().post("", max_wait="1h")

    async def twice(first: Ask, second: Ask) -> None: ...
    async def several(*args: int) -> None: ...

    with pytest.raises(ConfigError, match="first and second"):
        make().post("")(twice)
    with pytest.raises(ConfigError, match="by name"):
        make().post("")(several)
    with pytest.raises(ConfigError, match="year"):
        make().post("/x/{year}")(handler)


async def test_a_declared_handler_is_an_ordinary_task(service: Service):
    [build] = [
        endpoint.task for endpoint in service.router.endpoints if endpoint.task.name == "redo"
    ]
    assert await build(year=3) == [3, 0]
    job = await build.enqueue(year=4)
    assert await job.result(20) == [4, 0]
