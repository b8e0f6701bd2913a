"""Situations of jobs and queues."""

from collections.abc import Callable

from tenure import Why
from tenure.core.jobs.hand_backs import UNKNOWN_TASK
from tests.contract.job_calls import id_of, insert, new
from tests.rig.endings import recover
from tests.why.scene import Scene, Situation, Stage

SITUATIONS: list[Situation] = []

ERROR = "smtp did not answer"
START = "Start one: tenure worker MODULE:APP"
MORE = "Start more workers, or let each worker run more jobs: tenure worker --concurrency NUMBER"
DAY = "2027-01-16 08:00:00"


def situation(code: str, text: str, step: str = "") -> Callable[[Stage], Stage]:
    """Add a situation to the table: what is said about it, in full."""

    def add(stage: Stage) -> Stage:
        SITUATIONS.append(Situation(stage, code, text, step))
        return stage

    return add


# Waiting.


@situation("due", "It is due in 3 min.")
async def not_due(scene: Scene) -> Why:
    await scene.join()
    return await (await scene.send.using(delay="3m").enqueue()).why()


@situation("due", "It is due in 3 min, and no worker is alive.", START)
async def not_due_and_no_worker(scene: Scene) -> Why:
    await scene.join(ttl=5)
    scene.clock.shift(6)
    return await (await scene.send.using(delay="3m").enqueue()).why()


@situation("no-worker", "It waits: no worker is alive.", START)
async def no_worker(scene: Scene) -> Why:
    return await (await scene.send.enqueue()).why()


@situation(
    "unserved",
    "It waits: none of the 2 live workers serves its queue 'default'.",
    "Start a worker that serves it: tenure worker --queues default MODULE:APP",
)
async def unserved(scene: Scene) -> Why:
    await scene.join("web-1", ["mail"])
    await scene.join("web-2", ["reports"])
    return await (await scene.send.enqueue()).why()


@situation(
    "paused",
    "It waits: its queue 'default' is paused until it is resumed (mail server moves).",
    "Resume it: tenure queues resume default",
)
async def paused(scene: Scene) -> Why:
    await scene.join()
    await scene.app.pause_queue("default", reason="mail server moves")
    return await (await scene.send.enqueue()).why()


@situation(
    "due",
    "It is due in 3 min, and its queue 'default' is paused for another 10 min.",
    "Resume it: tenure queues resume default",
)
async def paused_for_longer_than_the_delay(scene: Scene) -> Why:
    await scene.join()
    await scene.app.pause_queue("default", until="10m")
    return await (await scene.send.using(delay="3m").enqueue()).why()


@situation("due", "It is due in 3 min.")
async def paused_for_less_than_the_delay(scene: Scene) -> Why:
    await scene.join()
    await scene.app.pause_queue("default", until="2m")
    return await (await scene.send.using(delay="3m").enqueue()).why()


async def take_slots(scene: Scene, name: str, number: int) -> None:
    """Let a worker run as many jobs as it has slots."""
    await scene.join(name, slots=number)
    await scene.app.enqueue_many([scene.send.request() for _ in range(number)])
    assert len(await scene.claim(name)) == number


@situation(
    "busy",
    "It waits: all 8 slots of the 2 workers that serve its queue 'default' are taken.",
    MORE,
)
async def busy(scene: Scene) -> Why:
    await take_slots(scene, "web-1", 3)
    await take_slots(scene, "web-2", 5)
    await scene.join("web-3", ["reports"], slots=50)
    return await (await scene.send.enqueue()).why()


@situation("turn", "It waits: at most 2 jobs are ahead of it in its queue 'default', and 1 runs.")
async def its_turn(scene: Scene) -> Why:
    await scene.join()
    await scene.send.enqueue()
    await scene.claim()
    [job, *_] = await scene.app.enqueue_many([scene.send.request() for _ in range(3)])
    return await job.why()


@situation("turn", "It waits: no job is ahead of it in its queue 'default', and none runs.")
async def runs_of_timers_take_no_slots_of_jobs(scene: Scene) -> Why:
    """A record counts both together."""
    scene.app.timer(every="1h", name="sweep", overlap="allow")(_nothing)
    await scene.join(slots=1, timers=["sweep"])
    await scene.register()
    await scene.tick()
    return await (await scene.send.enqueue()).why()


async def _nothing() -> None: ...


async def fail_times(scene: Scene, times: int, delay: float) -> None:
    for number in range(times):
        scene.clock.shift(delay)
        [record] = await scene.claim()
        await scene.settle(record, "retry", why=f"{ERROR} {number}", delay=delay)


@situation(
    "retry",
    "It waits for retry 4 of 19 in 12 s; "
    f"it has failed 4 times, last with TimeoutError: {ERROR} 3.",
)
async def a_retry(scene: Scene) -> Why:
    await scene.join()
    job = await scene.send.enqueue()
    await fail_times(scene, 4, 12)
    return await job.why()


@situation(
    "retry",
    "It waits for retry 1 in 8 s, and no worker is alive; "
    f"it has failed once, last with TimeoutError: {ERROR} 0.",
    START,
)
async def a_retry_of_a_task_that_is_not_declared_here(scene: Scene) -> Why:
    await scene.join(ttl=15)
    await insert(scene.store, new(1, task="elsewhere"))
    await fail_times(scene, 1, 12)
    scene.clock.shift(4)
    return await _why(scene, 1)


async def _why(scene: Scene, number: int) -> Why:
    return await (await scene.app.job(id_of(number))).why()


@situation(
    "turn",
    "It waits: no job is ahead of it in its queue 'default', and none runs; "
    f"it has failed once, last with TimeoutError: {ERROR} 0.",
)
async def a_retry_that_is_due(scene: Scene) -> Why:
    await scene.join()
    job = await scene.send.enqueue()
    await fail_times(scene, 1, 12)
    scene.clock.shift(13)
    return await job.why()


@situation(
    "task",
    "The last worker did not know its task 'send', and it is offered again in 40 s.",
    "Start a worker that imports the module which declares the task: see Tenure(imports=[...]).",
)
async def no_worker_knows_the_task(scene: Scene) -> Why:
    await scene.join()
    job = await scene.send.enqueue()
    [record] = await scene.claim()
    await scene.settle(record, "handed back", why=UNKNOWN_TASK, delay=40)
    return await job.why()


@situation(
    "handed-back",
    "Its last worker handed it back, and no job is ahead of it in its queue 'default', and none "
    "runs.",
)
async def handed_back(scene: Scene) -> Why:
    await scene.join()
    job = await scene.send.enqueue()
    [record] = await scene.claim()
    scene.clock.shift(2)
    await scene.settle(record, "handed back", why="its worker stops")
    return await job.why()


@situation("handed-back", "Its last worker handed it back, and it is due again in 8 s.")
async def handed_back_unstarted(scene: Scene) -> Why:
    """It leaves no line in the history."""
    await scene.join()
    job = await scene.send.enqueue()
    [record] = await scene.claim()
    await scene.settle(record, "handed back", delay=8, history=None)
    return await job.why()


async def lose(scene: Scene, times: int, delay: float) -> None:
    for number in range(times):
        await scene.join(f"dead-{number}", ttl=5)
        assert len(await scene.claim(f"dead-{number}")) == 1
        scene.clock.shift(6)
        assert await recover(scene.store, delays=[0.0, delay, delay][2 - times :], grace=0)
    await scene.join()


@situation("lost", "It waits for its next attempt in 4 s, because it was lost with its worker.")
async def lost(scene: Scene) -> Why:
    job = await scene.send.enqueue()
    await lose(scene, 1, 4)
    return await job.why()


@situation(
    "isolated",
    "It runs alone in 4 s, because it was lost 2 times and may be what kills its workers.",
)
async def isolated(scene: Scene) -> Why:
    job = await scene.send.enqueue()
    await lose(scene, 2, 4)
    return await job.why()


# Running.


@situation("running", "It has been running on web-1:4711 since 2027-01-15 08:00:00 UTC, for 6 s.")
async def running(scene: Scene) -> Why:
    await scene.join()
    job = await scene.send.enqueue()
    await scene.claim()
    scene.clock.shift(6)
    return await job.why()


@situation(
    "overtime",
    "It has been running on web-1:4711 since 2027-01-15 08:00:00 UTC, for 45 s, which is 15 s "
    "past its timeout.",
    "If it stays, see the log of its worker: its handler may block the process.",
)
async def past_its_timeout(scene: Scene) -> Why:
    await scene.join()
    job = await scene.slow.enqueue()
    await scene.claim()
    scene.clock.shift(45)
    return await job.why()


@situation(
    "cancelling",
    "It was asked to stop (not needed) and is still running, on web-1:4711 since "
    "2027-01-15 08:00:00 UTC, for 6 s.",
    "It ends when its handler ends, or with its worker.",
)
async def cancelling(scene: Scene) -> Why:
    await scene.join()
    job = await scene.send.enqueue()
    await scene.claim()
    await job.cancel("not needed")
    scene.clock.shift(6)
    return await job.why()


async def expire(scene: Scene) -> Why:
    await scene.join("web-2", ttl=5)
    job = await scene.send.enqueue()
    await scene.claim("web-2")
    scene.clock.shift(8)
    return await job.why()


@situation(
    "expired",
    "Its worker web-2:4711 expired 3 s ago, and another worker recovers the job within seconds.",
)
async def its_worker_expired(scene: Scene) -> Why:
    await scene.join()
    return await expire(scene)


@situation(
    "expired",
    "Its worker web-2:4711 expired 3 s ago, and no worker is alive to recover the job.",
    "Start one: tenure worker MODULE:APP, or tenure recover",
)
async def its_worker_expired_and_no_other_is_alive(scene: Scene) -> Why:
    return await expire(scene)


# Finished.


@situation("succeeded", f"It succeeded at 2027-01-15 08:00:00 UTC; it is kept until {DAY} UTC.")
async def succeeded(scene: Scene) -> Why:
    await scene.join()
    job = await scene.send.enqueue()
    [record] = await scene.claim()
    await scene.settle(record, "succeeded")
    return await job.why()


@situation(
    "failed",
    f"It failed for good at 2027-01-15 08:00:00 UTC, after 1 attempt, with TimeoutError: {ERROR}; "
    "it is kept until 2027-01-22 08:00:00 UTC.",
    f"Run it again: tenure jobs requeue {id_of(1)}",
)
async def failed(scene: Scene) -> Why:
    await scene.join()
    week = 7 * 86400.0
    await insert(scene.store, new(1, task="send", retention=week))
    [record] = await scene.claim()
    await scene.settle(record, "failed", why=ERROR, reason="error")
    return await _why(scene, 1)


@situation(
    "failed",
    "It failed for good at 2027-01-15 08:00:06 UTC, after 1 attempt, because it was lost with its "
    "worker too often, or may not run again after a loss; "
    "it is kept until 2027-01-15 08:01:06 UTC.",
    f"Run it again: tenure jobs requeue {id_of(1)}",
)
async def lost_too_often(scene: Scene) -> Why:
    await insert(scene.store, new(1, retention=60.0))
    await scene.join("dead", ttl=5)
    await scene.claim("dead")
    scene.clock.shift(6)
    assert await recover(scene.store, delays=[], grace=0)
    return await _why(scene, 1)


@situation(
    "cancelled",
    "It was cancelled at 2027-01-15 08:00:00 UTC (not needed); "
    "it is kept until 2027-01-15 08:01:00 UTC.",
    f"Run it again: tenure jobs requeue {id_of(1)}",
)
async def cancelled(scene: Scene) -> Why:
    await insert(scene.store, new(1, retention=60.0))
    await (await scene.app.job(id_of(1))).cancel("not needed")
    return await _why(scene, 1)


# Queues.


@situation(
    "paused",
    "It is paused for another 10 min (migration), and 2 jobs wait in it, the oldest due for 0 s, "
    "and none runs.",
    "Resume it: tenure queues resume mail",
)
async def queue_paused(scene: Scene) -> Why:
    await scene.join()
    await scene.app.enqueue_many([scene.slow.request(), scene.slow.request()])
    await scene.app.pause_queue("mail", until="10m", reason="migration")
    return await scene.app.why_queue("mail")


@situation(
    "unserved",
    "The only live worker does not serve it, and 1 job waits in it, the oldest due for 2 min, and "
    "none runs.",
    "Start a worker that serves it: tenure worker --queues mail MODULE:APP",
)
async def queue_unserved(scene: Scene) -> Why:
    await scene.join("web-1", ["default"])
    await scene.slow.enqueue()
    scene.clock.shift(120)
    return await scene.app.why_queue("mail")


@situation(
    "busy",
    "The only slot of the worker that serves it is taken, and 1 job waits in it, the oldest due "
    "for 0 s, and 1 runs.",
    MORE,
)
async def queue_busy(scene: Scene) -> Why:
    await take_slots(scene, "web-1", 1)
    await scene.send.enqueue()
    return await scene.app.why_queue("default")


@situation("late", "1 job waits in it, the oldest due for 2 min, and none runs.", MORE)
async def queue_late(scene: Scene) -> Why:
    await scene.join()
    await scene.send.enqueue()
    scene.clock.shift(120)
    return await scene.app.why_queue("default")


@situation("waiting", "2 jobs wait in it, none is due yet, and none runs.")
async def queue_of_delayed_jobs(scene: Scene) -> Why:
    await scene.app.enqueue_many([scene.send.using(delay=9).request() for _ in range(2)])
    return await scene.app.why_queue("default")


@situation("running", "No job waits in it, and 1 runs.")
async def queue_running(scene: Scene) -> Why:
    await take_slots(scene, "web-1", 1)
    return await scene.app.why_queue("default")


@situation("empty", "It has no unfinished jobs, and 2 workers serve it.")
async def queue_empty(scene: Scene) -> Why:
    await scene.join()
    await scene.join("web-2")
    return await scene.app.why_queue("default")


@situation("empty", "It has no unfinished jobs, and no live worker says that it serves it.")
async def queue_unknown(scene: Scene) -> Why:
    await scene.join()
    return await scene.app.why_queue("mial")
