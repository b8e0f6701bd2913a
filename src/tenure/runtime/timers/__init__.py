"""Ticks of timers and schedules: when they are due, and who runs them."""
