"""Makes the calls of a schedule on a real store, one point at a time, and compares the answers."""

import asyncio
from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tenure.errors import StoreUnavailable, TenureError
from tenure.testing import ManualClock
from tests.interleavings.calls import Calls, repeated, touched, undoing
from tests.interleavings.orders import Fate, Op, explained
from tests.interleavings.programs import (
    AT_ITS_REPLY,
    CALLERS,
    ERRANDS,
    HANDS,
    PASSING,
    STORES,
    Schedule,
    Step,
)
from tests.interleavings.readings import Call, lists_all
from tests.interleavings.spec import Spec, State
from tests.interleavings.ticks import Ticks
from tests.interleavings.timer_calls import Errand

ITS_REPLY = "its reply"
# Some stores take several round trips for these: one that is lost says nothing about the others.
_SEVERAL_TRIPS = ("jobs.delete", "prune")
_POINTS_MAX = 400  # points of one window; more mean an endless loop


class Point:
    """A place at which a call is held up until the schedule lets it go on."""

    def __init__(self, op: Op | None, what: str, number: int) -> None:
        self.op = op
        self.what = what
        self.number = number


class Rig(Protocol):
    """A store of one kind, with several store objects whose statements can be held up."""

    skips: bool
    """Whether some calls skip records that others have locked."""
    clock: ManualClock
    counts: Counter[str]

    def begin(self, seed: int) -> None:
        """Start in a namespace where nothing has happened."""

    def start(self, op: Op) -> None:
        """Begin a call."""

    def parked(self) -> list[Point]:
        """Return the points of calls that can go on; the schedule alone decides their order."""

    def release(self, point: Point) -> None:
        """Let it go on, to its next point or its end."""

    def break_at(self, point: Point) -> Fate:
        """Break the connection there; return what that means for the call."""

    def cancel(self, op: Op) -> None:
        """Cancel the caller."""

    def finished(self) -> list[Op]:
        """Return calls that have ended since, with their answers or errors."""

    def drain(self) -> None:
        """Let everything end that no caller waits for any more."""

    def ask(self, call: Call) -> object:
        """Make a call without holding it up."""


class ViolationError(AssertionError):
    """No order of the calls explains the answers."""


class Leg(NamedTuple):
    """One call of an errand."""

    errand: Errand
    call: Call


class Run:
    """One schedule on one rig."""

    def __init__(self, schedule: Schedule, rig: Rig) -> None:
        self._schedule = schedule
        self._rig = rig
        self._calls = Calls(rig.clock)
        self._spec = Spec(rig.clock)
        self._states = [State()]
        self._instant = 0
        self._ops: list[Op] = []
        self._left: dict[int, deque[Step | Call | Errand | Leg]] = {}
        self._errands: dict[Op, Errand] = {}
        # Of a call, or of an errand with all of its calls.
        self._cuts: dict[Op | Errand, Step] = {}
        self._points: Counter[Op | Errand] = Counter()
        self._ticks = Ticks()
        self._fates: dict[Op, Fate] = {}
        self._busy: dict[int, Op] = {}

    def go(self) -> None:
        """Run it; raise ViolationError where the store differs from the specification."""
        # Every schedule at the same time, so that it does not depend on those before it.
        vars(self._rig.clock).update(vars(ManualClock()))
        self._rig.begin(self._schedule.seed)
        counts = self._rig.counts
        counts["schedules"] += 1
        try:
            for window in dict.fromkeys(step.window for step in self._schedule.steps):
                steps = [step for step in self._schedule.steps if step.window == window]
                if steps[0].name in PASSING:
                    self._pass_time(steps[0])
                else:
                    self._go_through(window, steps)
                    self._check()
                    self._look(self._calls.looks())
            self._look(self._calls.last_looks())
        finally:
            counts["orders tried"] += self._spec.applied

    def _pass_time(self, step: Step) -> None:
        if step.name == "pass_time":
            self._rig.clock.shift(step.arguments["seconds"])
            return
        now = self._rig.clock.wall()
        if ahead := sorted(end for end in self._calls.ends if end > now):
            end = ahead[step.arguments["which"] % len(ahead)] - step.arguments["before"]
            self._rig.clock.shift((end - now) / 1e6)

    def _go_through(self, window: int, steps: list[Step]) -> None:
        """Make the calls of a window concurrently, in an order that chance decides."""
        chance = self._schedule.chance(window)
        self._ops, self._fates, self._busy, self._errands = [], {}, {}, {}
        self._points.clear()
        self._left = {caller: deque() for caller in range(CALLERS)}
        for step in steps:
            self._left[step.caller].append(step)
        for _ in range(_POINTS_MAX):
            idle = [
                caller
                for caller in range(CALLERS)
                if self._left[caller] and caller not in self._busy
            ]
            parked = self._rig.parked()
            if not idle and not parked:
                break
            # Beginning a call is likelier than going on, so that calls meet.
            chosen = chance.choice([*idle, *idle, *parked])
            if isinstance(chosen, Point):
                self._move(chosen)
            else:
                self._start(chosen)
            for op in self._rig.finished():
                self._end(op)
        else:
            raise ViolationError(f"window {window} does not come to an end:\n{self._shown()}")
        if self._busy:
            raise ViolationError(f"calls of window {window} hang:\n{self._shown()}")
        self._rig.drain()

    def _start(self, caller: int) -> None:
        left = self._left[caller].popleft()
        errand, call = self._made_of(left, caller)
        if call is None:
            if errand is not None:
                self._come_to_an_end(errand)
            return
        if not self._may_begin(call):
            return
        store = caller % STORES if errand is None else errand.store
        self._instant += 1
        op = Op(call, caller, store, self._instant)
        for other in self._ops:
            # A cancelled call is never carried out after a call of the same store that began
            # later and is about the same thing. A list of all is about none.
            is_cancelled = isinstance(other.error, asyncio.CancelledError)
            if other.store == store and is_cancelled and not lists_all(call):
                other.followers.add(op)
        self._ops.append(op)
        self._busy[caller] = op
        if errand is not None:
            self._errands[op] = errand
        if isinstance(left, Step) and left.cut:
            self._cuts[errand or op] = left
        self._rig.counts["calls"] += 1
        self._rig.start(op)

    def _made_of(
        self, left: Step | Call | Errand | Leg, caller: int
    ) -> tuple[Errand | None, Call | None]:
        """Return the next call of a caller, and the errand that it is part of."""
        match left:
            case Leg(errand, call):
                return errand, call
            case Errand():
                return left, left.begin()
            case Call():
                return None, left
        if self._schedule.kind == "timers" and left.name in ERRANDS:
            errand = self._calls.errand_of(left.name, left.arguments, caller % HANDS)
            return errand, errand and errand.begin()
        return None, self._calls.made_of(left.name, left.arguments)

    def _may_begin(self, call: Call) -> bool:
        """Only one claim of a replica is in flight at a time, except for its own repeat."""
        return call.name != "jobs.claim" or all(
            op.call.arguments[:2] == call.arguments[:2]
            for op in self._ops
            if op.call.name == "jobs.claim"
            and op.call.arguments[0] == call.arguments[0]
            and (op.ended is None or op.fate == "maybe")
        )

    def _move(self, point: Point) -> None:
        op = point.op
        whole = op and (self._errands.get(op) or op)
        step = self._cuts.get(whole) if whole is not None else None
        if whole is not None:
            self._points[whole] += 1
        if op is None or whole is None or step is None or not self._is_due(step, point, whole):
            self._rig.release(point)
            return
        del self._cuts[whole]
        op.note = f"{'cancelled' if step.cut == 'cancel' else 'cut'} at {point.what}"
        if step.cut == "cancel":
            self._rig.counts["cancelled"] += 1
            self._rig.cancel(op)
        else:
            fate = self._rig.break_at(point)
            if op.call.name in _SEVERAL_TRIPS:
                fate = "maybe"
            self._fates[op] = fate
            words = {"never": "cuts before", "happened": "cuts after", "maybe": "cuts amidst"}
            self._rig.counts[words[fate]] += 1

    def _is_due(self, step: Step, point: Point, whole: Op | Errand) -> bool:
        if step.at != AT_ITS_REPLY:
            return self._points[whole] > step.at
        # Of an errand, the reply that tells of its effect.
        is_effect = isinstance(whole, Op) or (point.op and point.op.call.name == "schedules.commit")
        return point.what == ITS_REPLY and bool(is_effect)

    def _end(self, op: Op) -> None:
        self._instant += 1
        self._busy.pop(op.caller, None)
        errand = self._errands.get(op)
        if op.error is None:
            op.ended, op.fate = self._instant, "answered"
            self._calls.learn(op)
            if errand is not None:
                self._go_on(op, errand)
            return
        self._rig.counts["calls without an answer"] += 1
        again = repeated(op.call)
        if isinstance(op.error, asyncio.CancelledError) and op.note.startswith("cancelled"):
            op.fate = "maybe"
            again = undoing(op.call)
        else:
            op.fate = self._fates.get(op) or self._shared_fate(op)
            op.ended = self._instant if op.fate in ("never", "happened") else None
        if errand is not None:
            self._go_on(op, errand)
        elif not op.call.is_repeat:
            self._rig.counts["repeats"] += 1
            self._left[op.caller].appendleft(again)

    def _go_on(self, op: Op, errand: Errand) -> None:
        """Let an errand make its next call, when chance decides so, or come to its end.

        One that has failed is repeated, once, as replicas do until they are answered.
        """
        if op.error is None:
            call = errand.answered(op.answer)
        else:
            errand.is_uncertain = errand.is_uncertain or op.fate == "maybe"
            call = errand.failed(op.error)
        if call is not None:
            self._left[op.caller].appendleft(Leg(errand, call))
        elif errand.has_failed and not errand.is_repeat:
            errand.is_repeat = True
            self._rig.counts["repeats"] += 1
            self._left[op.caller].appendleft(errand)
        else:
            self._come_to_an_end(errand)

    def _come_to_an_end(self, errand: Errand) -> None:
        errand.is_under_way = False
        self._ticks.ended(errand)
        if not errand.has_failed:
            self._calls.learn_of_errands(errand)

    def _shared_fate(self, op: Op) -> Fate:
        """Return the fate of a call whose connection was broken because of another call."""
        fates = [fate for cut, fate in self._fates.items() if cut.store == op.store]
        if not isinstance(op.error, StoreUnavailable) or not fates:
            raise ViolationError(f"an error that nobody caused:\n{self._shown()}") from op.error
        op.note = "cut with another one"
        return "maybe"

    def _check(self) -> None:
        everything = frozenset([*self._calls.jobs, *"pqr"])
        for op in self._ops:
            op.touches = touched(op, everything)
            others = (other for other in self._ops if other is not op)
            self._rig.counts["calls that overlapped"] += any(op.overlaps(x) for x in others)
        states = explained(self._spec, self._states, self._ops, skips=self._rig.skips)
        if not states:
            raise ViolationError(f"no order of these calls explains them:\n{self._shown()}")
        self._states = states

    def _look(self, calls: Sequence[Call]) -> None:
        """Compare the whole state, now that no call is in flight."""
        for call in calls:
            try:
                answer = self._rig.ask(call)
            except TenureError as error:
                raise ViolationError(f"{call} fails after these calls:\n{self._shown()}") from error
            states = [
                after for state in self._states for after in self._spec.after(state, call, answer)
            ]
            if not states:
                raise ViolationError(
                    f"after these calls:\n{self._shown()}\n{call} answers\n  {answer}\n"
                    f"and by the specification it is\n  {self._expected(call)}"
                )
            self._states = list({state.fingerprint: state for state in states}.values())
            self._calls.learn_of_timers(call, answer)
            for problem in self._ticks.problems(answer) if self._schedule.kind == "timers" else ():
                raise ViolationError(f"after these calls:\n{self._shown()}\n{problem}")

    def _expected(self, call: Call) -> str:
        answers = {repr(self._spec.answer(state, call)): None for state in self._states}
        return "\n  or ".join(answers)

    def _shown(self) -> str:
        return "\n".join(f"  {op}" + (f" {op.error!r}" if op.error else "") for op in self._ops)
