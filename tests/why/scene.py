"""A store in virtual time, an app on it, and hands that bring jobs, timers and locks into a state.

The clock stands at 2027-01-15 08:00:00 UTC, so that a sentence can be compared in full.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from tenure import Tenure, Why
from tenure.app import engine_of
from tenure.core.durations import micros
from tenure.core.ids import JobIds
from tenure.core.jobs.endings import history_of
from tenure.core.jobs.error_report import ErrorReport
from tenure.core.jobs.history import AttemptOutcome
from tenure.core.jobs.records import JobRecord
from tenure.core.schedules.documents import Decision, write_document
from tenure.core.schedules.records import Commit, Expected, Write
from tenure.core.schedules.registration import Registered, Registration
from tenure.core.worker_info import write_serving
from tenure.runtime.timers.scheduling import Scheduling
from tenure.runtime.timers.stored_schedules import read_schedules
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.job_calls import claim
from tests.contract.schedule_calls import advance, move
from tests.rig.endings import settlement

__all__ = ["Scene", "Situation", "Stage"]

TTL = 600.0


class Scene:
    """The store of one situation."""

    def __init__(self, app: Tenure, store: Store, clock: ManualClock) -> None:
        self.app = app
        self.store = store
        self.clock = clock

        @app.task(retry=19)
        async def send(user: int = 0) -> None: ...

        @app.task(queue="mail", timeout=30)
        async def slow() -> None: ...

        self.send, self.slow = send, slow

    # Workers and jobs.

    async def join(
        self,
        name: str = "web-1",
        queues: Sequence[str] = ("default", "mail"),
        *,
        slots: int = 10,
        timers: Sequence[str] = (),
        idle_timers: Sequence[str] = (),
        ttl: float = TTL,
    ) -> None:
        """Let a worker join that serves these queues and timers."""
        serving = write_serving(
            queues=queues, slots=slots, timers=timers, timer_slots=20, idle_timers=idle_timers
        )
        meta = {"host": name, "pid": "4711", **serving}
        await self.store.jobs.beat([name], ttl=ttl, meta=meta)

    async def claim(
        self, name: str = "web-1", queues: Sequence[str] = ("default", "mail"), limit: int = 200
    ) -> list[JobRecord]:
        """Let a worker claim what is due."""
        return await claim(self.store, name, queues=queues, limit=limit)

    async def settle(
        self, record: JobRecord, outcome: AttemptOutcome, *, why: str = "", **details: Any
    ) -> None:
        """End an attempt, with a line in the history of the job."""
        error = msgspec.json.encode(ErrorReport("TimeoutError", why)) if why else None
        history = history_of(record, outcome, self.clock.wall(), why)
        end = settlement(
            id=record.id,
            fence=record.fence,
            outcome=outcome,
            options="",
            **{"history": history, "error": error, **details},
        )
        assert await self.store.jobs.settle([end]) == ["settled"]

    # Timers.

    async def register(
        self, name: str = "sweep", *, plan: str = "sweep", **changed: Any
    ) -> Registered:
        """Make a timer of the app known, as a worker does when it begins."""
        definition = engine_of(self.app).registry.plans[plan].definition
        fields = {
            "digest": definition.digest,
            "definition": definition.encode(),
            "calendar": definition.calendar,
            "name": name,
            **changed,
        }
        [registered] = await Scheduling(self.store).register([Registration(**fields)])
        return registered

    async def tell_declared(self, name: str = "sweep") -> None:
        """Declare it anew, as its workers do all the time."""
        [schedule] = (await read_schedules(self.store, [name])).all
        declared = await self.store.schedules.declare([(name, schedule.record.ruler)])
        assert declared.lost == []

    async def tick(self, name: str = "sweep", to: int | None = None, **details: Any) -> JobRecord:
        """Have a tick that runs on web-1."""
        run = await self.advance(name, to, **{"replica": "web-1", **details})
        assert run is not None
        return run

    async def advance(self, name: str, to: int | None = None, **details: Any) -> JobRecord | None:
        """Move the cursor of a timer; return the run of its tick, if there is one."""
        [schedule] = (await read_schedules(self.store, [name])).all
        registered = Registered(
            ruler=schedule.record.ruler,
            revision=schedule.standing.revision,
            cursor=schedule.standing.cursor,
            now=self.clock.wall(),
        )
        to = schedule.standing.cursor + 1 if to is None else to
        answer = await advance(self.store, move(registered, to, name=name, **{"due": 0, **details}))
        assert answer.outcome in ("done", "skipped"), answer
        return answer.run

    async def miss(self, name: str, ticks: int) -> None:
        """Have ticks that no worker ran in time."""
        at = self.clock.wall()
        late = Decision(outcome="missed", reason="late", first=at, last=at, ticks=ticks)
        await self.advance(name, at, passed=(late,), run=None)

    async def put_ahead(self, name: str, seconds: float) -> None:
        """Leave a timer as a clock does that was ahead when it ticked last."""
        [schedule] = (await read_schedules(self.store, [name])).all
        standing = replace(schedule.standing, cursor=self.clock.wall() + micros(seconds))
        commit = Commit(
            id=JobIds(self.clock).make(),
            name=name,
            expects=(Expected(name, schedule.record.version),),
            writes=(Write(name, write_document(standing), ruler=schedule.record.ruler),),
        )
        [answer] = await self.store.schedules.commit([commit])
        assert answer.outcome == "done"


Stage = Callable[[Scene], Awaitable[Why]]


class Situation(NamedTuple):
    """A situation, and what is said about it."""

    stage: Stage
    code: str
    text: str
    next: str
