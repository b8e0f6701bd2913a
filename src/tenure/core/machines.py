"""Whether a machine that has used a file is still at work, judged from the traces it left.

For stores whose time is the boot clock of a machine: its instants mean nothing on another machine,
so only one machine at a time may use such a store. Each machine that writes leaves a trace, and
`judge` says what a trace of another machine tells:

- A trace from before this machine was started is that of an earlier start, or came with a copy
  of the file.
- A machine that has left no trace for SILENCE is taken to be gone. A worker leaves one every few
  seconds, and so does a program that holds a lock with a ttl of 100 s or less.
- If wall clocks do not settle it, since one of them may be wrong, this machine watches the trace
  for as long by its own boot clock.

A machine is a boot clock here: containers on one kernel are one machine, unless they have boot
ids or time namespaces of their own.

Wall clocks are asked first, so that a restart costs no time. The price: if the clock of a second
machine is ahead by more than SILENCE, or if it was started seconds ago, it may take the first
machine to be gone. The first machine is then refused, and learns why.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

from tenure.core.clock import Clock
from tenure.core.durations import micros

__all__ = ["SILENCE", "Now", "Trace", "Verdict", "Watch", "judge"]

SILENCE: Final = 30_000_000
"""Microseconds without a trace after which a machine is taken to be gone."""

Verdict: TypeAlias = Literal["gone", "doubtful", "there"]


class Trace(NamedTuple):
    """The last sign of a machine. Instants are microseconds of its own clocks."""

    id: str
    """Its boot clock, as `Clock.boot_id` names it."""
    host: str
    wall: int
    boot: int
    turn: int
    """Larger with each trace."""


class Watch(NamedTuple):
    """What this machine has seen of another one's traces before."""

    turn: int
    since: int
    """When this one was first seen, in microseconds of this machine's boot clock."""
    was_there: bool
    """Whether another trace was seen shortly before: then the machine was at work."""


class Now(NamedTuple):
    """An instant on the clocks of this machine."""

    id: str
    wall: int
    boot: int

    @classmethod
    def on(cls, clock: Clock) -> Now:
        return cls(clock.boot_id, clock.wall(), micros(clock.boot()))


def judge(trace: Trace, watch: Watch | None, now: Now) -> Verdict:
    """Return what a trace tells about the machine that left it."""
    watched = -1 if watch is None else now.boot - watch.since
    if watch is not None and watched >= 0:  # below: by a clock that has begun anew since
        if watch.turn != trace.turn and watched < 2 * SILENCE:
            return "there"
        if watch.turn == trace.turn and watched >= SILENCE:
            return "gone"
        if watch.turn == trace.turn and watch.was_there:
            return "there"
    # Two clocks on one kernel are those of containers: no restart lies between them.
    is_restart = not now.id or _kernel(trace.id) != _kernel(now.id)
    started = now.wall - now.boot
    if (is_restart and trace.wall < started) or trace.wall + SILENCE <= now.wall:
        return "gone"
    return "doubtful"


def _kernel(id_: str) -> str:
    return id_.partition("+")[0]
