"""Schedules as replicas and operators use them: the rules of core on the calls of any store."""

from itertools import count
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tenure.core.jobs.options import write_options
from tenure.core.jobs.records import JobRecord
from tenure.core.schedules.documents import Decision, Freeze, Schedule, decision_in
from tenure.core.schedules.records import DECISIONS_MAX, Committed
from tenure.core.schedules.registration import Registered, Registration
from tenure.core.schedules.ticks import Advance, Advanced, Bound, Full, Move
from tenure.runtime.timers.scheduling import Scheduling
from tenure.runtime.timers.stored_schedules import read_schedules
from tenure.stores.contract import Store
from tests.contract.job_calls import id_of, new
from tests.rig import lookups

__all__ = [
    "SECOND",
    "TIMERS",
    "ScheduleView",
    "advance",
    "bound",
    "decisions",
    "forget",
    "freeze",
    "look_at",
    "look_at_all",
    "move",
    "plant_all",
    "register",
    "registration",
    "run",
    "thaw",
    "tick",
]

SECOND = 1_000_000
TIMERS = "@timers"

_numbers = count(1000)


class _Replica(Scheduling):
    """Repeats a move that it gets twice, as after a lost reply."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._sent: dict[str, Move] = {}

    async def advance(self, move: Advance) -> Advanced:
        if move.id in self._sent:
            self._unanswered[move.id] = self._sent[move.id]
        return await super().advance(move)

    async def _send(self, move: Advance, sent: Move) -> Committed:
        self._sent[move.id] = sent
        return await super()._send(move, sent)


_replicas: WeakKeyDictionary[Store, _Replica] = WeakKeyDictionary()


def _replica(store: Store) -> _Replica:
    return _replicas.setdefault(store, _Replica(store))


class ScheduleView(Struct, frozen=True, kw_only=True):
    """A schedule with its parsed documents."""

    name: str
    revision: int
    ruler: str
    definition: bytes
    cursor: int
    last_run: int
    last_job: str
    live: int
    registered: int
    declared: int
    successor: str
    freeze: Freeze | None
    latest: Decision | None


def registration(name: str = "sync", definition: bytes = b"first", **details) -> Registration:
    """Return a schedule to register; its digest and its calendar follow from its definition."""
    digest = definition.decode()
    fields = {"calendar": digest, **details}
    text = msgspec.json.encode(digest)
    return Registration(name=name, digest=digest, definition=text, **fields)


async def register(store: Store, name: str = "sync", definition: bytes = b"first") -> Registered:
    """Register one schedule."""
    (registered,) = await plant_all(store, [registration(name, definition)])
    return registered


async def plant_all(store: Store, registrations: list[Registration]) -> list[Registered]:
    return await _replica(store).register(registrations)


async def advance(store: Store, move: Advance) -> Advanced:
    return await _replica(store).advance(move)


async def freeze(store: Store, name: str, *, until: int | None = None, reason: str = "") -> bool:
    return await _replica(store).freeze(name, until=until, reason=reason)


async def thaw(store: Store, name: str) -> bool:
    return await _replica(store).thaw(name)


async def forget(store: Store, *, idle: float) -> int:
    return await _replica(store).forget(idle=idle)


async def decisions(
    store: Store, name: str = "sync", *, limit: int = DECISIONS_MAX
) -> list[Decision]:
    """Return the decisions about the ticks of a schedule, newest first."""
    read = [decision_in(line) for line in await lookups.decisions(store, name, limit=limit)]
    assert None not in read
    return [decision for decision in read if decision is not None]


async def look_at(store: Store, name: str = "sync") -> ScheduleView:
    """Return an existing schedule."""
    (schedule,) = await look_at_all(store, [name])
    return schedule


async def look_at_all(
    store: Store, names: list[str] | None = None, *, limit: int = 1000
) -> list[ScheduleView]:
    reading = await read_schedules(store, names, limit=limit)
    return [_view(schedule) for schedule in reading.all]


def _view(schedule: Schedule) -> ScheduleView:
    record, standing, charter = schedule.record, schedule.standing, schedule.charter
    text = msgspec.json.decode(charter.definition)
    return ScheduleView(
        name=record.name,
        revision=standing.revision,
        ruler=record.ruler,
        definition=b"" if text is None else text.encode(),
        cursor=standing.cursor,
        last_run=record.last_run,
        last_job=record.last_job,
        live=record.live,
        registered=charter.registered,
        declared=record.declared,
        successor=standing.successor,
        freeze=standing.freeze,
        latest=None if record.latest is None else decision_in(record.latest),
    )


def bound(most: int, reason: str = "limit", full: Full = "skip") -> Bound:
    return Bound(most=most, reason=reason, full=full)


def move(
    registered: Registered | ScheduleView,
    to: int,
    *,
    name: str = "sync",
    rerun: bool = False,
    **details,
) -> Advance:
    """Return a move from the cursor as it was registered, with a run unless `run=None`."""
    number = next(_numbers)
    options = write_options(rerun=rerun)
    made = new(number, task="@sync", queue=TIMERS, schedule=name, options=options, retention=60.0)
    fields = {
        "id": id_of(number),
        "name": name,
        "ruler": registered.ruler,
        "revision": registered.revision,
        "seen": registered.cursor,
        "to": to,
        "due": to,
        "run": made,
        **details,
    }
    if fields["run"] is not None:
        fields["run"] = replace(fields["run"], id=fields["id"])
    return Advance(**fields)


async def tick(store: Store, to: int, *, name: str = "sync", **details) -> Advanced:
    """Move the cursor from where it is."""
    return await advance(store, move(await look_at(store, name), to, name=name, **details))


async def run(store: Store, to: int, **details) -> JobRecord:
    """Move the cursor and return the run."""
    answer = await tick(store, to, **details)
    assert answer.outcome == "done", answer
    assert answer.run is not None
    return answer.run
