"""Timers and schedules: how they are declared, and the handles that operators get."""

from __future__ import annotations

from tenure.timers.advice import check_alone, check_not_timed, check_untasked
from tenure.timers.declaration import (
    Tick,
    make_plan,
    make_timer_handlers,
    run_options,
    timer_name,
)
from tenure.timers.ended_runs import EndedRuns
from tenure.timers.facts import read_facts
from tenure.timers.info import TickRecord, TimerInfo, TimerPause, TimerView, TimerViews
from tenure.timers.timer import TimerHandle, Timers

__all__ = [
    "EndedRuns",
    "Tick",
    "TickRecord",
    "TimerHandle",
    "TimerInfo",
    "TimerPause",
    "TimerView",
    "TimerViews",
    "Timers",
    "check_alone",
    "check_not_timed",
    "check_untasked",
    "make_plan",
    "make_timer_handlers",
    "read_facts",
    "run_options",
    "timer_name",
]
