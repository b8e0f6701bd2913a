"""Timers for commands to look at, planted and ticked by hand: nothing has to be waited for."""

from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

import tenure
from tenure import blocking
from tenure.core.records import JobRecord
from tenure.core.schedules import Decision, Planting
from tenure.runtime.reports import ErrorReport
from tests.cli.conftest import Place
from tests.contract.job_calls import settle
from tests.contract.schedule_calls import bound, look_at, tick

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
        self._plans = app._plans
        self.sync = blocking.Tenure(app)

    def call(self, work: Awaitable[T]) -> T:
        return self.sync._portal().call(work)

    @property
    def store(self) -> Any:
        return self.sync._app._store

    def plant(self, *names: str, **changed: Any) -> None:
        """Make timers known, as a worker does when it begins."""
        for name in names or self._plans:
            found = self._plans.get(name, self._plans["sweep"]).definition
            given = {"digest": found.digest, "definition": found.encode(), **changed}
            self.call(self.store.plant([Planting(name=name, **given)]))

    def tick(self, name: str = "sweep", **details: Any) -> JobRecord | None:
        """Have a tick that is due, run by web-1 unless told otherwise."""
        self.call(self.store.join("web-1", ttl=600, meta={"host": "web-1", "pid": "4711"}))
        to = self.call(look_at(self.store, name)).cursor + 1
        given = {"due": 0, "replica": "web-1", **details}
        return self.call(tick(self.store, to, name=name, **given)).run

    def skip(self, name: str = "sweep") -> None:
        """Have a tick that is skipped, as an earlier run is unfinished."""
        self.tick(name, limit=bound(1, "overlap"))

    def miss(self, ticks: int, name: str = "sweep") -> None:
        """Have ticks that nobody ran in time."""
        at = self.call(look_at(self.store, name)).cursor
        late = Decision(outcome="missed", reason="late", first=at + 1, last=at + 1, ticks=ticks)
        self.tick(name, passed=(late,), run=None)

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
