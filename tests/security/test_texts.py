"""Text that no store can keep: it is refused with a reason, or cleaned; never a raw error."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tenure import Backoff, Job, OnceFailed, Reject, StoreError, Tenure, TenureError, current_job
from tenure.http import AsyncRouter, Owner, Problem
from tests.contract.worlds import World
from tests.http.service import FACES, Face, as_face
from tests.http.wire import client_of

TEXTS = {"surrogate": "a\ud800b", "nul": "a\0b"}


def raising(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


async def lock(app: Tenure, name: str = "name", **options: Any) -> None:
    async with app.lock(name, **options):
        pass


async def enqueue(app: Tenure, **options: Any) -> None:
    @app.task
    async def work() -> None: ...

    await work.using(**options).enqueue()


async def run(app: Tenure, act: Callable[[], Any]) -> Job[None]:
    """Let a job do this; return the job."""

    @app.task(retry=Backoff(max_attempts=1))
    async def work() -> None:
        act()

    async with app.worker():
        return await (await work.enqueue()).wait(20)


async def fail(app: Tenure, make: Callable[[], Exception]) -> None:
    def act() -> None:
        raise make()

    job = await run(app, act)
    assert job.state == "failed"
    assert "UnicodeEncodeError" not in (job.error or "")


async def progress(app: Tenure, text: str) -> None:
    job = await run(app, lambda: current_job().progress(0.5, text))
    assert job.state == "succeeded"
    assert job.message.startswith("a")


async def cancel(app: Tenure, reason: str) -> None:
    @app.task
    async def work() -> None: ...

    job = await work.enqueue()
    await job.cancel(reason)
    assert (await job.refresh()).reason.startswith("a")


async def pause_timer(app: Tenure, reason: str) -> None:
    @app.timer(every="1h")
    async def poll() -> None: ...

    async with app.worker():
        await app.timer_handle("poll").pause(reason=reason)


async def once_failing(app: Tenure, text: str) -> None:
    for _ in range(2):  # the second call reads what the first has stored
        with pytest.raises(OnceFailed):
            await app.once("name", raising(ValueError(text)))


CALLS: dict[str, Callable[[Tenure, str], Awaitable[Any]]] = {
    "name of a lock": lock,
    "meta": lambda app, text: lock(app, meta={"who": text}),
    "name in meta": lambda app, text: lock(app, meta={text: "who"}),
    "prefix of locks": lambda app, text: app.locks(text),
    "name for once": lambda app, text: app.once(text, lambda: None),
    "error of once": once_failing,
    "queue": lambda app, text: enqueue(app, queue=text),
    "unique key": lambda app, text: enqueue(app, unique=text),
    "tag": lambda app, text: enqueue(app, tags=[text]),
    "filter": lambda app, text: app.jobs(tag=text),
    "paused queue": lambda app, text: app.pause_queue(text),
    "reason of a paused queue": lambda app, text: app.pause_queue("q", reason=text),
    "reason of a cancel": cancel,
    "progress": progress,
    "error": lambda app, text: fail(app, lambda: ValueError(text)),
    "reject": lambda app, text: fail(app, lambda: Reject(text)),
    "problem": lambda app, text: fail(
        app, lambda: Problem(422, text, detail=text, all=[{text: text}])
    ),
    "paused timer": pause_timer,
    "paused timers": lambda app, text: app.pause_timers(reason=text),
    "id of a job": lambda app, text: app.job(text),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_text_that_stores_cannot_keep(real_world: World, call, text: str):
    problem = None
    async with Tenure(real_world.unopened(), grace=0) as app:
        try:
            await call(app, text)
        except TenureError as error:  # which says what is wrong
            problem = error
    assert not isinstance(problem, StoreError)


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_text_of_owners_and_problems_over_http(face: Face, text: str):
    app = Tenure("memory://")
    router = AsyncRouter(app, prefix="/a", owner=lambda: text)

    @router.post("")
    async def work(owner: Owner) -> str:
        return owner

    def refuse(_: Any) -> None:
        raise Problem(422, text, detail=text)

    other = AsyncRouter(app, prefix="/b", owner=lambda: "ann")
    other.post("", name="other", before_enqueue=refuse)(work_alone)
    async with app, client_of(as_face(router, face)) as client:
        assert (await client.post("/a")).status_code == (403 if "\0" not in text else 202)
    async with app, client_of(as_face(other, face)) as client:
        refused = await client.post("/b")
        assert refused.status_code == 422
        assert refused.json()["title"].startswith("a")


async def work_alone() -> None: ...
