"""Timers for commands to look at, registered and ticked by hand: nothing has to be waited for."""

from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

import tenure
from tenure import blocking
from tenure.app import engine_of
from tenure.core.jobs.records import JobRecord
from tenure.core.schedules.documents import Decision
from tenure.core.schedules.registration import Registered, Registration
from tenure.runtime.attempts.reports import ErrorReport
from tenure.runtime.timers.scheduling import Scheduling
from tenure.runtime.timers.stored_schedules import read_schedules
from tests.cli.conftest import Place
from tests.contract.job_calls import settle
from tests.contract.schedule_calls import advance, bound, move

T = TypeVar("T")

EVIL = "evil\x1b[2J\r\u202e"
STEERING = {"\x1b", "\r", "\x07", "\u202e"}


class Clockwork:
    """An app with a timer and a schedule, for threads, and a hand in its store."""

    def __init__(self, place: Place) -> None:
        app = tenure.Tenure(place.url, namespace=place.namespace)

        @app.timer(every="1h")
        async def sweep() -> None: ...

        @app.task
        async def report(kind: str) -> None: ...

        app.schedule(report, cron="0 6 * * 1", tz="Europe/Berlin", args=("x",), name="weekly")
        self._plans = engine_of(app).registry.plans
        self.sync = blocking.Tenure(app)

    def call(self, work: Awaitable[T]) -> T:
        return self.sync._portal().call(work)

    @property
    def store(self) -> Any:
        return engine_of(self.sync._app).store

    def register(self, *names: str, **changed: Any) -> None:
        """Make timers known, as a worker does when it begins."""
        for name in names or self._plans:
            definition = self._plans.get(name, self._plans["sweep"]).definition
            fields = {"digest": definition.digest, "definition": definition.encode(), **changed}
            self.call(Scheduling(self.store).register([Registration(name=name, **fields)]))

    def tick(self, name: str = "sweep", **details: Any) -> JobRecord | None:
        """Have a tick that is due, run by web-1 unless told otherwise."""
        self.call(self.store.jobs.beat(["web-1"], ttl=600, meta={"host": "web-1", "pid": "4711"}))
        registered = self._registered(name)
        move_fields = {"due": 0, "replica": "web-1", **details}
        due = move(registered, registered.cursor + 1, name=name, **move_fields)
        return self.call(advance(self.store, due)).run

    def skip(self, name: str = "sweep") -> None:
        """Have a tick that is skipped, as an earlier run is unfinished."""
        self.tick(name, limit=bound(1, "overlap"))

    def miss(self, ticks: int, name: str = "sweep") -> None:
        """Have ticks that nobody ran in time."""
        at = self._registered(name).cursor + 1
        late = Decision(outcome="missed", reason="late", first=at, last=at, ticks=ticks)
        self.tick(name, passed=(late,), run=None)

    def _registered(self, name: str) -> Registered:
        """Return how a timer stands."""
        page = self.call(read_schedules(self.store, [name]))
        [schedule] = page.all
        return Registered(
            ruler=schedule.record.ruler,
            revision=schedule.standing.revision,
            cursor=schedule.standing.cursor,
            now=page.now,
        )

    def settle(self, run: JobRecord, outcome: str, message: str = "") -> None:
        """End a run."""
        report = msgspec.json.encode(ErrorReport("ValueError", message)) if message else None
        failure = {"reason": "error", "error": report} if message else {}
        assert self.call(settle(self.store, run, outcome, **failure)) == "settled"


@contextmanager
def clockwork_at(place: Place) -> Iterator[Clockwork]:
    """Open it."""
    work = Clockwork(place)
    with work.sync:
        yield work
