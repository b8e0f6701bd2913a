"""Checks how timers and schedules are declared, and advises on the right form.

`Tenure.timer` and `Tenure.schedule` ask for `advice_on` arguments that do not fit them. The checks
are for declarations that fit, but clash with a task or with another timer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from tenure.core.schedules.definition import Plan
from tenure.errors import ConfigError

__all__ = ["advice_on", "check_alone", "check_not_timed", "check_untasked"]

_RIGHT_FORM: Final = "@app.timer(every='60s') or @app.timer(cron='30 2 * * *')"
_CRON_FIELDS_MIN: Final = 5

_MEANT: Final = {
    **dict.fromkeys(("time_limit", "max_runtime", "max_run_time"), "timeout"),
    **dict.fromkeys(("interval", "period", "seconds", "minutes", "hours", "delay"), "every"),
    **dict.fromkeys(("crontab", "expression"), "cron"),
    **dict.fromkeys(("timezone", "zone"), "tz"),
    **dict.fromkeys(("retries", "max_retries"), "retry"),
    **dict.fromkeys(("max_instances", "concurrency", "max_concurrency"), "limit"),
    **dict.fromkeys(("misfire_grace_time", "grace"), "within"),
    **dict.fromkeys(("coalesce", "catchup", "misfire"), "catch_up"),
    **dict.fromkeys(("id", "key"), "name"),
}
"""Words of other libraries, and of other calls here."""
_OF_THE_JOB: Final = ("queue", "priority", "timeout", "retry", "retention", "tags")
_OF_THE_TASK: Final = ("executor",)
_OF_TIMERS: Final = ("each", "per_replica", "jitter", "on_crash")


def advice_on(
    call: str,
    names: Collection[str],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    error: TypeError,
) -> str:
    """Return what is wrong with the arguments of a declaration, and how to write it.

    Args:
        call: "timer" or "schedule".
        names: the options of that call.
        args: the positional arguments.
        kwargs: the others.
        error: why they do not fit the signature.
    """
    for name in kwargs:
        if name not in (*names, "task", "self"):
            return f"{call} has no option {name!r}. {_advice_on_option(call, name, names)}"
    if call != "timer" or not args:
        return f"{call}: {error}. Write app.schedule(task, every='60s'), with a task of this app."
    [first, *_] = args
    if hasattr(first, "request"):
        return _advice_on_task(first)
    if callable(first):
        name = getattr(first, "__name__", "the function")
        return f"timer {name!r} has no rule: write {_RIGHT_FORM} above it."
    return f"timer takes its rule by name: {_named(first)}, not {first!r} alone."


def _advice_on_option(call: str, name: str, names: Collection[str]) -> str:
    if call == "schedule" and name in _OF_THE_JOB:
        return f"It is the job's: app.schedule(task.using({name}=...), ...)."
    if call == "schedule" and name in _OF_THE_TASK:
        return f"It is the task's: @app.task({name}=...)."
    if call == "schedule" and name in _OF_TIMERS:
        return "It is about runs, and a schedule only enqueues jobs: @app.timer has it."
    meant = _MEANT.get(name) or next(iter(get_close_matches(name, names, n=1)), None)
    return f"Did you mean {meant!r}?" if meant in names else f"There are {', '.join(names)}."


def _named(rule: object) -> str:
    is_cron = isinstance(rule, str) and (rule[:1] == "@" or len(rule.split()) >= _CRON_FIELDS_MIN)
    return f"@app.timer({'cron' if is_cron else 'every'}={rule!r})"


def _advice_on_task(task: Any) -> str:
    """Return what to do instead of having a timer call a task."""
    name = getattr(task, "__name__", "task")
    return (
        f"{name!r} is a task, and a timer runs a function. For a durable job at certain times "
        f"keep @app.task and write app.schedule({name}, every=...) below it; for a function that "
        "is run at once leave out @app.task."
    )


def check_untasked(fn: object) -> None:
    """Raise ConfigError if what a timer is to call is a task."""
    if hasattr(fn, "request"):
        raise ConfigError(_advice_on_task(fn))


def check_not_timed(fn: object, timed: Iterable[object]) -> None:
    """Raise ConfigError if what is to be a task is a timer's function."""
    if any(function is fn for function in timed):
        name = getattr(fn, "__name__", "task")
        msg = (
            f"{name!r} is a timer, so it is no task. For a durable job at certain times leave out "
            f"@app.timer and write app.schedule({name}, every=...) below the task."
        )
        raise ConfigError(msg)


def check_alone(plan: Plan, plans: Mapping[str, Plan]) -> None:
    """Raise ConfigError if a name, or a former name, is that of another timer of the app."""
    if plan.name in plans:
        msg = f"there is a timer or schedule {plan.name!r} already. Give this one another name."
        raise ConfigError(msg)
    for former in plan.renamed_from:
        other = next((name for name, item in plans.items() if former in item.renamed_from), None)
        if other is not None:
            msg = (
                f"{plan.name!r} and {other!r} both say renamed_from={former!r}, but only one of "
                "them can go on where it was. Leave it out of the other one."
            )
            raise ConfigError(msg)
    for newer, former in (
        *((plan, name) for name in plan.renamed_from if name in plans),
        *((other, plan.name) for other in plans.values() if plan.name in other.renamed_from),
    ):
        msg = (
            f"{newer.name!r} says renamed_from={former!r}, but there is a {former!r} in this app "
            "as well, which would never run. Give that one another name, or leave out "
            "renamed_from."
        )
        raise ConfigError(msg)
