"""Turns a step of a program about timers into the calls of a ticker or an operator.

A commit is one call, planned from versions that were read before. An `Errand` is what Tenure does
with commits: a replica registers, ticks, freezes or forgets, with as many calls as that takes.
"""

from collections.abc import Awaitable, Callable, Generator, Sequence
from itertools import count
from types import coroutine
from typing import Any

from msgspec.structs import replace

from tenure.core.durations import micros
from tenure.core.jobs.records import JobRecord
from tenure.core.schedules.documents import DECLARED_FOR, EVERYTHING, read_standing
from tenure.core.schedules.records import (
    DECISIONS_MAX,
    DECLARED_ANEW_AFTER,
    Commit,
    Committed,
    ScheduleList,
    ScheduleRecord,
)
from tenure.core.schedules.registration import Registered
from tenure.core.schedules.ticks import Advance, Advanced
from tenure.runtime.timers.scheduling import Scheduling
from tenure.stores.damage import Damage
from tenure.testing import ManualClock
from tests.interleavings.readings import Call
from tests.model import schedule_pair, scheduling_pair
from tests.model.schedule_pair import FIRST_RUN, planned, written_by
from tests.model.scheduling_pair import Ids, moved, registration

_FIRST_ID = 100_000  # of commits without a run


class Errand:
    """A piece of work that takes a replica several calls, and its result."""

    def __init__(
        self, name: str, store: int, work: Callable[[], Awaitable[Any]], about: Any = None
    ) -> None:
        self.name = name
        self.store = store
        """The store object of the replica."""
        self.about = about
        """The move, or what is registered."""
        self.answer: Any = None
        """Its result, once it has ended."""
        self.is_uncertain = False
        """Whether the effect of one of its calls may come later than its answer."""
        self.has_failed = False
        """Whether it has ended without an answer."""
        self.is_repeat = False
        self.is_under_way = True
        self._work = work
        self._course: Generator[Call, Any, Any] | None = None

    def begin(self) -> Call | None:
        """Return its first call; None if it needs none."""
        self.has_failed = False
        self._course = self._work().__await__()
        return self._go_on(lambda course: course.send(None))

    def answered(self, answer: object) -> Call | None:
        """Return its next call; None if it has come to its end."""
        return self._go_on(lambda course: course.send(answer))

    def failed(self, error: BaseException) -> Call | None:
        """Let a call of it fail; return its next call, None if that has ended it."""

        def throw(course: Generator[Call, Any, Any]) -> Call:
            return course.throw(error)

        try:
            return self._go_on(throw)
        except BaseException as end:
            if end is not error:
                raise
        self.has_failed = True
        return None

    def _go_on(self, step: Callable[[Generator[Call, Any, Any]], Call]) -> Call | None:
        assert self._course is not None
        try:
            return step(self._course)
        except StopIteration as end:
            self.answer = end.value
            return None


class TimerCalls:
    """The knowledge of tickers: cursors and versions at their last look."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        # Instants at which something ends, unless it is renewed.
        self.ends: set[int] = set()
        self._run_numbers = count(FIRST_RUN)
        self._commits: list[Commit] = []
        self._versions: dict[str, str] = {}
        self._first_versions: dict[str, str] = {}
        self._advances: list[Errand] = []
        self._positions: dict[str, tuple[tuple[str, int], int]] = {}
        self._first_cursors: dict[str, int] = {}
        self._hands: dict[int, Scheduling] = {}
        self.names: set[str] = set()
        self.runs: list[str] = []

    def timer_looks(self) -> list[Call]:
        """Return the calls that read the whole state of timers."""
        return [Call("schedules.read", (), {"lines": DECISIONS_MAX})]

    def learn_of_timers(self, call: Call, answer: object) -> list[JobRecord]:
        """Remember the state; return the runs that were started at once."""
        if call.name == "schedules.commit" and isinstance(answer, list):
            (commits,) = call.arguments
            return [run for pair in zip(commits, answer, strict=True) for run in self._heard(*pair)]
        if isinstance(answer, ScheduleList):
            for record in answer.records:
                self._read(record)
        return []

    def learn_of_errands(self, errand: Errand) -> None:
        """Remember the answers of a replica."""
        answer = errand.answer
        if isinstance(answer, Advanced) and answer.revision:
            self._positions[errand.about.name] = (answer.ruler, answer.revision), answer.cursor
        elif errand.name == "register":
            for registered, reply in zip(errand.about, answer, strict=True):
                assert isinstance(reply, Registered)
                if reply.ruler:  # a replica that yields does not move it
                    self._positions[registered.name] = (reply.ruler, reply.revision), reply.cursor

    def _heard(self, commit: Commit, answer: Committed) -> list[JobRecord]:
        if answer.outcome in ("done", "instead"):
            self._versions |= written_by(commit)
        self._versions |= {head.name: head.version for head in answer.heads}
        self._first_versions = {**self._versions, **self._first_versions}
        run = answer.run
        return [run] if run is not None and run.state == "running" else []

    def _read(self, record: ScheduleRecord) -> None:
        self._versions[record.name] = record.version
        self._first_versions.setdefault(record.name, record.version)
        standing = read_standing(record.standing)
        if standing is not None:
            self._positions[record.name] = (record.ruler, standing.revision), standing.cursor
            self._first_cursors.setdefault(record.name, standing.cursor)

    def _ends_after(self, *lengths: float) -> None:
        self.ends.update(self._clock.wall() + micros(length) for length in lengths)

    # Calls of the contract.

    def _commit(self, commits: Sequence[dict[str, Any]]) -> Call:
        versions = dict(self._versions)
        made: list[Commit] = []
        for details in commits:
            self._ends_after(*schedule_pair.lengths_of(details))
            self.names.update([details["name"], *(name for name, _, _ in details["expects"])])
            number, now = next(self._run_numbers), self._clock.wall()
            made.append(planned(number, now, versions, self._first_versions, details))
            versions |= written_by(made[-1])
        self._commits += made
        self.runs += [commit.id for commit in made if commit.run is not None]
        return Call("schedules.commit", (made,))

    def _commit_again(self, which: int) -> Call | None:
        if not self._commits:
            return None
        return Call("schedules.commit", ([self._commits[-1 - which % len(self._commits)]],))

    def _declare(self, rulers: Sequence[tuple[str, str]]) -> Call:
        self._ends_after(DECLARED_ANEW_AFTER)
        return Call("schedules.declare", (rulers,))

    def _look_for(self, names: Sequence[str] | None, after: str, limit: int) -> Call:
        # By name: on some stores a list of all takes two reads.
        return Call(
            "schedules.read", (names or sorted(self.names),), {"after": after, "limit": limit}
        )

    # Errands.

    def errand_of(self, name: str, arguments: dict[str, Any], store: int) -> Errand | None:
        """Return the errand of a replica on a store object for a step."""
        hand = self._hands.setdefault(store, self._new_hand(store))
        details = {key: value for key, value in arguments.items() if key not in ("by", "lost")}
        errand: Errand | None = getattr(self, f"_errand_{name}")(hand, store, **details)
        return errand

    def _new_hand(self, store: int) -> Scheduling:
        hand = Scheduling(_Asking(self._clock))  # type: ignore[arg-type]
        hand._ids = Ids(_FIRST_ID * (store + 1))  # type: ignore[assignment]
        return hand

    def _errand_register(
        self, hand: Scheduling, store: int, schedules: Sequence[dict[str, Any]]
    ) -> Errand:
        self._ends_after(DECLARED_FOR)
        registrations = list(
            {fields["name"]: registration(**fields) for fields in schedules}.values()
        )
        self.names.update(registered.name for registered in registrations)
        self.names.update(name for registered in registrations for name in registered.renamed_from)
        return Errand("register", store, lambda: hand.register(registrations), registrations)

    def _errand_advance(self, hand: Scheduling, store: int, name: str, **details: Any) -> Errand:
        rules, cursor = self._positions.get(name, (("a", 1), 0))
        before = self._first_cursors.get(name, 0)
        number = next(self._run_numbers)
        cursors = {"here": cursor, "before": before}
        move = moved(name, number, self._clock.wall(), rules, cursors, **details)
        self._ends_after(*scheduling_pair.lengths_of(details))
        if move.run is not None:
            self.runs.append(move.id)
        self._advances.append(Errand("advance", store, lambda: hand.advance(move), move))
        return self._advances[-1]

    def _errand_advance_again(
        self, _: Scheduling, __: int, which: int, *, is_asked_only: bool, by_another: bool
    ) -> Errand | None:
        """Let a replica repeat its own move: no other replica knows it."""
        del by_another
        busy = {errand.about.id for errand in self._advances if errand.is_under_way}
        idle = [errand for errand in self._advances if errand.about.id not in busy]
        if not idle:
            return None
        first = idle[-1 - which % len(idle)]
        move: Advance = first.about
        hand = self._hands[first.store]
        repeated_move = replace(move, due=scheduling_pair.NEVER) if is_asked_only else move
        self._advances.append(
            Errand("advance", first.store, lambda: hand.advance(repeated_move), move)
        )
        return self._advances[-1]

    def _errand_freeze(
        self, hand: Scheduling, store: int, name: str, until_in: float | None, reason: str
    ) -> Errand:
        self._ends_after(until_in or 0.0)
        self.names.add(EVERYTHING)
        until = None if until_in is None else self._clock.wall() + micros(until_in)
        return Errand("freeze", store, lambda: hand.freeze(name, until=until, reason=reason))

    def _errand_thaw(self, hand: Scheduling, store: int, name: str) -> Errand:
        return Errand("thaw", store, lambda: hand.thaw(name))

    def _errand_forget(self, hand: Scheduling, store: int, idle: float) -> Errand:
        return Errand("forget", store, lambda: hand.forget(idle=idle))

    def _errand_declare(
        self, hand: Scheduling, store: int, rulers: Sequence[tuple[str, str]]
    ) -> Errand:
        return Errand("declare", store, lambda: hand.declare(rulers))

    # Runs.

    def _cancel_run(self, which: int, reason: str) -> Call | None:
        if not self.runs:
            return None
        return Call("jobs.cancel", ([self.runs[-1 - which % len(self.runs)]],), {"reason": reason})

    def _requeue_run(self, which: int) -> Call | None:
        return (
            Call("jobs.requeue", ([self.runs[-1 - which % len(self.runs)]],)) if self.runs else None
        )


class _Asking:
    """Stands in for a store: each call is handed to the driver of the errand."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = _Restless(clock)
        self.damage = Damage("schedules://", "none")
        self.jobs = _AskingPart("jobs")
        self.schedules = _AskingPart("schedules")


class _AskingPart:
    def __init__(self, part: str) -> None:
        self._part = part

    def __getattr__(self, name: str) -> Any:
        @coroutine
        def call(*arguments: Any, **details: Any) -> Generator[Call, Any, Any]:
            return (yield Call(f"{self._part}.{name}", arguments, details))

        return call


class _Restless:
    """A clock whose sleeps take no time: the driver decides when errands go on."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)

    async def sleep(self, seconds: float) -> None:
        """Go on at once."""
