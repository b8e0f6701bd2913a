"""Makes the calls of a schedule on a real store, one point at a time, and compares."""

import asyncio
from collections import Counter, deque
from collections.abc import Sequence
from typing import Protocol

from tenure.errors import StoreUnavailable, TenureError
from tenure.testing import ManualClock
from tests.schedules.calls import Calls, repeated, touched, undoing
from tests.schedules.orders import Fate, Op, explained
from tests.schedules.programs import AT_ITS_REPLY, CALLERS, PASSING, STORES, Schedule, Step
from tests.schedules.spec import Call, Spec, State

ITS_REPLY = "its reply"
_POINTS_MAX = 400  # of one window; so many mean that something goes in circles


class Point:
    """A place at which a call is held up until the schedule lets it go on."""

    def __init__(self, op: Op | None, what: str, number: int) -> None:
        self.op = op
        self.what = what
        self.number = number


class Rig(Protocol):
    """A store of one kind, with several store objects whose statements can be held up."""

    skips: bool
    """Whether some calls pass by what others have locked."""
    clock: ManualClock
    counts: Counter[str]

    def begin(self, seed: int) -> None:
        """Start in a namespace where nothing has happened."""

    def start(self, op: Op) -> None:
        """Begin a call."""

    def parked(self) -> list[Point]:
        """Return where something can go on, in an order that depends on the schedule alone."""

    def release(self, point: Point) -> None:
        """Let it go on, to its next point or its end."""

    def break_at(self, point: Point) -> Fate:
        """Break the connection there; return what that means for the call."""

    def cancel(self, op: Op) -> None:
        """Cancel the caller."""

    def finished(self) -> list[Op]:
        """Return calls that have ended since, with their answers or errors."""

    def drain(self) -> None:
        """Let everything end that nobody waits for any more."""

    def ask(self, call: Call) -> object:
        """Make a call without holding it up."""


class ViolationError(AssertionError):
    """No order of the calls explains what was answered."""


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
        self._left: dict[int, deque[Step | Call]] = {}
        self._cuts: dict[Op, Step] = {}
        self._points: Counter[Op] = Counter()
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
        self._ops, self._fates, self._busy = [], {}, {}
        self._points.clear()
        self._left = {caller: deque() for caller in range(CALLERS)}
        for step in steps:
            self._left[step.caller].append(step)
        for _ in range(_POINTS_MAX):
            idle = [one for one in range(CALLERS) if self._left[one] and one not in self._busy]
            parked = self._rig.parked()
            if not idle and not parked:
                break
            # To begin is likelier than to go on, so that calls meet.
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
        step = self._left[caller].popleft()
        call = self._calls.made_of(step.name, step.arguments) if isinstance(step, Step) else step
        if call is None or not self._may_begin(call):
            return
        store = caller % STORES
        self._instant += 1
        op = Op(call, caller, store, self._instant)
        for other in self._ops:
            # What was cancelled is never carried out after a call of the same store that began
            # later.
            if other.store == store and isinstance(other.error, asyncio.CancelledError):
                other.followers.add(op)
        self._ops.append(op)
        self._busy[caller] = op
        if isinstance(step, Step) and step.cut:
            self._cuts[op] = step
        self._rig.counts["calls"] += 1
        self._rig.start(op)

    def _may_begin(self, call: Call) -> bool:
        """Only one claim of a replica is on its way at a time, unless it is the same one."""
        return call.name != "claim" or all(
            op.call.arguments[:2] == call.arguments[:2]
            for op in self._ops
            if op.call.name == "claim"
            and op.call.arguments[0] == call.arguments[0]
            and (op.ended is None or op.fate == "maybe")
        )

    def _move(self, point: Point) -> None:
        op = point.op
        step = self._cuts.get(op) if op is not None else None
        if op is not None:
            self._points[op] += 1
        if op is None or step is None or not self._is_due(step, point, self._points[op]):
            self._rig.release(point)
            return
        del self._cuts[op]
        op.note = f"{'cancelled' if step.cut == 'cancel' else 'cut'} at {point.what}"
        if step.cut == "cancel":
            self._rig.counts["cancelled"] += 1
            self._rig.cancel(op)
        else:
            self._fates[op] = fate = self._rig.break_at(point)
            words = {"never": "cuts before", "happened": "cuts after", "maybe": "cuts amidst"}
            self._rig.counts[words[fate]] += 1

    @staticmethod
    def _is_due(step: Step, point: Point, points: int) -> bool:
        return point.what == ITS_REPLY if step.at == AT_ITS_REPLY else points > step.at

    def _end(self, op: Op) -> None:
        self._instant += 1
        self._busy.pop(op.caller, None)
        if op.error is None:
            op.ended, op.fate = self._instant, "answered"
            self._calls.learn(op)
            return
        self._rig.counts["calls without an answer"] += 1
        if isinstance(op.error, asyncio.CancelledError) and op.note.startswith("cancelled"):
            op.fate = "maybe"
            self._repeat(op, undoing(op.call))
            return
        op.fate = self._fates.get(op) or self._shared_fate(op)
        op.ended = self._instant if op.fate in ("never", "happened") else None
        self._repeat(op, repeated(op.call))

    def _shared_fate(self, op: Op) -> Fate:
        """Return what became of a call whose connection was broken on another one's account."""
        fates = [fate for cut, fate in self._fates.items() if cut.store == op.store]
        if not isinstance(op.error, StoreUnavailable) or not fates:
            raise ViolationError(f"an error that nobody caused:\n{self._shown()}") from op.error
        op.note = "cut with another one"
        return "maybe"

    def _repeat(self, op: Op, call: Call) -> None:
        if not op.call.is_repeat:
            self._rig.counts["repeats"] += 1
            self._left[op.caller].appendleft(call)

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
        """Compare all that can be seen, now that nothing is on its way."""
        for call in calls:
            try:
                answer = self._rig.ask(call)
            except TenureError as error:
                raise ViolationError(f"{call} fails after these calls:\n{self._shown()}") from error
            states = [
                after for one in self._states for after in self._spec.after(one, call, answer)
            ]
            if not states:
                raise ViolationError(
                    f"after these calls:\n{self._shown()}\n{call} answers\n  {answer}\n"
                    f"and by the specification it is\n  {self._expected(call)}"
                )
            self._states = list({one.fingerprint: one for one in states}.values())
            self._calls.learn_of_timers(call, answer)

    def _expected(self, call: Call) -> str:
        answers = {repr(self._spec.answer(one, call)): None for one in self._states}
        return "\n  or ".join(answers)

    def _shown(self) -> str:
        return "\n".join(f"  {op}" + (f" {op.error!r}" if op.error else "") for op in self._ops)
