"""Timers and schedules as users declare them, and the tick that a handler gets."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, Literal, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tenure.core.calendar.blackouts import check_blackouts
from tenure.core.calendar.rules import Every, Rule, make_rule, shortest_distance
from tenure.core.calendar.spreads import check_spread, spread_offset
from tenure.core.callables import is_async
from tenure.core.durations import Duration, seconds
from tenure.core.jobs.options import write_options
from tenure.core.jobs.records import JobRecord
from tenure.core.jobs.retention import (
    Kept,
    kept_at_least,
    kept_runs,
    parse_retention,
)
from tenure.core.jobs.retry_policy import Backoff, RetryOption, parse_retry
from tenure.core.jobs.run_numbers import runs_of
from tenure.core.jobs.view import as_datetime
from tenure.core.lease_policy import TTL_MAX
from tenure.core.leases import check_name
from tenure.core.schedules.definition import (
    TASK_PREFIX,
    CatchUp,
    Definition,
    Each,
    OnUnavailable,
    Overlap,
    Plan,
    RunOptions,
    TickArguments,
)
from tenure.core.schedules.documents import EVERYTHING
from tenure.core.schedules.options import (
    TIMER_DEFAULTS,
    After,
    OnCrash,
    ScheduleOptions,
    TimerOptions,
)
from tenure.core.schedules.records import TIMERS_QUEUE
from tenure.core.values.signature import Signature
from tenure.errors import ConfigError
from tenure.runtime.attempts.handler import Handler
from tenure.runtime.attempts.running_job import current
from tenure.runtime.attempts.unlocked_runs import unlocked_since

__all__ = [
    "Tick",
    "make_plan",
    "make_timer_handlers",
    "run_options",
    "timer_name",
]

_A_DAY: Final = 1_704_067_200_000_000  # the first of 2024
# A run ends with the next tick, so its pauses stay short.
_PAUSES: Final = Backoff(cap=60)


class Tick(Struct, frozen=True, kw_only=True):
    """The tick that a timer's function runs for."""

    name: str
    nominal: datetime
    """The instant that the rule gives."""
    scheduled: datetime
    """When it was to begin: later by spread, jitter, or a blackout that deferred it."""
    lateness: float
    """How many seconds after `scheduled` the run was made."""
    attempt: int
    """1, and one more each time that it is tried again."""
    previous: datetime | None
    """The nominal instant of the run before this one."""
    fence: int
    """Larger than that of every earlier run. Pass it on with writes. 0 if it is `unlocked`."""
    unlocked: bool = False
    """Whether it runs without the store, which did not answer: other replicas may run it too."""


def timer_name(fn: Callable[..., Any], name: str | None) -> str:
    """Return the name of a timer or schedule: the function's own unless it has another."""
    name = check_name(getattr(fn, "__name__", None) if name is None else name, "timer name")
    if name == "<lambda>":
        msg = "a lambda has no name that stays the same; give name=."
        raise ConfigError(msg)
    if name == EVERYTHING:
        msg = f"the name {name!r} stands for all timers; use another one."
        raise ConfigError(msg)
    return name


def make_plan(
    kind: Literal["timer", "schedule"],
    name: str,
    declared: ScheduleOptions | TimerOptions,
    run: RunOptions,
    *,
    now: int,
) -> Plan:
    """Return what the ticker follows; raise ConfigError for what cannot work from `now` on."""
    options: TimerOptions = {**TIMER_DEFAULTS, **declared}
    rule = make_rule(every=options["every"], cron=options["cron"], tz=options["tz"])
    _check_choices(options)
    _check_rest(options, rule)
    blackouts = check_blackouts(options["blackout"], rule, now=now)
    definition = Definition(
        kind=kind,
        rule=rule,
        run=_with_retention(kind, run, options, rule),
        each=options["each"],
        limit=_at_least_one(options["limit"], "limit"),
        per_replica=_at_least_one(options["per_replica"], "per_replica"),
        overlap=_overlap(options),
        catch_up=options["catch_up"],
        within=_optional_seconds(options["within"], "within"),
        offset=_offset(name, options, rule, now),
        blackouts=blackouts,
        jitter=_optional_seconds(options["jitter"], "jitter") or 0.0,
        rests=options["after"] == "completion",
        on_unavailable=options["on_unavailable"],
    )
    return Plan(name=name, definition=definition, renamed_from=_former_names(options, name))


def _with_retention(
    kind: Literal["timer", "schedule"],
    run: RunOptions,
    options: TimerOptions,
    rule: Rule,
) -> RunOptions:
    """Return what runs are, with how long they are kept.

    Runs of a timer have its `retention`. The jobs of a schedule have that of their task.
    """
    kept = Kept(run.retention, run.retention_failed)
    if kind == "timer":
        kept = parse_retention(options["retention"], kept_runs(_period(rule, ticks=20)))
    if options["after"] is not None:
        # The pause counts from the end of the last run: a store that has removed that run would
        # start the next one at once.
        kept = kept_at_least(kept, _period(rule, ticks=20))
    return replace(run, retention=kept.succeeded, retention_failed=kept.failed)


def _period(rule: Rule, ticks: int) -> float:
    # Of the rule alone: replicas that start on different days must agree.
    return shortest_distance(rule, _A_DAY, ticks=ticks) / 1e6


def _check_choices(options: TimerOptions) -> None:
    choices = (
        ("each", options["each"], get_args(Each)),
        ("overlap", options["overlap"], (None, *get_args(Overlap))),
        ("catch_up", options["catch_up"], get_args(CatchUp)),
        ("after", options["after"], (None, *get_args(After))),
        ("on_unavailable", options["on_unavailable"], (None, *get_args(OnUnavailable))),
    )
    for name, value, allowed in choices:
        if value not in allowed:
            words = ", ".join(repr(choice) for choice in allowed if choice is not None)
            msg = f"{name} must be one of {words}, not {value!r}."
            raise ConfigError(msg)


def _check_rest(options: TimerOptions, rule: Rule) -> None:
    if options["after"] is None:
        return
    if not isinstance(rule, Every) or options["each"] != "cluster":
        msg = "after='completion' goes with every= and each='cluster': it is a pause after a run."
        raise ConfigError(msg)
    if options["spread"] or options["blackout"] or options["limit"] is not None:
        msg = "after='completion' has no fixed instants: leave out spread, blackout and limit."
        raise ConfigError(msg)
    if options["on_unavailable"] == "run":
        msg = (
            "after='completion' asks the store when the last run has ended: leave out "
            "on_unavailable='run'."
        )
        raise ConfigError(msg)


def _overlap(options: TimerOptions) -> Overlap:
    if options["overlap"] is not None:
        return options["overlap"]
    # A limit over all replicas says by itself how many runs there may be.
    return "allow" if options["limit"] is not None and options["each"] == "cluster" else "skip"


def _offset(name: str, options: TimerOptions, rule: Rule, now: int) -> int:
    if options["spread"] is False:
        return 0
    if options["spread"] is True:
        return spread_offset(name, _period(rule, ticks=500))
    return spread_offset(name, check_spread(options["spread"], rule, now=now))


def _former_names(options: TimerOptions, name: str) -> tuple[str, ...]:
    option = options["renamed_from"] or ()
    names = (option,) if isinstance(option, str) else tuple(option)
    for former in names:
        if check_name(former, "renamed_from") == name:
            msg = f"renamed_from names {name!r} itself; give the name that it had before."
            raise ConfigError(msg)
    return names


def _at_least_one(number: int | None, what: str) -> int | None:
    if number is not None and (type(number) is not int or number < 1):
        msg = f"{what} must be a whole number of at least 1, not {number!r}."
        raise ConfigError(msg)
    return number


def _optional_seconds(length: Duration | None, what: str) -> float | None:
    return None if length is None else seconds(length, what, maximum=TTL_MAX)


class _Retries:
    """A timer's run begins at its time, and again after an error while the next tick is far."""

    def __init__(self, definition: Definition, retry: Backoff) -> None:
        self._definition = definition
        self._retry = retry

    def before(self, record: JobRecord) -> float:
        scheduled = _arguments(record).scheduled
        # A run that comes back after a crash, or late, does not wait once more.
        return max(0.0, (scheduled - record.started) / 1e6) if record.attempt == 1 else 0.0

    def after_failure(
        self, record: JobRecord, tries: int, seconds: float, requested: float | None
    ) -> float | None:
        if not self._retry.allows(tries):
            return None
        # Not random: only the next tick could be in the way.
        pause = self._retry.delay(tries, 1.0) if requested is None else requested
        if record.timeout is not None and seconds + pause >= record.timeout:
            return None
        following = self._definition.rule.next_after(_arguments(record).nominal)
        ends = record.started + (seconds + pause) * 1e6
        is_over = following is not None and ends >= following + self._definition.offset
        return None if is_over and not self._definition.rests else pause


def _arguments(record: JobRecord) -> TickArguments:
    return msgspec.json.decode(record.payload, type=TickArguments)


def run_options(
    name: str,
    *,
    timeout: Duration | None,
    on_crash: OnCrash,
) -> RunOptions:
    """Return what a timer's runs are."""
    if on_crash not in get_args(OnCrash):
        msg = f"on_crash must be 'record' or 'rerun', not {on_crash!r}."
        raise ConfigError(msg)
    limit = None
    if timeout is not None:
        limit = seconds(timeout, "timeout", minimum=0.001, maximum=TTL_MAX)
    return RunOptions(
        task=f"{TASK_PREFIX}{name}",
        queue=TIMERS_QUEUE,
        timeout=limit,
        options=write_options(rerun=on_crash == "rerun"),
    )


def make_timer_handlers(
    fn: Callable[..., Any], plan: Plan, retry: RetryOption, expected: Duration | None = None
) -> dict[str, Handler]:
    """Return what a worker needs to run `fn` at the ticks of a plan, by task.

    Runs that were made under a former name, and wait, are its own as well. A run may take as long
    as its time limit, unless `expected` says less or more.
    """
    run = _with_tick(fn, plan.name)
    usual = plan.definition.run.timeout
    if expected is not None:
        usual = seconds(expected, "expected", minimum=0.001, maximum=TTL_MAX)
    return {
        name: Handler(
            name=name,
            function=run,
            is_async=is_async(fn),
            signature=Signature(run, plan.name),
            retry=Backoff(max_attempts=1),
            pacing=_Retries(plan.definition, parse_retry(retry, _PAUSES)),
            expected=usual,
        )
        for name in plan.own_tasks
    }


def _with_tick(fn: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a function of a tick's arguments that calls `fn` with the tick, or with nothing."""
    takes_tick = _takes_tick(fn, name)

    def call(arguments: TickArguments) -> Any:
        return fn(_tick(name, arguments)) if takes_tick else fn()

    async def run_async(nominal: int, scheduled: int, previous: int = 0) -> Any:
        return await call(TickArguments(nominal=nominal, scheduled=scheduled, previous=previous))

    def run_sync(nominal: int, scheduled: int, previous: int = 0) -> Any:
        return call(TickArguments(nominal=nominal, scheduled=scheduled, previous=previous))

    run = run_async if is_async(fn) else run_sync
    run.__doc__, run.__name__ = fn.__doc__, name
    return run


def _takes_tick(fn: Callable[..., Any], name: str) -> bool:
    signature = inspect.signature(fn)
    required = [item for item in signature.parameters.values() if item.default is item.empty]
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if len(required) > 1 or any(item.kind not in positional for item in required):
        msg = f"the handler of timer {name!r} takes a tick, or nothing, not {signature}."
        raise ConfigError(msg)
    return bool(required)


def _tick(name: str, arguments: TickArguments) -> Tick:
    began = unlocked_since.get(None)
    job = current.get() if began is None else None
    started = as_datetime(began or 0) if job is None else job.started
    return Tick(
        name=name,
        nominal=as_datetime(arguments.nominal),
        scheduled=as_datetime(arguments.scheduled),
        lateness=max(0.0, (started - as_datetime(arguments.scheduled)).total_seconds()),
        attempt=1 if job is None else runs_of(job.record) + job.tries - 1,
        previous=as_datetime(arguments.previous) if arguments.previous else None,
        fence=0 if job is None else job.fence,
        unlocked=job is None,
    )
