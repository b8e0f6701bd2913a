"""Job resources, Retry-After and rate limits, in virtual time."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from tenure import Tenure
from tenure.core.durations import micros
from tenure.http import AsyncRouter, Limits
from tenure.http.job_resource import Pace
from tests.http.scene import Scene
from tests.http.wire import client_of


async def test_retry_after_is_learned_from_finished_jobs(scene, clock):
    async with scene.served() as ann:
        first = await ann.post("/r")
        assert first.headers["retry-after"] == "1"
        id_ = await scene.claim()
        await clock.advance(7.5)
        await scene.settle(id_, result=b"7")
        done = await ann.get(first.headers["location"])
        assert "retry-after" not in done.headers
        second = await ann.post("/r")
        assert second.headers["retry-after"] == "8"
        id_ = await scene.claim()
        await clock.advance(3)
        running = await ann.get(second.headers["location"])
        assert running.headers["retry-after"] == "5"
        early = await ann.get(f"{second.headers['location']}/result")
        assert early.headers["retry-after"] == "5"
        stopping = await ann.delete(second.headers["location"])
        assert (stopping.status_code, stopping.headers["retry-after"]) == (202, "5")
        await scene.settle(id_, "cancelled")
        over = await ann.delete(second.headers["location"])
        assert (over.status_code, "retry-after" in over.headers) == (200, False)
        # Another endpoint has its own pace.
        assert (await ann.post("/r/csv")).headers["retry-after"] == "1"


async def test_a_result_has_headers_for_caches_and_browsers(scene):
    async with scene.served() as ann:
        job = (await ann.post("/r/csv")).headers["location"]
        await scene.settle(await scene.claim(), result=b'"a,b"')
        answer = await ann.get(f"{job}/result")
        assert (answer.status_code, answer.text) == (200, "a,b")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "private, no-cache"
        assert answer.headers["vary"] == "Authorization, Cookie"
        assert answer.headers["etag"] == (await ann.get(job)).headers["etag"]


async def test_a_job_of_a_removed_endpoint_is_still_shown(scene, clock):
    """As in a rolling deploy that removes the endpoint."""
    async with scene.served() as ann:
        job = (await ann.post("/r/csv")).headers["location"]
        app = Tenure(scene.store.clone(), grace=0)
        router = AsyncRouter(app, prefix="/r", owner=lambda: "ann")
        async with app, client_of(router.asgi) as client:
            assert (await client.get(job)).headers["retry-after"] == "1"
            await scene.settle(await scene.claim(), result=b'"a,b"')
            shown = await client.get(job)
            assert (shown.status_code, shown.json()["result"]) == (200, None)
            result = await client.get(f"{job}/result")
            assert (result.content, result.headers["content-type"]) == (
                b'"a,b"',
                "application/json",
            )


async def test_a_page_of_a_list_has_50_jobs_by_default(scene):
    async with scene.served() as ann:
        for _ in range(51):
            await ann.post("/r")
        for query, jobs, has_more in (
            ("", 50, True),
            ("?limit=1", 1, True),
            ("?limit=50", 50, True),
            ("?limit=51", 51, False),
            ("?limit=200", 51, False),
        ):
            answer = await ann.get(f"/r/jobs{query}")
            page = answer.json()
            assert (len(page["jobs"]), page["cursor"] is not None) == (jobs, has_more)
            assert answer.headers["content-type"] == "application/json"
        wrong = await ann.get("/r/jobs?limit=0&state=x&cursor=y")
        errors = wrong.json()["errors"]
        assert [error["parameter"] for error in errors] == ["state", "limit", "cursor"]
        assert all(error["detail"] for error in errors)


async def test_retry_after_of_a_rate_limit_is_when_a_request_fits_again(clock, faults):
    scene = Scene(clock, faults, limits=Limits(per_minute=2))
    async with scene.served() as ann:
        assert (await ann.post("/r")).status_code == 202
        await clock.advance(10.5)
        assert (await ann.post("/r")).status_code == 202
        for passed, retry_after in ((0, "50"), (9.5, "41"), (39.5, "1")):
            await clock.advance(passed)
            refused = await ann.post("/r")
            assert (refused.status_code, refused.headers["retry-after"]) == (429, retry_after)
        await clock.advance(1)
        assert (await ann.post("/r")).status_code == 202


async def test_waiting_jobs_are_counted_by_queue(clock, faults):
    scene = Scene(clock, faults, limits=Limits(waiting=1))

    @scene.router.post("/other", queue="other", name="other")
    async def other() -> None: ...

    async with scene.served() as ann:
        answers = [await ann.post(path) for path in ("/r", "/r/other", "/r", "/r/other")]
        assert [answer.status_code for answer in answers] == [202, 202, 503, 503]
    assert faults.calls["count_tagged"] == 0


async def test_a_key_and_its_job_are_kept_for_a_day(scene, clock):
    @scene.router.post("/brief", retention=60, name="brief")
    async def brief() -> None: ...

    headers = {"Idempotency-Key": "k"}
    async with scene.served() as ann:
        first = await ann.post("/r/brief", headers=headers)
        await scene.settle(await scene.claim(), result=b"null")
        for seconds, forgotten, is_replayed in (
            (59, 0, True),
            (2, 0, True),
            (86_338, 0, True),
            (2, 1, False),
        ):
            await clock.advance(seconds)
            assert await scene.app.prune_jobs() == forgotten
            again = await ann.post("/r/brief", headers=headers)
            assert again.status_code == 202
            assert ("idempotency-replayed" in again.headers) == is_replayed
            assert (again.headers["location"] == first.headers["location"]) == is_replayed


async def test_without_a_key_a_job_is_kept_for_the_retention_of_its_endpoint(scene, clock):
    @scene.router.post("/brief", retention=60, name="brief")
    async def brief() -> None: ...

    async with scene.served() as ann:
        await ann.post("/r/brief")
        await scene.settle(await scene.claim(), result=b"null")
        await clock.advance(61)
        assert await scene.app.prune_jobs() == 1


def at(seconds: float) -> str:
    """Return an instant of the clock in the form of a job resource."""
    moment = datetime.fromtimestamp(1_800_000_000 + seconds, UTC)
    return moment.isoformat().replace("+00:00", "Z")


async def test_a_job_resource_shows_every_field_in_every_state(scene, clock):
    async with scene.served() as ann:
        submitted = await ann.post("/r")
        job = submitted.headers["location"]
        id_ = job.rpartition("/")[2]
        shown = {
            "id": id_, "state": "waiting", "created": at(0), "started": None, "finished": None,
            "expires": None, "attempt": 0, "progress": None, "cancelling": False, "error": None,
            "links": {"job": job, "result": f"{job}/result", "events": f"{job}/events"},
            "result": None,
        }  # fmt: skip
        assert submitted.json() == shown
        await clock.advance(1)
        await scene.claim()
        shown |= {"state": "running", "started": at(1), "attempt": 1}
        assert (await ann.get(job)).json() == shown
        await scene.note(id_, 0.5)
        shown |= {"progress": {"part": 0.5, "message": ""}}
        assert (await ann.get(job)).json() == shown
        shown |= {"cancelling": True}
        assert (await ann.delete(job)).json() == shown
        await clock.advance(1)
        await scene.settle(id_, result=b'{"a":1}')
        kept = micros((await scene.app.job(id_)).record.retention) / 1e6
        shown |= {"state": "succeeded", "finished": at(2), "expires": at(2 + kept)}
        assert (await ann.get("/r/jobs")).json() == {
            "jobs": [shown | {"cancelling": False}],
            "cursor": None,
        }
        assert (await ann.get(job)).json() == shown | {"cancelling": False, "result": {"a": 1}}


@pytest.mark.parametrize(("size", "is_shown"), [(65_536, True), (65_537, False)])
async def test_a_large_result_has_a_url_of_its_own(scene, size, is_shown):
    result = b'"%s"' % (b"x" * (size - 2))
    async with scene.served() as ann:
        job = (await ann.post("/r")).headers["location"]
        await scene.settle(await scene.claim(), result=result)
        assert ((await ann.get(job)).json()["result"] is not None) is is_shown
        assert (await ann.get(f"{job}/result")).content == result


@pytest.mark.parametrize(
    "result", [b"!", b"!{", b'!{"sent":7,"problem":[]}', b"!" + b"[" * 100_000]
)
async def test_a_damaged_result_is_not_available(scene, result):
    async with scene.served() as ann:
        job = (await ann.post("/r")).headers["location"]
        await scene.settle(await scene.claim(), result=result)
        shown = (await ann.get(job)).json()
        assert shown["error"]["type"] == "urn:tenure:problem:result-unavailable"
        assert (await ann.get(f"{job}/result")).status_code == 500


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("timeout", "job-timed-out"),
        ("lost", "job-lost"),
        ("error", "job-failed"),
        ("", "job-failed"),
    ],
)
async def test_the_problem_of_a_failed_job_follows_from_its_reason(scene, reason, kind):
    async with scene.served() as ann:
        job = (await ann.post("/r")).headers["location"]
        await scene.settle(await scene.claim(), "failed", reason=reason)
        error = (await ann.get(job)).json()["error"]
        assert error["type"] == f"urn:tenure:problem:{kind}"
        assert (await ann.get(f"{job}/result")).json() == error


async def test_retry_after_follows_the_last_50_jobs():
    pace = Pace()

    def see(count: int, seconds: float, state: str = "succeeded") -> int:
        for _ in range(count):
            taken = micros(seconds)
            pace.see(SimpleNamespace(id=object(), state=state, started=0, finished=taken))
        return pace.usual

    assert see(60, 20) == 20
    assert see(50, 2, "failed") == 20
    assert see(24, 2) == 20
    assert see(2, 2) == 2
    assert see(60, 30.5) == 30
