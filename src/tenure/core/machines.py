"""Decides whether another machine still uses a file, from the traces that machines leave in it.

For stores whose time is the boot clock of a machine (SQLite). Its instants mean nothing on another
machine, so only one machine at a time may use such a store. Each machine that writes leaves a
trace. `judge` interprets the trace of another machine:

- A trace from before this machine was started is that of an earlier start, or came with a copy
  of the file: that machine is gone.
- A machine without a new trace for SILENCE is considered gone. A worker leaves one every few
  seconds, and so does a program that holds a lock with a ttl of 100 s or less.
- If the wall clocks do not settle it, since one of them may be wrong, this machine watches the
trace
  for SILENCE by its own boot clock.

A machine is a boot clock here: containers on one kernel are one machine, unless they have boot ids
or time namespaces of their own.

Wall clocks come first, so that a restart costs no time. The price: if the clock of a second machine
is ahead by more than SILENCE, or if it was started seconds ago, it may consider the first machine
gone. The store then rejects the first machine with an error that says why.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

from tenure.core.clock import Clock
from tenure.core.durations import micros

__all__ = ["SILENCE", "Now", "Trace", "Verdict", "Watch", "judge"]

SILENCE: Final = 30_000_000
"""Microseconds without a trace after which a machine is considered gone."""

Verdict: TypeAlias = Literal["gone", "doubtful", "there"]


class Trace(NamedTuple):
    """The last trace of a machine. Instants are microseconds of its own clocks."""

    id: str
    """Its boot clock, as `Clock.boot_id` names it."""
    host: str
    wall: int
    boot: int
    turn: int
    """Increases with each trace."""


class Watch(NamedTuple):
    """What this machine has seen of another machine's traces before."""

    turn: int
    since: int
    """When this trace was first seen, in microseconds of this machine's boot clock."""
    was_there: bool
    """Whether an earlier trace was seen shortly before, so that the machine was active."""


class Now(NamedTuple):
    """An instant on the clocks of this machine."""

    id: str
    wall: int
    boot: int

    @classmethod
    def on(cls, clock: Clock) -> Now:
        return cls(clock.boot_id, clock.wall(), micros(clock.boot()))


def judge(trace: Trace, watch: Watch | None, now: Now) -> Verdict:
    """Return whether the machine that left a trace is gone, there, or doubtful."""
    watched = -1 if watch is None else now.boot - watch.since
    if watch is not None and watched >= 0:  # below 0: the boot clock has restarted since
        if watch.turn != trace.turn and watched < 2 * SILENCE:
            return "there"
        if watch.turn == trace.turn and watched >= SILENCE:
            return "gone"
        if watch.turn == trace.turn and watch.was_there:
            return "there"
    # Two boot clocks on one kernel belong to containers, without a restart between them.
    is_restart = not now.id or _kernel(trace.id) != _kernel(now.id)
    started = now.wall - now.boot
    if (is_restart and trace.wall < started) or trace.wall + SILENCE <= now.wall:
        return "gone"
    return "doubtful"


def _kernel(id_: str) -> str:
    return id_.partition("+")[0]
