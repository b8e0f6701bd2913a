"""Timers and schedules: how they are declared, and the handles that operators get."""

from __future__ import annotations

from tenure.timers.declaring import (
    After,
    OnCrash,
    Options,
    Tick,
    make_plan,
    make_timer_handler,
    run_options,
    timer_name,
)
from tenure.timers.handles import (
    Pause,
    TickRecord,
    TimerHandle,
    TimerInfo,
    Timers,
    freeze,
)

__all__ = [
    "After",
    "OnCrash",
    "Options",
    "Pause",
    "Tick",
    "TickRecord",
    "TimerHandle",
    "TimerInfo",
    "Timers",
    "freeze",
    "make_plan",
    "make_timer_handler",
    "run_options",
    "timer_name",
]
