"""Checks that whoever has lost something is told, in time, and nobody else is."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from tenure.testing.sim.history import Entry

__all__ = ["check_bounds", "check_fair", "check_told_in_time", "check_told_of_stale_ends"]

# A block is cancelled when its trust ends, by the same clock; what it does meanwhile takes no time.
_AT_ONCE = 0.05
# What is refused is heard, or asked again, within this time: a call that nobody answers is given up
# after 5 s, which is also how long a worker that leaves waits for its last one.
_HEARD = 5.5


def check_told_in_time(history: Sequence[Entry]) -> list[str]:
    """Return blocks that had to look to see a loss, and handlers that ran on after a take-over.

    Only a process that was paused may be told late.
    """
    pauses = [
        (f"m{one.number}.", one.at, one.at + one.seconds)
        for one in history
        if one.by == "world" and one.what == "pause"
    ]
    wrong: list[str] = []
    taken: dict[tuple[str, str], float] = {}
    for entry in history:
        if entry.what == "sees a loss" and entry.ok and entry.seconds > _AT_ONCE:
            since = entry.at - entry.seconds * 1.01
            if not _was_paused(pauses, entry.by, since, entry.at):
                wrong.append(f"{entry.at} s, {entry.by}: not told of a loss {entry.seconds} s ago")
        elif entry.what == "event" and entry.detail == "ReplicaLost":
            taken.update({(entry.by, job): entry.at for job in entry.ids})
        elif entry.what == "began":
            taken.pop((entry.by, entry.job), None)
        elif entry.what in ("finished", "failed") and (entry.by, entry.job) in taken:
            at = taken[entry.by, entry.job]
            if entry.at > at + _AT_ONCE and not _was_paused(pauses, entry.by, at, entry.at):
                wrong.append(f"{entry.at} s, {entry.by}: {entry.job} ran on after its take-over")
    return wrong


def _was_paused(
    pauses: Iterable[tuple[str, float, float]], process: str, since: float, until: float
) -> bool:
    return any(
        process.startswith(machine) and begin <= until and end >= since
        for machine, begin, end in pauses
    )


def check_told_of_stale_ends(history: Sequence[Entry]) -> list[str]:
    """Return attempts whose end was refused by the store, and whose worker did not say so."""
    settled: set[tuple[str, int]] = set()
    refused: dict[tuple[str, int], float] = {}
    told: set[tuple[str, str, int]] = set()
    gone: dict[str, float] = {}
    for one in history:
        match one.what:
            case "settled" if one.answer == "lost":
                refused[one.job, one.fence] = one.at
            case "settled":
                settled.add((one.job, one.fence))
            case "event" if one.detail == "AttemptLost":
                told.add((one.by, one.job, one.fence))
            case "crash":
                gone[one.detail] = 0.0
            case "ended":
                gone.setdefault(one.by, one.at)
            case _:
                pass
    return [
        f"{one.at} s, {one.by}: nobody was told that the end of {one.job} was refused"
        for one in history
        if one.what == "finished"
        and (known := (one.job, one.fence)) in refused
        and known not in settled
        and (one.by, *known) not in told
        and gone.get(one.by, math.inf) > refused[known] + _HEARD
    ]


def check_bounds(history: Sequence[Entry]) -> list[str]:
    """Return holds that were given to the next before `min_hold`, or acted after `max_hold`.

    Both are in "entered", as seconds and ttl. A lease may always be lost earlier: only for
    histories in which none is.
    """
    wrong: list[str] = []
    inside: dict[str, Entry] = {}
    for entry in history:
        held = inside.get(entry.key)
        if entry.what == "entered" and entry.limit == 1:
            inside[entry.key] = entry
        elif held is None:
            continue
        elif entry.what == "granted" and entry.holder != held.holder:
            if entry.at < held.at + held.seconds * 0.99:
                wrong.append(f"{entry.at} s: {entry.key!r} granted before its min_hold was over")
        elif entry.what == "acts" and entry.holder == held.holder:  # noqa: SIM102 - as above
            if held.ttl and entry.at > held.at + held.ttl * 1.01 + _AT_ONCE:
                wrong.append(f"{entry.at} s: {entry.key!r} held after its max_hold")
    return wrong


def check_fair(history: Sequence[Entry], left_behind: Sequence[str]) -> list[str]:
    """Return what was lost although nothing happened that could cost anybody anything.

    `left_behind`: leases and waiters that ended by themselves; see `check_leases`.
    """
    wrong = [f"{one} was left behind" for one in left_behind] + check_bounds(history)
    said: dict[str, list[Entry]] = defaultdict(list)
    for entry in history:
        said[entry.what].append(entry)
    wrong += [f"{one.at} s: {one.job} was recovered" for one in said["recovered"]]
    for event in said["event"]:
        if event.detail == "HoldLost" and event.answer != "max_hold is over":
            wrong.append(f"{event.at} s, {event.by}: {event.key!r} was lost: {event.answer}")
        elif event.detail == "ReplicaLost":
            wrong.append(f"{event.at} s, {event.by}: its replica was taken for dead")
    return wrong
