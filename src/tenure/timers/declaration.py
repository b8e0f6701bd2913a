"""Timers and schedules as users declare them, and the tick that a handler gets."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tenure.core.calendar.blackouts import Blackout, check_blackouts
from tenure.core.calendar.rules import Every, Rule, make_rule, shortest_distance
from tenure.core.calendar.spreads import check_spread, spread_offset
from tenure.core.callables import is_async
from tenure.core.durations import Duration, seconds
from tenure.core.jobs.options import write_options
from tenure.core.jobs.records import JobRecord
from tenure.core.jobs.retention import (
    Kept,
    RetentionOption,
    kept_at_least,
    kept_runs,
    parse_retention,
)
from tenure.core.jobs.run_numbers import runs_of
from tenure.core.jobs.view import as_datetime
from tenure.core.leases import check_name
from tenure.core.policy import TTL_MAX, Backoff, RetryOption, parse_retry
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
from tenure.core.schedules.records import TIMERS_QUEUE
from tenure.core.values.signature import Signature
from tenure.errors import ConfigError
from tenure.runtime.attempts.handler import Handler
from tenure.runtime.attempts.running_job import current
from tenure.runtime.attempts.unlocked_runs import unlocked_since

__all__ = [
    "After",
    "OnCrash",
    "Options",
    "Tick",
    "make_plan",
    "make_timer_handlers",
    "run_options",
    "timer_name",
]

OnCrash: TypeAlias = Literal["record", "rerun"]
After: TypeAlias = Literal["completion"]

_A_DAY: Final = 1_704_067_200_000_000  # the first of 2024
# A run ends with the next tick, so its pauses stay short.
_PAUSES: Final = Backoff(cap=60)


class Tick(Struct, frozen=True, kw_only=True):
    """What a timer's handler may know of the tick that it runs for."""

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


class Options(Struct, frozen=True, kw_only=True):
    """How a timer or schedule ticks, as it was asked for. See `app.timer`."""

    every: Duration | None = None
    cron: str | None = None
    tz: str = "UTC"
    each: Each = "cluster"
    limit: int | None = None
    per_replica: int | None = None
    overlap: Overlap | None = None
    catch_up: CatchUp = "latest"
    within: Duration | None = None
    spread: bool | Duration = False
    jitter: Duration | None = None
    blackout: Sequence[Blackout] = ()
    after: After | None = None
    on_unavailable: OnUnavailable | None = None
    renamed_from: str | Sequence[str] | None = None


def timer_name(fn: Callable[..., Any], name: str | None) -> str:
    """Return the name of a timer or schedule; the function's own unless another is given."""
    given = check_name(getattr(fn, "__name__", None) if name is None else name, "timer name")
    if given == "<lambda>":
        msg = "a lambda has no name that stays the same; give name=."
        raise ConfigError(msg)
    if given == EVERYTHING:
        msg = f"the name {given!r} stands for all timers; use another one."
        raise ConfigError(msg)
    return given


def make_plan(
    kind: Literal["timer", "schedule"],
    name: str,
    options: Options,
    run: RunOptions,
    *,
    now: int,
    retention: RetentionOption | None = None,
) -> Plan:
    """Return what the ticker goes by; raise ConfigError for what cannot work from `now` on.

    `retention` is for the runs of a timer. The jobs of a schedule have that of their task.
    """
    rule = make_rule(every=options.every, cron=options.cron, tz=options.tz)
    _check_choices(options)
    _check_rest(options, rule)
    blackouts = check_blackouts(options.blackout, rule, now=now)
    definition = Definition(
        kind=kind,
        rule=rule,
        run=_with_retention(kind, run, options, rule, retention),
        each=options.each,
        limit=_at_least_one(options.limit, "limit"),
        per_replica=_at_least_one(options.per_replica, "per_replica"),
        overlap=_overlap(options),
        catch_up=options.catch_up,
        within=_optional_seconds(options.within, "within"),
        offset=_offset(name, options, rule, now),
        blackouts=blackouts,
        jitter=_optional_seconds(options.jitter, "jitter") or 0.0,
        rests=options.after == "completion",
        on_unavailable=options.on_unavailable,
    )
    return Plan(name=name, definition=definition, renamed_from=_former_names(options, name))


def _with_retention(
    kind: Literal["timer", "schedule"],
    run: RunOptions,
    options: Options,
    rule: Rule,
    retention: RetentionOption | None,
) -> RunOptions:
    """Return what runs are, with how long they are kept."""
    kept = Kept(run.retention, run.retention_failed)
    if kind == "timer":
        kept = parse_retention(retention, kept_runs(_period(rule, ticks=20)))
    if options.after is not None:
        # The pause counts from the end of the last run: a store that has removed that run would
        # start the next one at once.
        kept = kept_at_least(kept, _period(rule, ticks=20))
    return replace(run, retention=kept.succeeded, retention_failed=kept.failed)


def _period(rule: Rule, ticks: int) -> float:
    # Of the rule alone: replicas that start on different days must agree.
    return shortest_distance(rule, _A_DAY, ticks=ticks) / 1e6


def _check_choices(options: Options) -> None:
    choices = (
        ("each", options.each, get_args(Each)),
        ("overlap", options.overlap, (None, *get_args(Overlap))),
        ("catch_up", options.catch_up, get_args(CatchUp)),
        ("after", options.after, (None, *get_args(After))),
        ("on_unavailable", options.on_unavailable, (None, *get_args(OnUnavailable))),
    )
    for what, given, allowed in choices:
        if given not in allowed:
            named = ", ".join(repr(one) for one in allowed if one is not None)
            msg = f"{what} must be one of {named}, not {given!r}."
            raise ConfigError(msg)


def _check_rest(options: Options, rule: Rule) -> None:
    if options.after is None:
        return
    if not isinstance(rule, Every) or options.each != "cluster":
        msg = "after='completion' goes with every= and each='cluster': it is a pause after a run."
        raise ConfigError(msg)
    if options.spread or options.blackout or options.limit is not None:
        msg = "after='completion' has no fixed instants: leave out spread, blackout and limit."
        raise ConfigError(msg)
    if options.on_unavailable == "run":
        msg = (
            "after='completion' asks the store when the last run has ended: leave out "
            "on_unavailable='run'."
        )
        raise ConfigError(msg)


def _overlap(options: Options) -> Overlap:
    if options.overlap is not None:
        return options.overlap
    # A limit over all replicas says by itself how many runs there may be.
    return "allow" if options.limit is not None and options.each == "cluster" else "skip"


def _offset(name: str, options: Options, rule: Rule, now: int) -> int:
    if options.spread is False:
        return 0
    if options.spread is True:
        return spread_offset(name, _period(rule, ticks=500))
    return spread_offset(name, check_spread(options.spread, rule, now=now))


def _former_names(options: Options, name: str) -> tuple[str, ...]:
    given = options.renamed_from or ()
    names = (given,) if isinstance(given, str) else tuple(given)
    for one in names:
        if check_name(one, "renamed_from") == name:
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
        told = _arguments(record)
        # A run that comes back after a crash, or late, does not wait once more.
        return max(0.0, (told.scheduled - record.started) / 1e6) if record.attempt == 1 else 0.0

    def after_failure(
        self, record: JobRecord, tries: int, seconds: float, requested: float | None
    ) -> float | None:
        if not self._retry.allows(tries):
            return None
        # Not random: the only one who could be in the way is the next tick.
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
    fn: Callable[..., Any], plan: Plan, retry: RetryOption
) -> dict[str, Handler]:
    """Return what a worker needs to run `fn` at the ticks of a plan, by task.

    Runs that were made under a former name, and wait, are its own as well.
    """
    run = _with_tick(fn, plan.name)
    return {
        name: Handler(
            name=name,
            function=run,
            is_async=is_async(fn),
            signature=Signature(run, plan.name),
            retry=Backoff(max_attempts=1),
            pacing=_Retries(plan.definition, parse_retry(retry, _PAUSES)),
        )
        for name in plan.own_tasks
    }


def _with_tick(fn: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a function of a tick's arguments that calls `fn` with the tick, or with nothing."""
    takes_tick = _takes_tick(fn, name)

    def call(arguments: TickArguments) -> Any:
        return fn(_tick(name, arguments)) if takes_tick else fn()

    async def run_async(nominal: int, scheduled: int, previous: int = 0) -> Any:
        told = TickArguments(nominal=nominal, scheduled=scheduled, previous=previous)
        return await call(told)

    def run_sync(nominal: int, scheduled: int, previous: int = 0) -> Any:
        return call(TickArguments(nominal=nominal, scheduled=scheduled, previous=previous))

    run = run_async if is_async(fn) else run_sync
    run.__doc__, run.__name__ = fn.__doc__, name
    return run


def _takes_tick(fn: Callable[..., Any], name: str) -> bool:
    signature = inspect.signature(fn)
    needed = [one for one in signature.parameters.values() if one.default is one.empty]
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if len(needed) > 1 or any(one.kind not in positional for one in needed):
        msg = f"the handler of timer {name!r} takes a tick, or nothing, not {signature}."
        raise ConfigError(msg)
    return bool(needed)


def _tick(name: str, told: TickArguments) -> Tick:
    began = unlocked_since.get(None)
    job = current.get() if began is None else None
    started = as_datetime(began or 0) if job is None else job.started
    return Tick(
        name=name,
        nominal=as_datetime(told.nominal),
        scheduled=as_datetime(told.scheduled),
        lateness=max(0.0, (started - as_datetime(told.scheduled)).total_seconds()),
        attempt=1 if job is None else runs_of(job.record) + job.tries - 1,
        previous=as_datetime(told.previous) if told.previous else None,
        fence=0 if job is None else job.fence,
        unlocked=job is None,
    )
