"""What `tenure doctor` finds about records that cannot be used, and what to do about each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tenure.cli.jobs.selection import PAGE
from tenure.cli.output import duration, safe, some
from tenure.core.bounds import Damaged, Kind
from tenure.core.jobs.records import Stranded
from tenure.core.jobs.states import STATES
from tenure.core.leases import Finding
from tenure.core.schedules.documents import EVERYTHING
from tenure.core.schedules.records import DECISIONS_MAX
from tenure.runtime.timers.stored_schedules import read_schedules
from tenure.stores.contract import Store

__all__ = ["damage_examined", "what_to_do"]

# As many of each kind are read: who has more than that wants a first finding, not all of them.
_LOOKED_AT: Final = 10_000
_PAGES: Final = 5

_ADVICE: Final[dict[Kind, str]] = {
    "job": "It cannot be run or shown. A worker sets it aside when it comes across it, and removes "
    "it a week later; 'tenure jobs delete ID' removes it now. Enqueue the job again if it is still "
    "wanted.",
    "lock": "It counts as held until its end, or for good if that cannot be read. If its holder is "
    "gone, 'tenure locks release NAME --force' removes it.",
    "waiter": "The process that waits asks again, and gets another place.",
    "mark": "once() fails for it. Delete the record if it is to run again.",
    "replica": "Its worker joins under another id. 'tenure recover' takes the jobs it ran.",
    "queue": "'tenure queues pause NAME' or 'tenure queues resume NAME' replaces the record.",
    "timer": "The next worker that declares the timer begins it anew.",
    "decision": "Only its history suffers.",
}


async def damage_examined(store: Store) -> tuple[list[Finding], list[Stranded]]:
    """Read all that operators can ask for; return what is wrong with it, and stranded jobs.

    The store's `damage` names all records that cannot be used; findings name a few.
    """
    await store.leases.find(limit=_LOOKED_AT)
    await store.jobs.replicas(limit=_LOOKED_AT)
    await store.jobs.counts()
    await read_schedules(store, limit=_LOOKED_AT, lines=DECISIONS_MAX)
    await read_schedules(store, [EVERYTHING])
    for state in (*STATES, None):
        cursor = None
        for _ in range(_PAGES):
            cursor = (await store.jobs.find(state=state, limit=PAGE, cursor=cursor)).cursor
            if cursor is None:
                break
    stranded = (await store.jobs.find(state="stranded", limit=_LOOKED_AT)).stranded
    return [*_unreadable([*store.damage]), *_stranded(stranded)], stranded


def what_to_do(job: Stranded) -> str:
    """Say why a job is stranded, and how to help it."""
    if job.why == "orphan":
        where = f"replica {safe(job.replica)!r}" if job.replica else "a replica"
        return (
            f"job {safe(job.id)} runs on {where} that the store does not know: its record was "
            "removed by hand. 'tenure recover' lets another worker run it."
        )
    return (
        f"job {safe(job.id)} was set aside, because its record cannot be read. It is kept for "
        f"another {duration(job.left)} in {job.where} for a look; 'tenure jobs delete "
        f"{safe(job.id)}' removes it now. Enqueue it again if it is still wanted."
    )


def _unreadable(damaged: Sequence[Damaged]) -> Iterator[Finding]:
    for kind, advice in _ADVICE.items():
        those = [
            f"{safe(one.name)} in {one.where}: {safe(one.why)}"
            for one in damaged
            if one.kind == kind
        ]
        if those:
            number = "1 record" if len(those) == 1 else f"{len(those):,} records"
            detail = f"{number} cannot be used: {some(those, '; ')}"
            yield Finding("warning", f"unreadable {kind}", detail, advice)


def _stranded(jobs: Sequence[Stranded]) -> Iterator[Finding]:
    aside = [job for job in jobs if job.why == "unreadable"]
    if aside:
        longest = max(job.left for job in aside)
        yield Finding(
            "warning",
            "set aside",
            f"{_jobs(aside)} cannot be read: {some([safe(job.id) for job in aside])}",
            f"They are kept in {aside[0].where} for up to {duration(longest)} for a look by hand; "
            "'tenure jobs delete ID' removes one now. Enqueue them again if they are still wanted.",
        )
    orphans = [job for job in jobs if job.why == "orphan"]
    if orphans:
        yield Finding(
            "warning",
            "orphans",
            f"{_jobs(orphans)} on a replica that the store does not know: "
            f"{some([safe(job.id) for job in orphans])}",
            "Somebody removed the replica's record, or forged the job's. 'tenure recover' lets "
            "another worker run them.",
        )


def _jobs(jobs: Sequence[Stranded]) -> str:
    return "1 job" if len(jobs) == 1 else f"{len(jobs):,} jobs"
