"""Long polls and streams in virtual time: answered at the right instant."""

import httpx2
import pytest

from tenure.testing import ManualClock
from tests.http.scene import Scene, begun, prefer
from tests.http.test_streams import Event, read

FRACTION = 0.001


def events_of(answer: httpx2.Response) -> list[Event]:
    blocks = [read(block) for block in answer.text.split("\n\n") if block]
    return [event for event in blocks if event is not None]


ASKS = {
    "submission": lambda ann, _, headers: ann.post("/r", headers=headers),
    "get": lambda ann, job, headers: ann.get(job, headers=headers),
    "result": lambda ann, job, headers: ann.get(f"{job}/result", headers=headers),
}


@pytest.mark.parametrize("what", ASKS)
@pytest.mark.parametrize(("wait", "allowed", "waits"), [(1, 20, 1), (7, 20, 7), (30, 2.5, 2.5)])
async def test_a_wait_lasts_as_long_as_requested_and_allowed(
    clock, faults, what, wait, allowed, waits
):
    scene = Scene(clock, faults, max_wait=allowed)
    async with scene.served() as ann:
        job = (await ann.post("/r")).headers["location"]
        task = await begun(clock, ASKS[what](ann, job, prefer(wait)))
        await clock.advance(waits - FRACTION)
        assert not task.done()
        await clock.advance(FRACTION)
        answer = await task
        assert answer.status_code == {"submission": 202, "get": 200, "result": 409}[what]
        if what == "get":
            assert answer.headers["preference-applied"] == f"wait={waits:g}"


@pytest.mark.parametrize("what", ASKS)
async def test_without_a_wait_the_answer_comes_at_once(scene, clock, what):
    async with scene.served() as ann:
        job = (await ann.post("/r")).headers["location"]
        for headers in ({}, prefer(0)):
            task = await begun(clock, ASKS[what](ann, job, headers))
            assert task.done()
            assert "preference-applied" not in task.result().headers


@pytest.mark.parametrize("what", ASKS)
async def test_the_end_of_a_job_ends_the_wait(scene, clock, what):
    async with scene.served() as ann:
        job = "" if what == "submission" else (await ann.post("/r")).headers["location"]
        task = await begun(clock, ASKS[what](ann, job, prefer(100)))
        await clock.advance(0.5)
        id_ = await scene.claim()
        await clock.advance(0.5)
        assert not task.done()
        await scene.settle(id_, result=b"7")
        await clock.advance(0)
        assert task.done()
        assert task.result().status_code == 200
        assert b"7" in task.result().content


async def test_a_wait_polls_every_two_seconds_without_wake_ups(scene, clock, monkeypatch):
    async with scene.served() as ann:
        scene.make_deaf(monkeypatch)
        job = (await ann.post("/r")).headers["location"]
        task = await begun(clock, ann.get(job, headers=prefer(100)))
        await clock.advance(2.5)
        await scene.settle(await scene.claim(), result=b"7")
        await clock.advance(1.5 - FRACTION)
        assert not task.done()
        await clock.advance(FRACTION)
        assert task.result().json()["result"] == 7


async def test_a_request_with_the_current_revision_waits_for_the_next(scene, clock):
    async with scene.served() as ann:
        job = (await ann.post("/r")).headers["location"]
        tag = (await ann.get(job)).headers["etag"]
        headers = {"If-None-Match": f'"0", W/{tag}'}
        task = await begun(clock, ann.get(job, headers=prefer(100, **headers)))
        await clock.advance(50)
        assert not task.done()
        await scene.claim()
        await clock.advance(0)
        assert task.result().json()["state"] == "running"
        # The revision of the client is now outdated.
        task = await begun(clock, ann.get(job, headers=prefer(100, **headers)))
        assert task.result().status_code == 200


async def forgotten(scene: Scene, clock: ManualClock, id_: str) -> None:
    """End a job, and let it be removed before any wait polls again."""
    await scene.store.jobs.cancel([id_])
    clock.shift(30 * 86_400)
    assert await scene.app.prune_jobs() == 1
    clock.shift(-30 * 86_400)


@pytest.mark.parametrize(("what", "status"), [("submission", 202), ("get", 404)])
async def test_a_job_that_is_removed_during_a_wait_ends_the_wait(
    scene, clock, monkeypatch, what, status
):
    async with scene.served() as ann:
        scene.make_deaf(monkeypatch)
        job = "" if what == "submission" else (await ann.post("/r")).headers["location"]
        task = await begun(clock, ASKS[what](ann, job, prefer(100)))
        [forgotten_job] = await scene.app.jobs()
        await forgotten(scene, clock, forgotten_job.id)
        await clock.advance(2)
        assert task.result().status_code == status


async def test_the_stream_of_a_removed_job_ends(scene, clock, monkeypatch):
    async with scene.served() as ann:
        scene.make_deaf(monkeypatch)
        job = (await ann.post("/r")).headers["location"]
        task = await begun(clock, ann.get(f"{job}/events"))
        await forgotten(scene, clock, job.rpartition("/")[2])
        await clock.advance(2)
        assert [event.data["state"] for event in events_of(task.result())] == ["waiting"]


async def test_a_job_that_is_removed_during_its_cancellation_is_answered(scene, monkeypatch):
    async def gone(ids: list[str], **_: object) -> list[None]:
        return [None] * len(ids)

    async with scene.served() as ann:
        job = (await ann.post("/r")).headers["location"]
        monkeypatch.setattr(scene.store.jobs, "cancel", gone)
        assert (await ann.delete(job)).status_code == 404


async def test_events_are_of_kind_state_progress_or_result(scene, clock):
    async with scene.served() as ann:
        job = (await ann.post("/r")).headers["location"]
        task = await begun(clock, ann.get(f"{job}/events"))
        await clock.advance(1)
        id_ = await scene.claim()
        for progress in (0.25, 0.5):
            await clock.advance(1)
            await scene.note(id_, progress)
        await clock.advance(1)
        await ann.delete(job)
        await clock.advance(1)
        await scene.note(id_, 0.75)
        await clock.advance(1)
        await scene.settle(id_, result=b"7")
        await clock.advance(1)
        answer = await task
        seen = [(event.kind, event.data["state"]) for event in events_of(answer)]
        assert seen == [
            ("state", "waiting"),
            ("state", "running"),
            ("progress", "running"),
            ("progress", "running"),
            ("state", "running"),
            ("state", "running"),
            ("result", "succeeded"),
        ]
        assert answer.headers["x-accel-buffering"] == "no"
        assert answer.headers["content-type"].startswith("text/event-stream")


async def test_quick_changes_become_one_event_each_fifth_of_a_second(scene, clock):
    async with scene.served() as ann:
        job = (await ann.post("/r")).headers["location"]
        id_ = await scene.claim()
        task = await begun(clock, ann.get(f"{job}/events"))
        for number in range(1, 10):
            await clock.advance(0.06)
            await scene.note(id_, number / 10)
        await clock.advance(1)
        await scene.settle(id_, result=b"7")
        await clock.advance(0)
        parts = [(event.data["progress"] or {}).get("part") for event in events_of(await task)]
        # At 0, 0.2, 0.4 and 0.6 s, each with what had changed by then.
        assert parts == [None, 0.3, 0.6, 0.9, 0.9]


async def test_a_silent_stream_pings_every_15_seconds(scene, clock):
    async with scene.served() as ann:
        job = (await ann.post("/r")).headers["location"]
        task = await begun(clock, ann.get(f"{job}/events"))
        await clock.advance(50)  # polls every two seconds: pings at 16, 32 and 48
        await ann.delete(job)
        await clock.advance(1)
        assert (await task).text.count(": still here\n\n") == 3


async def test_a_stream_polls_every_two_seconds_without_wake_ups(scene, clock, monkeypatch):
    async with scene.served() as ann:
        scene.make_deaf(monkeypatch)
        job = (await ann.post("/r")).headers["location"]
        task = await begun(clock, ann.get(f"{job}/events"))
        await scene.settle(await scene.claim(), result=b"7")
        await clock.advance(2 - FRACTION)
        assert not task.done()
        await clock.advance(FRACTION)
        assert [event.kind for event in events_of(task.result())] == ["state", "result"]


@pytest.mark.parametrize(
    ("last", "status"),
    [("1" * 19, 204), ("1" * 20, 200), ("0" * 19 + "9", 200), ("\u0663", 200), ("0", 200)],
)
async def test_the_last_event_id_of_a_client_is_parsed(scene, last, status):
    async with scene.served() as ann:
        job = (await ann.post("/r")).headers["location"]
        await ann.delete(job)
        headers = [("Last-Event-ID", last.encode())]
        answer = await ann.get(f"{job}/events", headers=headers)
        assert answer.status_code == status
        assert len(events_of(answer)) == (status == 200)
        assert answer.headers["cache-control"] == "private, no-cache"
