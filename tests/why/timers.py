"""Situations of timers and schedules."""

from collections.abc import Callable
from datetime import timedelta

from tenure import Why, blackout
from tenure.core.durations import micros
from tenure.core.jobs.view import as_datetime
from tenure.core.schedules.documents import DECLARED_FOR
from tests.contract.schedule_calls import bound
from tests.why.scene import Scene, Situation, Stage

SITUATIONS: list[Situation] = []

START = "Start one: tenure worker MODULE:APP"
AT_NINE = "its next tick is at 2027-01-15 09:00:00 UTC, in 1 h"
RUNS = "has been running on web-1:4711 since 2027-01-15 08:00:00 UTC"


def situation(code: str, text: str, step: str = "") -> Callable[[Stage], Stage]:
    """Add a situation to the table: what is said about it, in full."""

    def add(stage: Stage) -> Stage:
        SITUATIONS.append(Situation(stage, code, text, step))
        return stage

    return add


async def declare(scene: Scene, **options: object) -> None:
    """Declare a timer, and let a worker run it."""
    fields = {"every": "1h", "name": "sweep", **options}

    @scene.app.timer(**fields)
    async def sweep() -> None: ...

    await scene.join(timers=["sweep"])
    await scene.register()


async def why(scene: Scene, name: str = "sweep") -> Why:
    """Return the answer; ids of runs are replaced, as they are new in each test."""
    answer = await scene.app.timer_handle(name).why()
    if not answer.next.startswith("See its run"):
        return answer
    return Why(answer.text, answer.next.rpartition(" ")[0], answer.code)


SEE_RUN = "See its run: tenure jobs show"


@situation("scheduled", f"I{AT_NINE[1:]}.")
async def scheduled(scene: Scene) -> Why:
    await declare(scene)
    return await why(scene)


@situation("running", f"A run {RUNS}, and {AT_NINE}.")
async def running(scene: Scene) -> Why:
    await declare(scene)
    await scene.tick()
    return await why(scene)


@situation(
    "no-worker",
    "No worker is alive, so it does not tick, and its next tick would be at 2027-01-15 09:00:00 "
    "UTC, in 59 min 50 s.",
    START,
)
async def no_worker(scene: Scene) -> Why:
    await declare(scene)
    await scene.join(ttl=5)
    scene.clock.shift(10)
    return await why(scene)


@situation(
    "undeclared",
    "No worker runs it: no process has declared it for 1 min, and its next tick would be at "
    "2027-01-15 09:00:00 UTC, in 59 min.",
    "Start a worker whose app declares it.",
)
async def undeclared(scene: Scene) -> Why:
    await declare(scene)
    await scene.join("web-2")
    scene.clock.shift(DECLARED_FOR)
    return await why(scene)


@situation(
    "not-run",
    "The workers of its app must not run timers, and its next tick would be at "
    "2027-01-15 09:00:00 UTC, in 59 min.",
    "Start a worker that does: tenure worker --timers-only MODULE:APP",
)
async def not_run(scene: Scene) -> Why:
    await declare(scene)
    await scene.join("web-1", ttl=5)
    scene.clock.shift(DECLARED_FOR)
    await scene.join("web-2", idle_timers=["sweep"])
    return await why(scene)


@situation(
    "paused",
    "It is paused until it is resumed (migration), so it skips its ticks.",
    "Resume it: tenure timers resume sweep",
)
async def paused(scene: Scene) -> Why:
    await declare(scene)
    await scene.app.timer_handle("sweep").pause(reason="migration")
    return await why(scene)


@situation(
    "paused",
    "It is paused until 2027-01-15 10:00:00 UTC, for another 2 h, so it skips its ticks, "
    "and its next tick that runs is at 2027-01-15 10:00:00 UTC, in 2 h.",
    "Resume it: tenure timers resume sweep",
)
async def paused_until(scene: Scene) -> Why:
    await declare(scene)
    await scene.app.timer_handle("sweep").pause(until="2h")
    return await why(scene)


@situation(
    "frozen",
    "All timers are frozen until they are unfrozen (release).",
    "Let all timers tick: tenure timers unfreeze",
)
async def frozen(scene: Scene) -> Why:
    await declare(scene)
    await scene.app.pause_timers(reason="release")
    return await why(scene)


@situation(
    "blackout",
    "A blackout skips its ticks until 2027-01-15 11:00:00 UTC, "
    "and its next tick is at 2027-01-15 11:00:00 UTC, in 3 h.",
)
async def in_a_blackout(scene: Scene) -> Why:
    now = as_datetime(scene.clock.wall())
    window = blackout.window(now - timedelta(hours=1), now + timedelta(hours=3))
    await declare(scene, blackout=[window])
    return await why(scene)


@situation(
    "limit",
    "Its limit is full: its 2 runs have been running on web-1:4711 since 2027-01-15 08:00:00 UTC "
    f"and on web-1:4711 since 2027-01-15 08:00:00 UTC, and {AT_NINE}.",
    SEE_RUN,
)
async def limit_full(scene: Scene) -> Why:
    await declare(scene, overlap="allow", limit=2)
    await scene.tick()
    await scene.tick()
    return await why(scene)


@situation(
    "overlap",
    f"It skips its ticks, because its previous run {RUNS}, and its next tick is at "
    "2027-01-15 10:00:00 UTC, in 59 min 59 s; its last tick, at 2027-01-15 09:00:00 UTC, was "
    "skipped because the run before it had not ended.",
    SEE_RUN,
)
async def overlap(scene: Scene) -> Why:
    await declare(scene)
    await scene.tick()
    scene.clock.shift(3601)
    await scene.join(timers=["sweep"])
    await scene.advance(
        "sweep", scene.clock.wall() - micros(1), limit=bound(1, "overlap"), replica="web-1"
    )
    await scene.register()
    await scene.tell_declared("sweep")
    return await why(scene)


@situation("after-run", f"It ticks 1 h after its run has ended, which {RUNS}.", SEE_RUN)
async def waits_for_its_run(scene: Scene) -> Why:
    await declare(scene, after="completion")
    await scene.tick()
    return await why(scene)


@situation("scheduled", "Its next tick is at 2027-01-15 09:00:10 UTC, in 1 h.")
async def counts_from_the_end_of_its_run(scene: Scene) -> Why:
    await declare(scene, after="completion")
    run = await scene.tick()
    scene.clock.shift(10)
    await scene.settle(run, "succeeded")
    return await why(scene)


@situation(
    "other-definition",
    f"Newer code has declared it differently, so this process leaves it alone, and {AT_NINE}.",
    "Deploy the same version of its app everywhere.",
)
async def declared_by_newer_code(scene: Scene) -> Why:
    await declare(scene)
    await scene.register(digest="newer")
    return await why(scene)


@situation("renamed", "It was renamed to 'clean up'.", "See: tenure why --timer 'clean up'")
async def renamed(scene: Scene) -> Why:
    await declare(scene)
    await scene.register(name="clean up", plan="sweep", renamed_from=("sweep",))
    return await why(scene)


@situation(
    "ahead",
    "It is silent for 365 d, because its last tick is ahead of the store's clock, which was wrong "
    "then or is wrong now, and its next tick is at 2028-01-15 09:00:00 UTC, in 365 d 1 h.",
    "Check that clock, then let it tick: tenure timers reset sweep",
)
async def its_clock_was_wrong(scene: Scene) -> Why:
    await declare(scene)
    await scene.put_ahead("sweep", 365 * 86400)
    return await why(scene)


@situation(
    "skipped",
    f"Its last tick, at 2027-01-15 08:00:00 UTC, was skipped because it was paused, and {AT_NINE}.",
    "See its history: tenure timers history sweep",
)
async def last_tick_skipped(scene: Scene) -> Why:
    await declare(scene)
    await scene.app.timer_handle("sweep").pause(until="1s")
    await scene.advance("sweep", replica="web-1")
    scene.clock.shift(1)
    await scene.app.timer_handle("sweep").resume()
    answer = await why(scene)
    return Why(answer.text.replace("in 59 min 59 s", "in 1 h"), answer.next, answer.code)


@situation(
    "missed",
    "Its last 7 ticks, until 2027-01-15 08:00:00 UTC, were missed because no worker was in "
    f"time, and {AT_NINE}.",
    "See its history: tenure timers history sweep",
)
async def last_ticks_missed(scene: Scene) -> Why:
    await declare(scene)
    await scene.miss("sweep", 7)
    return await why(scene)


@situation(
    "scheduled",
    f"I{AT_NINE[1:]}; "
    "its last run, at 2027-01-15 08:00:00 UTC, failed with TimeoutError: no answer.",
)
async def last_run_failed(scene: Scene) -> Why:
    await declare(scene)
    run = await scene.tick()
    await scene.settle(run, "failed", why="no answer", reason="error")
    return await why(scene)


@situation(
    "late",
    "A tick of it is 30 s late, and its next tick is at 2027-01-15 10:00:00 UTC, in 59 min 30 s.",
    "See the log of its workers, and their slots: tenure replicas ls",
)
async def late(scene: Scene) -> Why:
    await declare(scene)
    scene.clock.shift(3600 + 30)
    await scene.join(timers=["sweep"])
    await scene.tell_declared("sweep")
    return await why(scene)


@situation(
    "unserved",
    "It waits: the only live worker does not run its timer 'sweep'.",
    "Start a worker whose app declares the timer, without --no-timers.",
)
async def a_run_that_no_worker_takes(scene: Scene) -> Why:
    await declare(scene)
    run = await scene.app.timer_handle("sweep").trigger()
    scene.clock.shift(700)
    await scene.join("web-2", timers=["other"])
    return await run.why()


@situation("running", f"A run waits for a worker, and {AT_NINE}.")
async def a_run_that_waits(scene: Scene) -> Why:
    await declare(scene)
    await scene.app.timer_handle("sweep").trigger()
    return await why(scene)
