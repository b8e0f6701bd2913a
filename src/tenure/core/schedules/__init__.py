"""Timers and schedules: what stores keep of them (`records`), and the rules that decide.

`definition` is what users declare. `ticking` says which tick is due, `planting` which definition
rules, `advancing` what a tick may do, `freezing` how ticks are paused. All of it is pure.
"""
