"""What a store promises about jobs and the replicas that run them.

A running job depends on the record of its replica: renewing that one record keeps all its jobs, and
recovery looks up expired replicas, never jobs. The moves of a job are in `core.jobs.states`. For
every job, always:

- Its fence grows with every claim and every return to waiting: max(last + 1, now).
- Calls that name a fence (`settle`, `note`) change nothing unless the job runs under that fence.
- `revision` grows by 1 or more with every change that `get` can see.
- A job that returns to waiting without a delay keeps its due time, and so its place in the queue.
- A job that waits without a delay is due whatever the clock shows, also if the clock is set back
  behind the job's due time. A delay, also one before a retry, begins anew with the first beat after
  such a step. A job with a due instant is due at that instant.
- A pending cancellation wins over every return to waiting: the job becomes cancelled.
- Finished jobs are kept apart from the others and cost `claim`, `settle`, `beat` and `orphans`
  nothing, however many there are.

Wake-ups: ("queue", name) when a job of that queue begins to wait and is due within SOON seconds, so
that a worker that sleeps until the next due time wakes earlier; ("job", id) after every change of
its revision, and when `delete` has removed it; ("replica", id) after a cancellation of one of its
running jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from tenure.core.jobs.records import (
    BATCH_MAX,
    Cancelled,
    Claimed,
    Deleted,
    Inserted,
    JobRecord,
    NewJob,
    Note,
    Page,
    QueueCounts,
    Requeued,
    Settled,
    Settlement,
    Tagged,
)
from tenure.core.jobs.replicas import Beat, Orphans, ReplicaRecord, Stats
from tenure.core.jobs.states import JobState
from tenure.core.leases import Meta

__all__ = ["Jobs"]


class Jobs(Protocol):
    """The job part of a store. At most BATCH_MAX items go into one call."""

    async def beat(
        self,
        replicas: Sequence[str],
        *,
        ttl: float,
        meta: Meta | None = None,
        ahead: float = 0.0,
        count: bool = True,
        stats: Stats | None = None,
    ) -> list[Beat | None]:
        """Give each record its full ttl again, counted from now, whether it has expired or not.

        With `meta`, unknown replicas join: each gets a record with it, in the same step. So the
        answer is None only for a dead record, also if the old record is removed at the same time.
        A repeat is harmless; a dead record stays dead.

        `ahead`: by how many seconds the store's clock (`Beat.now`) has run ahead of the replicas'
        own. The deadlines of what they run are postponed by as much.

        Waits and pauses that began in the future, because the clock was set back, begin anew, up
        to RESTARTS_MAX of them. `Beat.more` says that there may be more; beat again at once.

        `count`: whether the caller needs `Beat.held`. Without it a store that cannot count at low
        cost returns None there.

        `stats`: a value that `stats` returns for STATS_FOR seconds from now, whatever becomes of
        the replicas. It replaces what the same source has left before.

        None: there is no such record, or its jobs are being recovered. Its jobs are lost, and it
        must join under a new id.
        """
        ...

    async def orphans(
        self,
        *,
        by: str,
        replica: str | None = None,
        grace: float = 0.0,
        limit: int = BATCH_MAX,
        as_of: int | None = None,
    ) -> Orphans:
        """Find up to `limit` jobs of expired replicas, or that are `grace` past their deadline.

        With `replica`, only the jobs of that replica, whether it has expired or not: when it
        leaves, or when its process is known to be dead.

        Marks the replicas that it visits as dead: they claim nothing any more, and no beat revives
        them. `Orphans.dead` names those that no call before it has marked, so each is reported by
        one survivor. For RESERVED_FOR seconds they are reserved for `by`, so that survivors do not
        all settle the same jobs. A dead record without jobs is removed. Usage: `orphans`, `settle`
        all of them, until there are none.

        `as_of` is an instant from `Beat.now`. Replicas that had not expired by then are left alone,
        even if the store's clock has been set ahead since. None: now.

        An unreadable record is set aside. Jobs that a transaction of the user locks are left out.
        With `replica` no other job is, so a replica that leaves hands back all that it had claimed.
        Jobs of an unknown replica count as those of an expired one. No call creates such jobs: the
        replica's record was deleted by hand, or the job's was forged.
        """
        ...

    async def replicas(self, *, limit: int = 1000) -> list[ReplicaRecord]:
        """Return the known replicas, in the order in which they joined."""
        ...

    async def stats(self) -> list[bytes]:
        """Return what beats have left in the last STATS_FOR seconds, up to STATS_MAX values."""
        ...

    async def insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        """Store jobs in one commit, all of them or none; each gets its own answer.

        A job whose id exists already, in any state, is "created": it is a repeat and changes
        nothing. A unique key that another job has is "existing", or "mismatch" if its digest
        differs; nothing is stored for it. Inside one call the first of two wins.

        A unique key that an open transaction is about to take, or holds, is "busy": nothing is
        stored for that job, and all others of the call are stored. Retry later.

        The store forgets the ids of pruned jobs, so a repeat after that is a new job. Callers
        prevent it: they keep finished jobs for RETENTION_MIN seconds at least, and repeat an
        insert for INSERT_PATIENCE seconds at most (`core.store_policy`).

        A unique key is taken until its job has finished and at least `keep` seconds long; with
        `with_job` also for the retention of the job, counted from its end however it ended, and
        whether or not it is pruned then. So an existing job may be one that has finished or was
        pruned.

        The answer to a repeat has the instant of the repeat; the record has that of the insert.
        """
        ...

    async def claim(
        self, replica: str, claim_no: int, queues: Sequence[str], limit: int
    ) -> Claimed | None:
        """Give the replica up to `limit` due jobs: running, attempt + 1, under a new fence.

        Order: queues as given; within one by priority, due time (whole milliseconds), id. Paused
        queues are skipped. The deadline of the attempt is `timeout` from now.

        `claim_no` grows with every new claim of the replica, from 1. Repeating the last one after
        a lost reply returns what that claim got and is still running, with the same fences, and
        claims nothing new; an older number gets nothing.

        An expired replica gets nothing until a beat has revived it. None: there is no such
        record, or its jobs are being recovered.
        """
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """End attempts: each if its job runs under that very fence, whatever the replica's state.

        The settlement contains the new state of the job. The store decides one thing: with a
        pending cancellation, a job that would wait again, or whose settlement yields, is
        "cancelled".

        "repeated": this fence was settled with this mark before; it counts as success and changes
        nothing. "lost": the job is not running under this fence; nothing is changed. "unreadable":
        its record was damaged while it ran, and was set aside now. A store that can store the
        outcome all the same may do so.
        """
        ...

    async def note(self, notes: Sequence[Note]) -> list[bool]:
        """Store progress or a checkpoint of running jobs; False if the fence is not current.

        Also False for a job whose record cannot be read; it is set aside.
        """
        ...

    async def cancel(self, ids: Sequence[str], *, reason: str = "") -> list[Cancelled | None]:
        """Cancel jobs: a waiting one at once. A running one is "requested", and `beat` delivers it.

        "finished" and None (no such job) change nothing. A second request keeps the first reason.
        """
        ...

    async def requeue(self, ids: Sequence[str]) -> list[Requeued | None]:
        """Make finished jobs wait again, due at once: failures and losses 0, attempt kept.

        Result, error, progress, message and reason are cleared; checkpoint and history stay. A
        unique key is taken again, as by an insert; "conflict" if another job has it by now.
        "unfinished", "refused" (a run of a schedule) and None (no such job) change nothing.
        """
        ...

    async def delete(self, ids: Sequence[str]) -> list[Deleted | None]:
        """Remove jobs that do not run: waiting, finished, set aside or unreadable (`may_delete`).

        Their tags go too, and their unique keys are free at once. A claim and a delete of one
        waiting job exclude each other. "running" and None (no such job) change nothing.
        """
        ...

    async def get(self, ids: Sequence[str]) -> list[JobRecord | None]:
        """Return jobs by id; None for a job that does not exist or cannot be read.

        `damage` distinguishes them: an unreadable job, or one set aside, is reported each time.
        """
        ...

    async def find(
        self,
        *,
        state: JobState | Literal["stranded"] | None = None,
        queue: str | None = None,
        task: str | None = None,
        tag: str | None = None,
        replica: str | None = None,
        id_end: str | None = None,
        error: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """Return jobs that match all filters, in descending order of id: newest first.

        One call visits a bounded number of jobs, so a page may be short without being the last.

        `id_end`: what the id ends with. `error`: a text of printable ASCII characters that the
        first TEXT_MAX bytes of its error or of its reason contain, whatever the case of letters
        (`core.jobs.search`). `Page.visited` says how many jobs such a search has looked at.

        "stranded", alone: up to `limit` unfinished jobs that no worker can finish, in
        `Page.stranded`, on one page. The first call that finds an unreadable job sets it aside: it
        is in no queue and no list, `get` only reports it, and `insert` of its id changes nothing.
        Its unique key is free as if it had finished. `prune` removes it after ASIDE_FOR seconds.
        """
        ...

    async def counts(self) -> list[QueueCounts]:
        """Return one count per queue that has unfinished jobs or is paused, by name.

        Finished jobs are never counted. A pause that has ended does not appear.
        """
        ...

    async def count_tagged(
        self, tag: str, *, unfinished: int, recent: int, within: float
    ) -> Tagged:
        """Count jobs with a tag: those that are unfinished, and those created `within` seconds.

        Each up to its limit, in descending order of id. It visits the newest TAGGED_MAX jobs only,
        so older ones are not counted. A store that must read whole records stops looking for recent
        ones after 4 MB of them.
        """
        ...

    async def pause(self, queue: str, *, seconds: float | None = None, reason: str = "") -> None:
        """Keep jobs of the queue from being claimed for `seconds`; None: until further notice.

        The last pause counts, with its reason, which `counts` returns. A pause of 0 seconds ends
        one, and wakes the watchers of the queue.
        """
        ...
