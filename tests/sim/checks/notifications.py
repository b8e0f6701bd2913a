"""Checks that a loss is reported in time, to its owner only."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from tests.sim.history import Entry

__all__ = [
    "check_hold_limits",
    "check_mild",
    "check_notified_in_time",
    "check_refused_ends_reported",
]

# A block is cancelled when its trust ends, by the same clock; what it does meanwhile takes no time.
_AT_ONCE = 0.05
# What is refused is heard, or asked again, within this time: a call without an answer is given up
# after 5 s, which is also how long a worker that leaves waits for its last one.
_HEARD = 5.5

_Pause: TypeAlias = tuple[str, float, float]
"""What the names of its processes begin with, its beginning and its end."""


def check_notified_in_time(history: Sequence[Entry]) -> list[str]:
    """Return blocks that had to look to see a loss, and handlers that were not stopped.

    These run on after a take-over or a cancel that their process was told of, or after their
    time-out. Only a process that was paused may be late.
    """
    handlers = _Handlers(_pauses(history))
    wrong: list[str] = []
    for entry in history:
        if entry.what == "noticed loss" and entry.ok and entry.seconds > _AT_ONCE:
            since = entry.at - entry.seconds * 1.01
            if not _was_paused(handlers.pauses, entry.by, since, entry.at):
                wrong.append(f"{entry.at} s, {entry.by}: not told of a loss {entry.seconds} s ago")
        else:
            wrong += handlers.see(entry)
    return wrong


class _Handlers:
    """The handlers that run, and by when each of them has to stop."""

    def __init__(self, pauses: Sequence[_Pause]) -> None:
        self.pauses = pauses
        self._timeouts: dict[str, float] = {}
        self._began: dict[tuple[str, str], float] = {}
        self._notified: dict[tuple[str, str], tuple[float, str]] = {}

    def see(self, entry: Entry) -> Iterator[str]:
        """Take note of an entry, and tell who runs on in it."""
        match entry.what:
            case "inserted" if entry.ttl:
                self._timeouts[entry.job] = entry.ttl
            case "began":
                self._began[entry.by, entry.job] = entry.at
                self._notified.pop((entry.by, entry.job), None)
            case "event" if entry.detail == "ReplicaLost":
                self._tell(entry, "its take-over")
            case "received cancel":
                self._tell(entry, "it was cancelled")
            case "finished" | "failed" | "stopped":
                yield from self._ended(entry)

    def _tell(self, entry: Entry, why: str) -> None:
        for job in entry.ids:
            self._notified.setdefault((entry.by, job), (entry.at, why))

    def _ended(self, entry: Entry) -> Iterator[str]:
        began = self._began.pop((entry.by, entry.job), entry.at)
        timeout = self._timeouts.get(entry.job, math.inf)
        limits = [(began, began + timeout * 1.01, "its time-out")]
        notice = self._notified.pop((entry.by, entry.job), None)
        if notice is not None and entry.what != "stopped":
            limits.append((notice[0], *notice))
        for since, at, why in limits:
            is_late = entry.at > at + _AT_ONCE
            if is_late and not _was_paused(self.pauses, entry.by, since, entry.at):
                yield f"{entry.at} s, {entry.by}: {entry.job} ran on after {why}"


def _pauses(history: Iterable[Entry]) -> list[_Pause]:
    return [
        (f"m{entry.number}.", entry.at, entry.at + entry.seconds)
        for entry in history
        if entry.by == "world" and entry.what == "pause"
    ]


def _was_paused(pauses: Iterable[_Pause], process: str, since: float, until: float) -> bool:
    return any(
        process.startswith(machine) and begin <= until and end >= since
        for machine, begin, end in pauses
    )


def check_refused_ends_reported(history: Sequence[Entry]) -> list[str]:
    """Return attempts whose end was refused by the store, and whose worker did not say so.

    Only a worker's own end counts. A process that hands a job back, or recovers one, asks for
    nothing that another process may not have done before: the settlement of a recovery that came
    second, or late, is refused without a word.
    """
    settled: set[tuple[str, int]] = set()
    refused: dict[tuple[str, int], Entry] = {}
    reported: set[tuple[str, str, int]] = set()
    gone: dict[str, float] = {}
    for entry in history:
        match entry.what:
            case "settled" if entry.answer == "lost":
                if entry.outcome not in ("handed back", "lost"):
                    refused[entry.job, entry.fence] = entry
            case "settled":
                settled.add((entry.job, entry.fence))
            case "event" if entry.detail == "AttemptLost":
                reported.add((entry.by, entry.job, entry.fence))
            case "crash":
                gone[entry.detail] = 0.0
            case "ended":
                gone.setdefault(entry.by, entry.at)
            case _:
                pass
    return [
        f"{entry.at} s, {owner}: nobody was told that {entry.job}, {entry.outcome}, was refused"
        for attempt, entry in refused.items()
        if attempt not in settled
        and ((owner := entry.holder), *attempt) not in reported
        and gone.get(owner, math.inf) > entry.at + _HEARD
    ]


def check_hold_limits(history: Sequence[Entry]) -> list[str]:
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


def check_mild(history: Sequence[Entry], unreleased: Sequence[str]) -> list[str]:
    """Return what was lost although nothing happened that could cost a lease or a job.

    `left_behind`: leases and waiters that ended by themselves; see `check_leases`.
    """
    by_kind: dict[str, list[Entry]] = defaultdict(list)
    for entry in history:
        by_kind[entry.what].append(entry)
    wrong = [f"{entry.at} s: {entry.job} was recovered" for entry in by_kind["recovered"]]
    wrong += [
        f"{event.at} s, {event.by}: its replica was taken for dead"
        for event in by_kind["event"]
        if event.detail == "ReplicaLost"
    ]
    if any(step.seconds > 0 for step in by_kind["stepped"]):
        return wrong  # leases may have ended early
    wrong += [f"{lease} was left behind" for lease in unreleased] + check_hold_limits(history)
    wrong += [
        f"{event.at} s, {event.by}: {event.key!r} was lost: {event.answer}"
        for event in by_kind["event"]
        if event.detail == "HoldLost" and event.answer != "max_hold is over"
    ]
    return wrong
