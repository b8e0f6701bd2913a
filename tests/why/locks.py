"""Situations of locks and semaphores."""

from collections.abc import Callable

from tenure import Why
from tests.contract import calls
from tests.why.scene import Scene, Situation, Stage

SITUATIONS: list[Situation] = []


def situation(code: str, text: str, step: str = "") -> Callable[[Stage], Stage]:
    """Add a situation to the table: what is said about it, in full."""

    def add(stage: Stage) -> Stage:
        SITUATIONS.append(Situation(stage, code, text, step))
        return stage

    return add


async def take(scene: Scene, holder: str, *, limit: int = 1, ttl: float = 30) -> None:
    """Acquire the lock "gpu" for a process of this host."""
    meta = {"host": holder, "pid": "4711"}
    await calls.take(scene.store, "gpu", holder, limit=limit, ttl=ttl, meta=meta)


async def wait(scene: Scene, holder: str, *, limit: int = 1) -> None:
    """Wait in line for it."""
    meta = {"host": holder, "pid": "4711"}
    await calls.be_refused(scene.store, "gpu", holder, limit=limit, waiting=60, meta=meta)


async def why(scene: Scene) -> Why:
    """Return the answer; the fence is replaced, as it is new in each test."""
    answer = await scene.app.why_lock("gpu")
    step, fence, _ = answer.next.partition("--fence ")
    return Why(answer.text, step + fence.strip(), answer.code)


RELEASE = "If its holder is gone, release it: tenure locks release gpu --fence"
SHOW = "If a holder is gone, release it by its fence, see: tenure locks show gpu"


@situation("free", "No process holds it.")
async def free(scene: Scene) -> Why:
    await calls.take(scene.store, "gpu:2", "web-1")
    return await why(scene)


@situation(
    "held",
    "It is held by web-1:4711 for 10 s, and expires in 20 s unless it is renewed.",
    RELEASE,
)
async def held(scene: Scene) -> Why:
    await take(scene, "web-1")
    scene.clock.shift(10)
    return await why(scene)


@situation(
    "held",
    "It is held by web-1:4711 for 10 s, and expires in 20 s unless it is renewed; "
    "2 wait in line: web-2:4711 has waited for 10 s and is next.",
    RELEASE,
)
async def held_with_a_line(scene: Scene) -> Why:
    await take(scene, "web-1")
    await wait(scene, "web-2")
    await wait(scene, "web-3")
    scene.clock.shift(10)
    return await why(scene)


@situation("free", "No process holds it, and web-2:4711 is the next of 2 in line to get it.")
async def free_with_a_line(scene: Scene) -> Why:
    await take(scene, "web-1")
    await wait(scene, "web-2")
    await wait(scene, "web-3")
    scene.clock.shift(31)
    return await why(scene)


@situation(
    "open",
    "2 of 3 slots are held by web-1:4711 and web-2:4711, and the next one expires in 10 s unless "
    "it is renewed.",
    SHOW,
)
async def semaphore_with_room(scene: Scene) -> Why:
    await take(scene, "web-1", limit=3)
    await take(scene, "web-2", limit=3, ttl=10)
    return await why(scene)


@situation(
    "held",
    "2 of 2 slots are held by web-1:4711 and web-2:4711, and the next one expires in 30 s unless "
    "it is renewed; web-3:4711 has waited for 0 s and is next.",
    SHOW,
)
async def semaphore_without_room(scene: Scene) -> Why:
    await take(scene, "web-1", limit=2)
    await take(scene, "web-2", limit=2)
    await wait(scene, "web-3", limit=2)
    return await why(scene)


@situation(
    "held",
    "2 of 2 slots are held by web-1:4711 and web-2:4711, and the next one expires in 30 s unless "
    "it is renewed; its holders use the limits 2 and 3, and 2 rules.",
    SHOW,
)
async def different_limits(scene: Scene) -> Why:
    await take(scene, "web-1", limit=3)
    await take(scene, "web-2", limit=2)
    return await why(scene)
