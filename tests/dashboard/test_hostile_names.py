"""Hostile text in every field that a page shows: it arrives as data, and finds its way back."""

import json
from typing import Any
from urllib.parse import unquote, urljoin

import pytest

from tenure import Tenure
from tenure.core.jobs.records import NewJob
from tenure.dashboard.request import name_in, path_word
from tests.dashboard.desk import desk_on
from tests.rig.wait import wait_until_async

HOSTILE = (
    *(".", "..", "~.", "~~..", "...", "~"),
    "</script><script>alert(1)</script>",
    "'\"><img src=x onerror=alert(1)>",
    "a/b/../pause",
    "%2e%2e/%00?x=1#y",
    "javascript:alert(1)",
    "{{constructor.constructor('x')()}}",
    "line\u2028break\r\nheader: x\u202e",
    "\U0001f600 \u05d0\u0301" + "\u0336" * 50,
    "queue",
    " ",
)


@pytest.mark.parametrize("name", HOSTILE)
async def test_names_survive_as_data(still: Tenure, name: str) -> None:
    store = still._engine.services().store
    id_ = still._jobs._jobs_to_enqueue().new_id()
    await store.jobs.insert(
        [
            NewJob(
                id=id_, task=name, queue=name, tags=(name,), payload=json.dumps({name: 1}).encode()
            )
        ]
    )
    await still.pause_queue(name, reason=name)
    meta = {"host": name, "pid": name, "version": name, "memory": name}
    await store.jobs.beat(["r1"], ttl=10, meta=meta)
    async with desk_on(still) as desk, still.lock(name, meta={name: name}):
        raw = await desk.client.get("api/overview")
        assert raw.headers["content-type"] == "application/json"
        [queue] = [queue for queue in raw.json()["queues"] if queue["name"] == name]
        assert queue["pause_reason"] == name
        [job] = (await desk.get("api/jobs", queue=name, task=name, tag=name))["jobs"]
        assert (job["task"], job["queue"], job["tags"]) == (name, name, [name])
        job = await desk.get(f"api/jobs/{id_}")
        assert job["arguments"]["names"] == [name]
        [lock] = (await desk.get("api/locks", prefix=name))["locks"]
        assert (lock["name"], lock["holders"][0]["meta"][name]) == (name, name)
        [replica] = (await desk.get("api/replicas"))["replicas"]
        assert (replica["host"], replica["version"], replica["memory"]) == (name, name, None)
        await desk.post(f"api/jobs/{id_}/cancel", reason=name)
        assert (await desk.get(f"api/jobs/{id_}"))["reason"] == name
        await desk.post(f"api/queues/{path_word(name)}/resume")
        assert not any(queue.paused_for for queue in await still.queues())


@pytest.mark.parametrize("name", [*HOSTILE, "/", "a/", "/~.", "./.", "~a", ".~"])
def test_a_name_is_one_word_of_a_path(name: str) -> None:
    path = f"/api/timers/{path_word(name)}/pause"
    # As a browser does, for which an encoded dot is a dot.
    assert urljoin("http://ops.test/", path.replace("%2E", ".")).endswith(path)
    *_, word, _ = path.split("/")
    assert name_in(unquote(word).split("/")) == name


async def test_a_timer_whose_name_is_a_dot_does_not_stand_for_all(still: Tenure) -> None:
    @still.timer(cron="0 3 1 1 *", name=".")
    async def report() -> None: ...

    async with desk_on(still) as desk, still.worker():
        await wait_until_async(still.timers)
        await desk.post(f"api/timers/{path_word('.')}/pause", seconds=None, reason="")
        listed = await desk.get("api/timers")
        assert listed["paused"] is None
        [timer] = listed["timers"]
        assert (timer["name"], timer["pause"] is None) == (".", False)
        assert (await desk.get(f"api/timers/{path_word('.')}"))["name"] == "."


@pytest.mark.parametrize("header", ["javascript:alert(1)", "data:text/html,x", "//evil.test", ""])
async def test_a_link_to_a_trace_is_no_script(still: Tenure, header: str) -> None:
    @still.task
    async def work() -> None: ...

    job = await work.using(headers={"link": header}).enqueue()
    async with desk_on(still, trace_url=lambda headers: headers["link"]) as desk:
        assert (await desk.get(f"api/jobs/{job.id}"))["trace_link"] is None


@pytest.mark.parametrize("link", [5, b"https://t/", None, ["https://t/"]])
async def test_a_link_to_a_trace_is_text(still: Tenure, link: Any) -> None:
    @still.task
    async def work() -> None: ...

    job = await work.enqueue()
    async with desk_on(still, trace_url=lambda _headers: link) as desk:
        assert (await desk.get(f"api/jobs/{job.id}"))["trace_link"] is None


@pytest.mark.parametrize(("memory", "shown"), [("123", 123), ("9" * 5000, None), ("-1", None)])
async def test_a_damaged_size_of_a_replica_breaks_no_page(
    still: Tenure, memory: str, shown: int | None
) -> None:
    await still._engine.services().store.jobs.beat(["r1"], ttl=10, meta={"memory": memory})
    async with desk_on(still) as desk:
        [replica] = (await desk.get("api/replicas"))["replicas"]
        assert replica["memory"] == shown


async def test_a_trace_is_linked(still: Tenure) -> None:
    @still.task
    async def work() -> None: ...

    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    traced = await work.using(headers={"traceparent": trace}).enqueue()
    forged = await work.using(headers={"traceparent": "00-../../x?y-#z-01"}).enqueue()
    untraced = await work.enqueue()
    async with desk_on(still, trace_url="https://t/{trace_id}/{span_id}") as desk:
        links = [
            (await desk.get(f"api/jobs/{job.id}"))["trace_link"]
            for job in (traced, forged, untraced)
        ]
    assert links == [
        "https://t/4bf92f3577b34da6a3ce929d0e0e4736/00f067aa0ba902b7",
        "https://t/..%2F..%2Fx%3Fy/%23z",
        None,
    ]
