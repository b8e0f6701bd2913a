"""How many calls of the store an explanation needs: a handful, also for a page of jobs."""

from tenure.app import engine_of
from tenure.app.why import explain_jobs, explain_queues, explain_timers, surroundings
from tests.why.scene import Scene


async def test_a_job_needs_four_calls_and_a_finished_one_two(scene: Scene, calls: list[str]):
    job = await scene.send.enqueue()
    calls.clear()
    assert (await job.why()).code == "no-worker"
    assert calls == ["get", "counts", "replicas", "ping"]
    await scene.join()
    await scene.claim()
    calls.clear()
    assert (await job.why()).code == "running"
    assert calls == ["get", "replicas", "ping"]
    await job.cancel()
    await scene.settle((await job.refresh()).record, "succeeded")
    calls.clear()
    assert (await job.why()).code == "succeeded"
    assert calls == ["get", "ping"]


async def test_fifty_jobs_need_as_many_calls_as_one(scene: Scene, calls: list[str]):
    jobs = await scene.app.enqueue_many([scene.send.request() for _ in range(50)])
    calls.clear()
    whys = await explain_jobs(engine_of(scene.app), [job.record for job in jobs])
    assert calls == ["counts", "replicas", "ping"]
    assert {why.code for why in whys.values()} == {"no-worker"}
    assert [*whys] == [job.id for job in jobs]


async def test_timers_and_queues_of_a_page_share_what_was_read(scene: Scene, calls: list[str]):
    engine = engine_of(scene.app)
    for name in ("sweep", "sync"):
        scene.app.timer(every="1h", name=name)(_nothing)
        await scene.join(timers=["sweep", "sync"])
        await scene.register(name, plan=name)
    await scene.tick("sync")
    calls.clear()
    around = await surroundings(engine)
    timers = await explain_timers(engine, around=around)
    queues = await explain_queues(engine, ["default", "mail"], around)
    assert calls == ["counts", "replicas", "ping", "read", "read", "get"]
    codes = {name: why.code for name, why in (timers | queues).items()}
    assert codes == {"sweep": "scheduled", "sync": "running", "default": "empty", "mail": "empty"}
    assert await explain_timers(engine, ["sync", "unknown"]) == {"sync": timers["sync"]}


async def _nothing() -> None: ...


async def test_a_timer_and_a_lock_need_few_calls(scene: Scene, calls: list[str]):
    scene.app.timer(every="1h", name="sweep")(_nothing)
    await scene.join(timers=["sweep"])
    await scene.register()
    await scene.tick()
    calls.clear()
    await scene.app.timer_handle("sweep").why()
    await scene.app.why_lock("gpu")
    assert calls == ["read", "replicas", "ping", "get", "find"]
