"""What `tenure doctor` finds about records that cannot be read, and what to do about each kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tenure.cli.jobs.selection import PAGE
from tenure.cli.text import count, duration, first_few, safe
from tenure.core.bounds import Damaged, Kind
from tenure.core.jobs.records import Stranded
from tenure.core.jobs.states import STATES
from tenure.core.leases import Finding
from tenure.core.schedules.documents import EVERYTHING
from tenure.core.schedules.records import DECISIONS_MAX
from tenure.runtime.timers.stored_schedules import read_schedules
from tenure.stores.contract import Store

__all__ = ["damage_findings"]

# How many records of each kind are read: enough to find damage, bounded on a large store.
_MOST: Final = 10_000
_PAGES: Final = 5

_ADVICE: Final[dict[Kind, str]] = {
    "job": "It cannot be run or shown. The next worker that reads it sets it aside, and removes it "
    "a week later; 'tenure jobs delete ID' removes it now. Enqueue the job again if it is still "
    "needed.",
    "lock": "It counts as held until it expires, or forever if that time cannot be read. If its "
    "holder is gone, 'tenure locks release NAME --force' removes it.",
    "waiter": "The waiting process retries, and gets another place.",
    "mark": "once() fails for it. Delete the record if it should run again.",
    "replica": "Its worker joins under another id. 'tenure recover' recovers its jobs.",
    "queue": "'tenure queues pause NAME' or 'tenure queues resume NAME' replaces the record.",
    "timer": "The next worker that declares the timer replaces the record.",
    "decision": "Only its history is incomplete.",
}


async def damage_findings(store: Store) -> tuple[list[Finding], list[Stranded]]:
    """Read all records that commands can show; return findings about damage, and stranded jobs.

    The store's `damage` has all records that cannot be read; findings name the first few.
    """
    await store.leases.find(limit=_MOST)
    await store.jobs.replicas(limit=_MOST)
    await store.jobs.counts()
    await read_schedules(store, limit=_MOST, lines=DECISIONS_MAX)
    await read_schedules(store, [EVERYTHING])
    for state in (*STATES, None):
        cursor = None
        for _ in range(_PAGES):
            cursor = (await store.jobs.find(state=state, limit=PAGE, cursor=cursor)).cursor
            if cursor is None:
                break
    stranded = (await store.jobs.find(state="stranded", limit=_MOST)).stranded
    return [*_unreadable([*store.damage]), *_stranded(stranded)], stranded


def _unreadable(damaged: Sequence[Damaged]) -> Iterator[Finding]:
    for kind, advice in _ADVICE.items():
        records = [
            f"{safe(record.name)} in {record.where}: {safe(record.why)}"
            for record in damaged
            if record.kind == kind
        ]
        if records:
            detail = f"{count(len(records), 'record')} cannot be read: {first_few(records, '; ')}"
            yield Finding("warning", f"unreadable {kind}", detail, advice)


def _stranded(jobs: Sequence[Stranded]) -> Iterator[Finding]:
    aside = [job for job in jobs if job.why == "unreadable"]
    if aside:
        longest = max(job.left for job in aside)
        yield Finding(
            "warning",
            "set aside",
            f"{count(len(aside), 'job')} cannot be read: {_ids(aside)}",
            f"They are kept in {aside[0].where} for up to {duration(longest)}, so that you can "
            "look at them; 'tenure jobs delete ID' removes one now. Enqueue them again if they are "
            "still needed.",
        )
    orphans = [job for job in jobs if job.why == "orphan"]
    if orphans:
        yield Finding(
            "warning",
            "orphans",
            f"{count(len(orphans), 'job')} on a replica that is not in the store: {_ids(orphans)}",
            "The replica's record was removed by hand, or the job's was forged. 'tenure recover' "
            "lets another worker run them.",
        )


def _ids(jobs: Sequence[Stranded]) -> str:
    return first_few([safe(job.id) for job in jobs])
