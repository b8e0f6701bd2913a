"""Checks that healthy records keep working beside spoiled ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenure.core.jobs.records import Claimed, JobRecord, NewJob, Note, Unique
from tenure.core.jobs.states import STATES
from tenure.core.leases import Lease
from tenure.core.schedules.registration import Registered
from tenure.runtime.timers.scheduling import Scheduling
from tenure.runtime.timers.stored_schedules import read_schedules
from tenure.stores.contract import Store
from tests.contract.job_calls import new_claim_no
from tests.rig.endings import leave, recover, settlement
from tests.rig.lookups import decisions
from tests.security.damage.scene import (
    QUEUE,
    Scene,
    advance,
    attempt,
    new_id,
    registration,
    take,
)

__all__ = ["check"]

_DELAYS = (0.0, 0.0, 0.0)


async def check(store: Store, scene: Scene) -> list[str]:
    """Do all that neighbours do; return what went wrong."""
    problems: list[str] = []
    for part in (_replicas, _jobs, _moves, _leases, _timers, _caretaking, _views):
        await attempt(part.__name__, part(store, scene, problems), problems)
    return problems


def _demand(problems: list[str], condition: object, what: str) -> None:
    if not condition:
        problems.append(what)


async def _replicas(store: Store, scene: Scene, problems: list[str]) -> None:
    newcomer = f"good-{new_id()}"
    await attempt("join", store.jobs.beat([newcomer], ttl=60.0, meta={}), problems)
    beats: Any = await attempt(
        "beat", store.jobs.beat([*scene.replicas, "good-replica", newcomer], ttl=600.0), problems
    )
    _demand(problems, beats and None not in beats[-2:], "beat: a healthy replica is not known")
    replicas: Any = await attempt("replicas", store.jobs.replicas(), problems)
    listed = {replica.id for replica in replicas or ()}
    _demand(problems, {"good-replica", newcomer} <= listed, "replicas: neighbours are missing")
    await attempt("leave", leave(store, newcomer), problems)


async def _jobs(store: Store, scene: Scene, problems: list[str]) -> None:
    """Insert, claim past the spoiled ones, note and settle in one batch with what was claimed."""
    keyed = Unique(key=f"good-{new_id()}", digest="d")
    good = [
        NewJob(id=new_id(), task="t", queue=QUEUE, retention=60.0, unique=keyed, tags=("good",)),
        NewJob(id=new_id(), task="t", queue=QUEUE, retention=60.0, timeout=60.0),
    ]
    inserted: Any = await attempt("insert", store.jobs.insert(good), problems)
    _demand(
        problems,
        inserted and {insertion.outcome for insertion in inserted} == {"created"},
        "insert",
    )
    got: dict[str, JobRecord] = {}
    healthy = {job.id for job in good}
    for _ in range(20):
        claimed: Any = await attempt(
            "claim", store.jobs.claim("good-replica", new_claim_no(), [QUEUE], 20), problems
        )
        if not isinstance(claimed, Claimed):
            break
        got |= {job.id: job for job in claimed.jobs}
        if not claimed.jobs and claimed.next_in != 0:
            break
    _demand(problems, healthy <= set(got), "claim: healthy jobs of the queue were not got")
    running = [*scene.running, *got.values()]
    notes = [Note(id=job.id, fence=job.fence, progress=0.1) for job in running]
    noted: Any = await attempt("note", store.jobs.note(notes), problems)
    accepted = dict(zip([note.id for note in notes], noted or (), strict=False))
    _demand(problems, all(accepted.get(id_) for id_ in healthy), "note: healthy jobs were refused")
    await _settle(store, running, healthy, problems)


async def _settle(
    store: Store, running: Sequence[JobRecord], healthy: set[str], problems: list[str]
) -> None:
    outcomes = ("succeeded", "retry", "failed", "handed back")
    ends = [
        settlement(
            id=job.id,
            fence=job.fence,
            outcome="succeeded" if job.id in healthy else outcomes[number % 4],  # type: ignore[arg-type]
            result=b"1",
        )
        for number, job in enumerate(running)
    ]
    answers: Any = await attempt("settle", store.jobs.settle(ends), problems)
    outcomes_by_id = dict(zip([end.id for end in ends], answers or (), strict=False))
    settled = {outcomes_by_id.get(id_) for id_ in healthy & set(outcomes_by_id)}
    _demand(problems, settled <= {"settled"}, f"settle: healthy jobs were answered {settled}")


async def _moves(store: Store, scene: Scene, problems: list[str]) -> None:
    """Cancel, requeue and look up, in batches with spoiled jobs."""
    good = NewJob(id=new_id(), task="t", queue="good-queue", retention=60.0)
    await attempt("insert", store.jobs.insert([good]), problems)
    ids = [*scene.jobs, good.id]
    for name, call, expected in (
        ("get", store.jobs.get(ids), None),
        ("cancel", store.jobs.cancel(ids), "cancelled"),
        ("requeue", store.jobs.requeue(ids), "requeued"),
    ):
        answers: Any = await attempt(name, call, problems)
        last = answers[-1] if answers else None
        fine = last == expected if expected else last is not None
        _demand(problems, fine, f"{name}: a healthy job was answered {last!r}")
    await attempt("cancel", store.jobs.cancel([good.id]), problems)
    again = [
        NewJob(id=new_id(), task="t", queue="good-queue", unique=Unique(key=f"bad-key-{kind}-{n}"))
        for kind in ("waits", "runs", "ends")
        for n in range(len(scene.replicas))
    ]
    await attempt("insert with spoiled keys", store.jobs.insert([*again, good]), problems)
    await attempt(
        "count_tagged",
        store.jobs.count_tagged("bad-tag", unfinished=1000, recent=1000, within=60.0),
        problems,
    )


async def _leases(store: Store, scene: Scene, problems: list[str]) -> None:
    count = len(scene.good_leases)
    renewed: Any = await attempt(
        "renew", store.leases.renew([*scene.leases, *scene.good_leases]), problems
    )
    fine = renewed and all(renewed[-count:])
    _demand(problems, fine, f"renew: healthy leases were answered {(renewed or [])[-count:]}")
    for key, limit in ((f"good-{new_id()}", 1), (f"good-{new_id()}", 3)):
        lease: Any = await attempt("acquire", take(store, key, "h", limit=limit), problems)
        _demand(problems, lease, f"acquire: {key} with limit {limit} was refused")
        if isinstance(lease, Lease):
            gone: Any = await attempt("release", store.leases.release([lease]), problems)
            _demand(problems, gone == [True], "release: a healthy lease was not there")
    marked: Any = await attempt(
        "marked", store.leases.marked([*scene.marks, "good-mark"]), problems
    )
    _demand(problems, marked and marked[-1], "marked: a healthy mark is missing")
    listed: Any = await attempt("leases", store.leases.find(limit=10_000), problems)
    names = {lease.key for lease in listed or ()}
    _demand(problems, {"good-lock", "good-crowd"} <= names, "leases: neighbours are missing")


async def _timers(store: Store, scene: Scene, problems: list[str]) -> None:
    scheduling = Scheduling(store)
    names = [*scene.timers, "good-timer"]
    call = scheduling.register([registration(name) for name in names])
    registered: Any = await attempt("register", call, problems)
    for name, answer in zip(names, registered or (), strict=True) if registered else ():
        await _tick(scheduling, name, answer, problems)
    schedules: Any = await attempt("schedules", read_schedules(store), problems)
    listed = {schedule.name for schedule in schedules.all} if schedules else set()
    _demand(problems, "good-timer" in listed, "schedules: a neighbour is missing")
    # By their names, because junk may have taken one out of the list of all.
    named: Any = await attempt("schedules", read_schedules(store, scene.timers), problems)
    missing = {*scene.timers} - {schedule.name for schedule in named.all} if named else set()
    _demand(problems, not missing, f"schedules: {missing} were registered, and do not begin anew")
    decided: Any = await attempt("decisions", decisions(store, "good-timer"), problems)
    _demand(problems, decided, "decisions: those of a neighbour are missing")


async def _tick(
    scheduling: Scheduling, name: str, registered: Registered, problems: list[str]
) -> None:
    """Tick a timer that was just registered: a healthy one runs, a spoiled one is not stuck."""
    is_good = name == "good-timer"
    if not registered.ruler:
        # A standing that a newer release has written is left to it, even if junk looks like one.
        schedules = (await read_schedules(scheduling._store, [name])).all
        is_newer = schedules and not schedules[0].standing.is_ours
        _demand(problems, is_newer and not is_good, f"register: {name} has to yield")
        return
    moved: Any = await attempt(
        f"advance {name}", advance(scheduling, name, registered, "good-replica"), problems
    )
    # A readable pause counts, even if junk made it.
    is_paused = scheduling.is_frozen(name, registered.cursor + 1)
    expected = "skipped" if is_paused else "done"
    _demand(problems, moved == expected, f"advance: {name} was answered {moved!r}")


async def _caretaking(store: Store, scene: Scene, problems: list[str]) -> None:
    del scene
    for _ in range(5):
        call = recover(store, delays=_DELAYS, grace=0.0)
        if not await attempt("recover", call, problems):
            break
    await attempt("prune", store.prune(idle=0.0), problems)
    await attempt("forget", Scheduling(store).forget(idle=3600.0), problems)


async def _views(store: Store, scene: Scene, problems: list[str]) -> None:
    good = NewJob(id=new_id(), task="t", queue=QUEUE, tags=("good", "bad-tag"), delay=300.0)
    await attempt("insert", store.jobs.insert([good]), problems)
    counts: Any = await attempt("counts", store.jobs.counts(), problems)
    listed = {queue.queue for queue in counts or ()}
    _demand(problems, QUEUE in listed, "counts: a queue is missing")
    filters: list[dict[str, Any]] = [
        *({"state": state} for state in STATES),
        *({"tag": "bad-tag"}, {"tag": "good"}, {"task": "t"}, {"queue": QUEUE}, {}),
        {"replica": scene.replicas[0]},
    ]
    for wish in filters:
        page: Any = await attempt(f"find {wish}", store.jobs.find(**wish, limit=200), problems)
        if wish in ({"state": "waiting"}, {"tag": "good"}, {"tag": "bad-tag"}, {}):
            ids = {job.id for job in page.jobs} if page else set()
            _demand(problems, good.id in ids, f"find {wish}: a neighbour is missing")
