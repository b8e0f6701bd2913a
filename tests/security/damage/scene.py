"""A namespace with several records of every kind, to be spoiled, and healthy neighbours."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import tenure
from tenure.app import engine_of
from tenure.core.clock import SystemClock
from tenure.core.ids import JobIds
from tenure.core.jobs.options import write_options
from tenure.core.jobs.records import JobRecord, NewJob, Note, Unique
from tenure.core.leases import Granted, Lease
from tenure.core.schedules.documents import EVERYTHING
from tenure.core.schedules.registration import Registered, Registration
from tenure.core.schedules.ticks import Advance
from tenure.runtime.timers.scheduling import Scheduling
from tenure.stores.contract import Store
from tests.contract.job_calls import new_claim_no
from tests.rig.endings import settlement

__all__ = ["GOOD", "QUEUE", "Scene", "fill"]

GOOD = "good"
"""Every name of a neighbour begins so. Records without it may be spoiled."""
QUEUE = "work"
_LONG = 600.0
_ids = JobIds(SystemClock())


def _definition() -> tuple[bytes, str]:
    app = tenure.Tenure("memory://")

    @app.timer(every="1h")
    async def sweep() -> None: ...

    plan = engine_of(app).registry.plans["sweep"].definition
    return plan.encode(), plan.digest


DEFINITION, DIGEST = _definition()


@dataclass
class Scene:
    """What was put into the namespace."""

    replicas: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    running: list[JobRecord] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    leases: list[Lease] = field(default_factory=list)
    good_leases: list[Lease] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)
    timers: list[str] = field(default_factory=list)
    good_planted: Registered | None = None

    @property
    def jobs(self) -> list[str]:
        return [*self.waiting, *(job.id for job in self.running), *self.finished]


def registration(name: str) -> Registration:
    return Registration(name=name, digest=DIGEST, calendar="c", definition=DEFINITION)


def new_id() -> str:
    return _ids.make()


def _job(queue: str, number: int, kind: str) -> NewJob:
    unique = Unique(key=f"bad-key-{kind}-{number}", digest="d", keep=300.0, with_job=number % 2 > 0)
    return NewJob(
        id=new_id(),
        task="bad-task",
        queue=queue,
        payload=b'{"value":1}',
        tags=(f"bad-tag-{number}", "bad-tag"),
        timeout=120.0,
        retention=3600.0,
        unique=unique if number % 3 else None,
    )


async def fill(store: Store, copies: int) -> Scene:
    """Put `copies` records of every kind into the namespace, and the neighbours."""
    scene = Scene()
    await _fill_replicas(store, scene, copies)
    await _fill_jobs(store, scene, copies)
    await _fill_leases(store, scene, copies)
    await _fill_timers(store, scene, copies)
    async with AsyncExitStack() as watches:
        for number in range(copies):
            await store.jobs.pause(f"bad-queue-{number}", seconds=_LONG if number % 2 else None)
            await watches.enter_async_context(store.watch(("queue", f"bad-queue-{number}")))
    return scene


async def _fill_replicas(store: Store, scene: Scene, copies: int) -> None:
    scene.replicas = [f"bad-replica-{number}" for number in range(copies)]
    for replica in (*scene.replicas, "good-replica", "bad-old"):
        await store.jobs.beat([replica], ttl=_LONG, meta={"host": replica, "pid": "4711"})


async def _fill_jobs(store: Store, scene: Scene, copies: int) -> None:
    waiting = [_job(QUEUE, number, "waits") for number in range(copies)]
    scene.waiting = [job.id for job in waiting]
    await store.jobs.insert(waiting)
    await store.jobs.insert([_job("runs", number, "runs") for number in range(copies)])
    for replica in scene.replicas:
        claimed = await store.jobs.claim(replica, new_claim_no(), ["runs"], 1)
        assert claimed is not None
        scene.running += claimed.jobs
    notes = [
        Note(id=job.id, fence=job.fence, progress=0.5, message="half", checkpoint=b"1")
        for job in scene.running
    ]
    await store.jobs.note(notes)
    await store.jobs.cancel([job.id for job in scene.running[::2]], reason="why not")
    ends = [_job("ends", number, "ends") for number in range(copies)]
    scene.finished = [job.id for job in ends]
    await store.jobs.insert(ends)
    claimed = await store.jobs.claim("bad-old", new_claim_no(), ["ends"], copies)
    assert claimed is not None
    outcomes = ("succeeded", "failed", "cancelled")
    settlements = [
        settlement(
            id=job.id,
            fence=job.fence,
            outcome=outcomes[number % 3],  # type: ignore[arg-type]
            result=b"1",
            error=b'{"type":"E","message":"m","trace":"t"}',
            reason="",
            history=b'{"attempt":1,"replica":"r","started":1,"ended":2,"outcome":"failed"}\n',
        )
        for number, job in enumerate(claimed.jobs)
    ]
    assert await store.jobs.settle(settlements) == ["settled"] * copies


async def take(
    store: Store, key: str, holder: str, *, limit: int = 1, waiting: float = 0.0
) -> Lease | None:
    answer = await store.leases.acquire(
        key, holder=holder, limit=limit, ttl=_LONG, meta={"host": "h", "pid": "1"}, waiting=waiting
    )
    return answer.lease if isinstance(answer, Granted) else None


async def _fill_leases(store: Store, scene: Scene, copies: int) -> None:
    async def lock_and_crowd(name: str, into: list[Lease]) -> None:
        into += [lease for lease in [await take(store, f"{name}-lock", f"{name}-h0")] if lease]
        for holder in range(2):
            lease = await take(store, f"{name}-crowd", f"{name}-h{holder}", limit=2)
            assert lease is not None
            into.append(lease)
        await take(store, f"{name}-crowd", f"{name}-h2", limit=2, waiting=_LONG)

    for number in range(copies):
        await lock_and_crowd(f"bad-{number}", scene.leases)
    await lock_and_crowd(GOOD, scene.good_leases)
    for number in range(copies):
        scene.marks.append(f"bad-mark-{number}")
        assert await store.leases.mark(scene.marks[-1], scene.leases[0], "value")
    assert await store.leases.mark("good-mark", scene.good_leases[0], "value")


async def _fill_timers(store: Store, scene: Scene, copies: int) -> None:
    scene.timers = [f"bad-timer-{number}" for number in range(copies)]
    scheduling = Scheduling(store)
    registered = await scheduling.register(
        [registration(name) for name in (*scene.timers, "good-timer")]
    )
    scene.good_planted = registered.pop()
    for name, answer, replica in zip(scene.timers, registered, scene.replicas, strict=True):
        await advance(scheduling, name, answer, replica)
        await scheduling.freeze(name, reason="because")
    # A pause of all that has ended: the record is there, and holds nothing up.
    await scheduling.freeze(EVERYTHING, until=1, reason="over")


async def advance(scheduling: Scheduling, name: str, registered: Registered, replica: str) -> str:
    """Tick once; return the outcome."""
    id_ = new_id()
    move = Advance(
        id=id_,
        name=name,
        ruler=registered.ruler,
        revision=registered.revision,
        seen=registered.cursor,
        to=registered.cursor + 1,
        due=0,
        run=NewJob(
            id=id_,
            task=f"@{name}",
            queue="@timers",
            payload=b"{}",
            tags=("bad-tag",),
            retention=60.0,
            schedule=name,
            options=write_options(rerun=False),
        ),
        replica=replica,
    )
    return (await scheduling.advance(move)).outcome


Step = Callable[[], Awaitable[object]]


async def attempt(what: str, step: Awaitable[object], problems: list[str]) -> object:
    """Await a step of the check; note what it raised, and go on."""
    try:
        return await step
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        problems.append(f"{what}: {type(error).__name__}: {error}"[:600])
        return None


def names_of(rows: Sequence[object], attribute: str) -> set[str]:
    return {getattr(row, attribute) for row in rows}
