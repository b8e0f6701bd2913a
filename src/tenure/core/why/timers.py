"""Why a timer or schedule ticks or not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from tenure.core.calendar.blackouts import clear_at, covering
from tenure.core.durations import duration
from tenure.core.jobs.error_report import read_report
from tenure.core.jobs.records import SOON, JobRecord
from tenure.core.jobs.states import FINISHED
from tenure.core.safe_text import safe
from tenure.core.schedules.definition import Definition
from tenure.core.schedules.documents import Decision, Freeze, Schedule, read_definition
from tenure.core.schedules.pauses import current_freeze, silent_for
from tenure.core.schedules.steps import coming_tick, later, next_due
from tenure.core.why.answer import Clause, Why, answer, because, command, listed, moment, quoted
from tenure.core.why.queues import START_WORKER
from tenure.core.why.surroundings import Surroundings

__all__ = ["TimerFacts", "why_timer"]

_SKIPPED = {
    "overlap": "the run before it had not ended",
    "limit": "it had as many unfinished runs as it may",
    "per_replica": "its replica had as many unfinished runs as it may",
    "blackout": "it was in a blackout",
    "paused": "it was paused",
    "late": "no worker was in time",
}

# No worker runs it.
_IDLE = ("no-worker", "not-run", "undeclared")


class TimerFacts(Struct, frozen=True, kw_only=True):
    """What the store has about one timer or schedule."""

    schedule: Schedule
    everything: Schedule | None = None
    """The record that freezes all timers."""
    latest: Decision | None = None
    """The newest line of its history."""
    runs: Sequence[JobRecord] = ()
    """Its last run, and its unfinished runs as far as they are known."""
    own_digest: str = ""
    """The digest of the definition that this process declares; empty if it declares none."""

    @property
    def name(self) -> str:
        return self.schedule.name

    @property
    def last(self) -> JobRecord | None:
        """Its last run, if the store still has it."""
        return next((run for run in self.runs if run.id == self.schedule.record.last_job), None)

    @property
    def unfinished(self) -> list[JobRecord]:
        return [run for run in self.runs if run.state not in FINISHED]


def why_timer(timer: TimerFacts, around: Surroundings) -> Why:
    """Explain a timer or schedule.

    What keeps it from ticking comes first. Codes: unreadable, renamed, ahead, no-worker, not-run,
    undeclared, paused, frozen, other-definition, after-run, overlap, limit, blackout, late, over.
    If it ticks: running, skipped or missed (its last tick), scheduled.
    """
    schedule, now = timer.schedule, around.now
    if successor := schedule.standing.successor:
        step = f"See: {command('why', '--timer', successor)}"
        return answer(Clause("renamed", f"it was renamed to {quoted(successor)}", step))
    definition = read_definition(schedule.charter)
    if definition is None:
        text = "a newer version of Tenure has declared it, which this one cannot read"
        return answer(Clause("unreadable", text, "Use the version of its workers."))
    hurdles = [*_hurdles(timer, definition, around)]
    is_idle = any(hurdle.code in _IDLE for hurdle in hurdles)
    coming = _coming(timer, definition, now, "would be" if is_idle else "is")
    if not hurdles and schedule.record.live:
        coming.insert(0, Clause("running", f"{_runs_of_it(timer)} {_where(timer, around)}"))
    if hurdles:
        # More than two reasons make no clear sentence.
        return answer(*hurdles[:2], *coming, tail=_last_tick(timer))
    last_tick = _last_tick(timer)
    if last_tick and timer.latest is not None and timer.latest.outcome != "ran":
        step = f"See its history: {command('timers', 'history', timer.name)}"
        return answer(Clause(timer.latest.outcome, last_tick, step), *coming)
    return answer(*coming, tail=last_tick)


def _hurdles(timer: TimerFacts, definition: Definition, around: Surroundings) -> Iterator[Clause]:
    """Yield what keeps it from ticking, the most severe first."""
    yield from _silence(timer, around.now)
    yield from _workers(timer, around)
    yield from _freezes(timer, around.now)
    yield from _definitions(timer)
    yield from _runs(timer, definition, around)
    yield from _blackouts(definition, around.now)
    yield from _delay(timer, definition, around.now)


def _silence(timer: TimerFacts, now: int) -> Iterator[Clause]:
    if ahead := silent_for(timer.schedule, now):
        text = (
            f"it is silent for {duration(ahead)}, because its last tick is ahead of the store's "
            "clock, which was wrong then or is wrong now"
        )
        step = f"Check that clock, then let it tick: {command('timers', 'reset', timer.name)}"
        yield Clause("ahead", text, step)


def _workers(timer: TimerFacts, around: Surroundings) -> Iterator[Clause]:
    """Yield why no worker runs it, if none does."""
    fleet, name = around.fleet, timer.name
    is_declared = timer.schedule.is_declared(around.now)
    silence = duration(max(0.0, (around.now - timer.schedule.record.declared) / 1e6))
    if not fleet.alive:
        since = "" if is_declared else f": no process has declared it for {silence}"
        yield Clause("no-worker", f"no worker is alive, so it does not tick{since}", START_WORKER)
    elif fleet.leaves_out(name) and not fleet.running(name):
        step = f"Start a worker that does: {command('worker', '--timers-only')} MODULE:APP"
        yield Clause("not-run", "the workers of its app must not run timers", step)
    elif not is_declared:
        text = f"no worker runs it: no process has declared it for {silence}"
        yield Clause("undeclared", text, "Start a worker whose app declares it.")


def _freezes(timer: TimerFacts, now: int) -> Iterator[Clause]:
    if freeze := current_freeze(timer.schedule, now):
        resume = f"Resume it: {command('timers', 'resume', timer.name)}"
        end = _end(freeze, now, "it is resumed")
        yield Clause("paused", f"it is paused {end}, so it skips its ticks", resume)
    if timer.everything is not None and (freeze := current_freeze(timer.everything, now)):
        resume = f"Let all timers tick: {command('timers', 'unfreeze')}"
        end = _end(freeze, now, "they are unfrozen")
        yield Clause("frozen", f"all timers are frozen {end}", resume)


def _end(freeze: Freeze, now: int, otherwise: str) -> str:
    if freeze.until is None:
        return f"until {otherwise}{because(freeze.reason)}"
    left = duration((freeze.until - now) / 1e6)
    return f"until {moment(freeze.until)}, for another {left}{because(freeze.reason)}"


def _definitions(timer: TimerFacts) -> Iterator[Clause]:
    schedule, own = timer.schedule, timer.own_digest
    if not own or own == schedule.record.ruler:
        return
    if own in schedule.charter.digests:
        text = "newer code has declared it differently, so this process leaves it alone"
    else:
        text = "the definition that rules is not the one that this process declares"
    yield Clause("other-definition", text, "Deploy the same version of its app everywhere.")


def _runs(timer: TimerFacts, definition: Definition, around: Surroundings) -> Iterator[Clause]:
    """Yield which unfinished runs keep it from ticking, if any do."""
    live, where = timer.schedule.record.live, _where(timer, around)
    previous = "its previous run" if live == 1 else f"its {live:,} previous runs"
    first = next(iter(timer.unfinished), None)
    step = "" if first is None else f"See its run: {command('jobs', 'show', first.id)}"
    if definition.rests and live:
        pause = f"ticks {duration(definition.rest)} after its run has ended"
        yield Clause("after-run", f"it {pause}, which {where}", step)
    elif definition.limit is not None and live >= definition.limit:
        runs = "its only run" if live == 1 else f"its {live:,} runs"
        yield Clause("limit", f"its limit is full: {runs} {where}", step)
    elif live and definition.overlap != "allow" and _overlaps(timer, definition, around.now):
        does = "waits" if definition.overlap == "queue_one" else "skips its ticks"
        yield Clause("overlap", f"it {does}, because {previous} {where}", step)


def _overlaps(timer: TimerFacts, definition: Definition, now: int) -> bool:
    """Return whether an unfinished run is in the way of ticks, and not merely running."""
    latest = timer.latest
    is_skipped = latest is not None and (latest.outcome, latest.reason) == ("skipped", "overlap")
    return is_skipped or _lateness(timer, definition, now) > 0


def _where(timer: TimerFacts, around: Surroundings) -> str:
    """Return where its unfinished runs are, after words such as "its run" or "its 2 runs"."""
    is_single = timer.schedule.record.live == 1
    running = [
        f"on {around.fleet.where(run.replica)} since {moment(run.started)}"
        for run in timer.unfinished
        if run.state == "running"
    ]
    waiting = len(timer.unfinished) - len(running)
    others = timer.schedule.record.live - len(timer.unfinished)
    if others > 0 and running:
        running.append(f"{others:,} more")
    if running:
        return f"{'has' if is_single else 'have'} been running {listed(running)}"
    if waiting:
        return "waits for a worker" if is_single else "wait for a worker"
    return "has not ended" if is_single else "have not ended"


def _runs_of_it(timer: TimerFacts) -> str:
    live = timer.schedule.record.live
    return "a run" if live == 1 else f"{live:,} runs"


def _blackouts(definition: Definition, now: int) -> Iterator[Clause]:
    blackout = covering(definition.blackouts, now)
    if blackout is not None:
        does = "skips" if blackout.action == "skip" else "defers"
        text = f"a blackout {does} its ticks until {moment(clear_at(definition.blackouts, now))}"
        yield Clause("blackout", text)


def _delay(timer: TimerFacts, definition: Definition, now: int) -> Iterator[Clause]:
    late = _lateness(timer, definition, now)
    if late:
        step = f"See the log of its workers, and their slots: {command('replicas', 'ls')}"
        yield Clause("late", f"a tick of it is {duration(late)} late", step)


def _lateness(timer: TimerFacts, definition: Definition, now: int) -> float:
    """Return for how many seconds a tick is due that no worker has decided; 0.0 for a moment."""
    if definition.rests or definition.each == "replica":
        return 0.0
    tick = next_due(definition, timer.schedule.standing.cursor)
    late = 0.0 if tick is None else (now - tick[1]) / 1e6
    return late if late > SOON else 0.0


def _coming(timer: TimerFacts, definition: Definition, now: int, verb: str) -> list[Clause]:
    """Return when it ticks next, or would tick."""
    schedule = timer.schedule
    due = coming_tick(schedule, definition, now, timer.last)
    freezes = [current_freeze(each, now) for each in (schedule, timer.everything) if each]
    ends = [freeze.until for freeze in freezes if freeze is not None]
    if None in ends or (due is None and definition.rests):
        return []
    if ends and not definition.rests:
        frozen = max([later(schedule, definition, now), *(end - 1 for end in ends if end)])
        tick = next_due(definition, frozen)
        due = None if tick is None else tick[1]
    if due is None:
        return [Clause("over", "it never ticks again")]
    which = "its next tick that runs" if ends else "its next tick"
    text = f"{which} {verb} at {moment(due)}, in {duration((due - now) / 1e6)}"
    return [Clause("scheduled", text)]


def _last_tick(timer: TimerFacts) -> str:
    """Return how its last tick went, if it went wrong."""
    latest, last = timer.latest, timer.last
    if latest is None:
        return ""
    if latest.outcome != "ran":
        why = _SKIPPED.get(latest.reason, safe(latest.reason))
        if latest.ticks > 1:
            ticks = f"its last {latest.ticks:,} ticks, until {moment(latest.last)}, were"
        else:
            ticks = f"its last tick, at {moment(latest.last)}, was"
        return f"{ticks} {latest.outcome} because {why}"
    if last is None or last.id != latest.job or last.state != "failed":
        return ""
    report = read_report(last.error)
    error = f" with {report.line}" if report is not None else because(last.reason)
    return f"its last run, at {moment(latest.last)}, failed{error}"
