"""The options of `app.timer` and `app.schedule`: their types and defaults, each written once.

Nothing heavy is imported here: `import tenure` needs this module, but no calendar.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypedDict

from tenure.core.durations import Duration

if TYPE_CHECKING:
    from tenure.core.calendar.blackouts import Blackout
    from tenure.core.jobs.retention import RetentionOption
    from tenure.core.jobs.retry_policy import RetryOption
    from tenure.core.schedules.definition import CatchUp, Each, OnUnavailable, Overlap

__all__ = [
    "SCHEDULE_DEFAULTS",
    "TIMER_DEFAULTS",
    "After",
    "OnCrash",
    "ScheduleOptions",
    "TimerOptions",
]

OnCrash: TypeAlias = Literal["record", "rerun"]
After: TypeAlias = Literal["completion"]


class ScheduleOptions(TypedDict, total=False):
    """When a timer or a schedule ticks.

    Options:
        every: a period such as "60s"; ticks come at its multiples since 1970.
        cron: or five fields (six with seconds first), or "@daily" and the like.
        tz: the zone in which `cron` is read ("UTC").
        name: its name in the store; the function's or the task's own by default.
        limit: the most unfinished runs over all replicas.
        overlap: if a run is unfinished at the next tick: "skip" that one (the default, unless
            there is a limit), "allow" both, "queue_one" after it, or "cancel_previous".
        catch_up: which missed ticks run: the "latest" (the default), "none" or "all" (of the last
            ten).
        within: how late a tick may run at all.
        spread: delays all its ticks by the same time, which is derived from its name: up to this
            long; True: up to its period.
        blackout: when it must not run; see `tenure.blackout`.
        after: "completion": `every` counts from the end of the last run.
        renamed_from: its former name or names.
    """

    every: Duration | None
    cron: str | None
    tz: str
    name: str | None
    limit: int | None
    overlap: Overlap | None
    catch_up: CatchUp
    within: Duration | None
    spread: bool | Duration
    blackout: Sequence[Blackout]
    after: After | None
    renamed_from: str | Sequence[str] | None


class TimerOptions(ScheduleOptions, total=False):
    """The options of a timer's runs, beside the options of a schedule.

    Options:
        each: "cluster" (the default): one replica runs a tick. "replica": every replica has its own
            ticks.
        per_replica: the most unfinished runs on one replica.
        timeout: how long a run may take before it is cancelled and has failed.
        expected: how long a run usually takes; `timeout` by default. A run that takes 1.5 times as
            long is reported once, by the event `TimerRunsLong` and a warning. Nothing stops it.
        retention: how long finished runs are kept, or a `Retention` by outcome; by default an hour
            or 100 periods, whichever is longer.
        retry: how often a run is retried after an error, or a `Backoff`; only until the next tick
            is due (0).
        jitter: delays each run by a random time of up to this long.
        on_crash: for a run that is lost with its replica: "record" the loss (the default), or
            "rerun" it.
        on_unavailable: what a tick does while the store is down: "wait" for it, or "run" on every
            replica, without a job, fence or limit (`tick.unlocked`). By default it waits; with
            `each="replica"` and without a limit it runs.
    """

    each: Each
    per_replica: int | None
    timeout: Duration | None
    expected: Duration | None
    retention: RetentionOption | None
    retry: RetryOption
    jitter: Duration | None
    on_crash: OnCrash
    on_unavailable: OnUnavailable | None


SCHEDULE_DEFAULTS: Final[ScheduleOptions] = {
    "every": None,
    "cron": None,
    "tz": "UTC",
    "name": None,
    "limit": None,
    "overlap": None,
    "catch_up": "latest",
    "within": None,
    "spread": False,
    "blackout": (),
    "after": None,
    "renamed_from": None,
}
TIMER_DEFAULTS: Final[TimerOptions] = {
    **SCHEDULE_DEFAULTS,
    "each": "cluster",
    "per_replica": None,
    "timeout": None,
    "expected": None,
    "retention": None,
    "retry": 0,
    "jitter": None,
    "on_crash": "record",
    "on_unavailable": None,
}
