"""Ticks of timers and schedules: when they are due, and which replica runs them.

Every worker has a `ticker`, and there is no leader. Tickers compete for each tick by committing it
to the store (`scheduling`), which accepts one commit. `core.schedules` has the rules.
"""
