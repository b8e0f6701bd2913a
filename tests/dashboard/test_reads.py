"""What each route of the dashboard says, on every store."""

from typing import Any

import pytest

from tenure import Tenure, __version__
from tenure.app import engine_of
from tenure.core.ids import JobIds
from tenure.core.jobs.records import NewJob
from tenure.core.jobs.replicas import Stats
from tenure.core.jobs.run_stats import encode_stats
from tests.dashboard.desk import Desk, desk_on
from tests.rig.wait import wait_until_async


class Shop:
    """An app with something of everything."""

    def __init__(self, app: Tenure) -> None:
        self.app = app

        @app.task(queue="mail", retry=0)
        async def send(to: str, body: str = "") -> str:
            if to == "nobody":
                raise ValueError("no such address")
            return f"sent to {to}"

        @app.timer(cron="0 3 1 1 *", name="yearly/report", tz="Europe/Berlin")
        async def report() -> None: ...

        self.send = send


@pytest.fixture
def shop(app: Tenure) -> Shop:
    return Shop(app)


async def test_jobs_are_listed_and_shown(app: Tenure, shop: Shop) -> None:
    waiting = await shop.send.using(delay=60, tags=("vip",)).enqueue("later")
    done = await shop.send.enqueue("ada", body="secret")
    failed = await shop.send.enqueue("nobody")
    async with desk_on(app) as desk, app.worker():
        await done.wait(20)
        await failed.wait(20)
        listed = await desk.get("api/jobs")
        states = {job["id"]: job["state"] for job in listed["jobs"]}
        assert states == {waiting.id: "waiting", done.id: "succeeded", failed.id: "failed"}
        assert [job["id"] for job in listed["jobs"]] == sorted(states, reverse=True)
        assert listed["cursor"] is None
        [job] = (await desk.get("api/jobs", tag="vip"))["jobs"]
        assert (job["id"], job["tags"]) == (waiting.id, ["vip"])
        assert "due in " in job["why"]
        await _check_finished(desk, done.id, failed.id)


async def _check_finished(desk: Desk, done: str, failed: str) -> None:
    job = await desk.get(f"api/jobs/{done}")
    assert job["arguments"] == {"names": ["to", "body"]}
    assert job["sizes"]["arguments"] > 10
    assert job["sizes"]["result"] == len('"sent to ada"')
    assert "secret" not in str(job)
    [attempt] = job["attempts"]
    assert attempt["outcome"] == "succeeded"
    assert attempt["wait"] >= 0 <= attempt["run"]
    assert attempt["where"].partition(":")[2].isdigit()
    assert job["may"] == ["contents", "requeue", "delete"]
    job = await desk.get(f"api/jobs/{failed}")
    assert job["error"] == "ValueError: no such address"
    assert "no such address" in job["trace"]
    assert job["attempts"][0]["error"] == job["error"]
    overview = await desk.get("api/overview")
    [line] = overview["failures"]
    assert (line["task"], line["count"], line["job"]) == ("send", 1, failed) or line["count"] == 1
    assert overview["replicas"]["alive"] == 1
    [queue] = [queue for queue in overview["queues"] if queue["name"] == "mail"]
    assert (queue["waiting"], queue["workers"], queue["is_paused"]) == (1, 1, False)
    [replica] = (await desk.get("api/replicas"))["replicas"]
    assert replica["state"] == "alive"
    assert replica["queues"] == ["mail"]
    assert replica["timers"] == ["yearly/report"]
    assert 0 <= replica["beat_ago"] < 10


async def test_timers_are_listed_and_shown(app: Tenure, shop: Shop) -> None:
    async with desk_on(app) as desk, app.worker():
        await wait_until_async(app.replicas)
        await wait_until_async(app.timers)
        run = await app.timer_handle("yearly/report").trigger()
        await run.wait(20)
        [timer] = (await desk.get("api/timers"))["timers"]
        assert timer["name"] == "yearly/report"
        assert (timer["kind"], timer["tz"]) == ("timer", "Europe/Berlin")
        assert len(timer["next"]) == 5
        assert timer["next"][0].endswith("-01-01T02:00:00Z")
        assert timer["is_declared"]
        assert timer["why"]["code"] == "scheduled"
        [mark] = timer["history"]
        assert mark["outcome"] == "succeeded"
        [tick] = (await desk.get("api/timers/yearly%2Freport"))["history"]
        assert (tick["job"], tick["error"]) == (run.id, None)
        assert mark.items() <= tick.items()
        overview = await desk.get("api/overview")
        assert [tick["timer"] for tick in overview["ticks"]] == ["yearly/report"]
        assert [job["id"] for job in (await desk.get("api/jobs"))["jobs"]] == []
        listed = await desk.get("api/jobs", timers="1")
        assert [(job["id"], job["timer"]) for job in listed["jobs"]] == [(run.id, "yearly/report")]
        await desk.get("api/timers/other", 404)


async def test_locks_are_listed(app: Tenure) -> None:
    invoice, gpu = app.lock("invoice:42", meta={"by": "me"}), app.semaphore("gpu", 2)
    async with desk_on(app, None) as desk, invoice as hold, gpu:
        locks = {lock["name"]: lock for lock in (await desk.get("api/locks"))["locks"]}
        assert [*locks] == ["gpu", "invoice:42"]
        assert locks["gpu"]["limit"] == 2
        [holder] = locks["invoice:42"]["holders"]
        assert (holder["fence"], holder["meta"]["by"]) == (hold.fence, "me")
        assert 0 < holder["expires_in"] <= holder["ttl"]
        [lock] = (await desk.get("api/locks", prefix="inv"))["locks"]
        assert lock["name"] == "invoice:42"


async def test_an_empty_store_has_empty_pages(app: Tenure) -> None:
    async with desk_on(app, None) as desk:
        overview: dict[str, Any] = await desk.get("api/overview")
        assert overview["attention"] == []
        assert overview["queues"] == []
        assert sum(overview["rates"]["started"]) == 0
        assert overview["tasks"] == []
        for page in ("jobs", "timers", "locks", "replicas", "events"):
            document = await desk.get(f"api/{page}")
            assert document[page] == []
        session = await desk.get("api/session")
        assert session["may"] == {"act": False, "reveal": False, "owners": False}
        assert session["viewer"] is None
        assert session["store"]["grade"] in {"A", "B", "C", "D"}


async def test_the_first_page_says_what_needs_attention(app: Tenure, shop: Shop) -> None:
    await shop.send.enqueue("ada")
    async with desk_on(app) as desk:
        lines = (await desk.get("api/overview"))["attention"]
        texts = [line["text"] for line in lines]
        assert any(text.startswith("Queue mail: no worker is alive") for text in texts)
        assert "No worker is alive: 1 unfinished job." in texts
        assert {line["level"] for line in lines} == {"error"}
        assert "tenure worker" in lines[0]["next"]
        await desk.post("api/queues/mail/pause", seconds=None, reason="it moves")
        lines = (await desk.get("api/overview"))["attention"]
        [line] = [line for line in lines if line["level"] == "note"]
        assert line["text"].startswith("Queue mail: it is paused until it is resumed (it moves)")


async def test_parents_and_children_are_linked(app: Tenure) -> None:
    @app.task
    async def work() -> None: ...

    parent = await work.enqueue()
    store = app._engine.services().store
    ids = JobIds(store.clock)
    tags = ("x", f"@parent:{parent.id}")
    children = [NewJob(id=ids.make(), task="child", tags=tags) for _ in range(2)]
    await store.jobs.insert(children)
    async with desk_on(app) as desk:
        shown = await desk.get(f"api/jobs/{parent.id}")
        assert [job["id"] for job in shown["children"]] == [children[1].id, children[0].id]
        assert shown["parent"] is None
        child = await desk.get(f"api/jobs/{children[0].id}")
        assert (child["parent"]["id"], child["parent"]["task"]) == (parent.id, "work")
        assert child["tags"] == ["x"]


async def test_what_workers_have_counted_is_charted(app: Tenure, shop: Shop) -> None:
    await shop.send.enqueue("ada")
    await shop.send.enqueue("nobody")
    async with app.worker(burst=True) as worker:
        await worker.ended()
    async with desk_on(app) as desk:
        overview = await desk.get("api/overview")
        assert sum(overview["rates"]["started"]) == 2
        assert sum(overview["rates"]["failed"]) == 1
        [task] = overview["tasks"]
        assert (task["task"], task["queue"], task["succeeded"]) == ("send", "mail", 1)
        assert task["seconds_mean"] >= 0


async def test_replicas_have_a_version_and_memory(still: Tenure) -> None:
    @still.task
    async def work() -> None: ...

    store = engine_of(still).store

    async def has_joined() -> bool:
        return bool(await still.replicas())

    async with still.worker(), desk_on(still) as desk:
        await wait_until_async(has_joined)
        [replica] = (await desk.get("api/replicas"))["replicas"]
        assert replica["version"] == __version__
        assert replica["memory"] > 1_000_000  # with which it has joined
    body = encode_stats({}, replica="web-1", memory=77_000_000)
    await store.jobs.beat(["web-1"], ttl=10, meta={"memory": "5"}, stats=Stats("web-1", body))
    async with desk_on(still) as desk:
        [replica] = (await desk.get("api/replicas"))["replicas"]
        assert (replica["version"], replica["memory"]) == ("", 77_000_000)
