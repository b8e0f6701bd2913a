"""Timers and schedules: what stores keep of them (`records`), and the rules that decide.

`definition` is what users declare, `documents` how it is stored. `steps` decides which tick is due,
`registration` which definition rules, `ticks` whether a tick runs, `pauses` how ticks are paused.
Pure: `runtime.timers.scheduling` loads what these need, and commits what they return.
"""
