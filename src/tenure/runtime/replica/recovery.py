"""Recovery: finds jobs whose replica is dead, decides how they ended, and settles them.

The store finds them by an index, never by a scan. If this process dies between look and settle,
nothing is lost: the store reserves the orphans for a few seconds only, and the fence lets each job
be settled once. After a lost reply the same settlements are sent again, and the store recognises
them, so no event is lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from tenure.core.clock import Clock
from tenure.core.jobs import endings, loss_policy
from tenure.core.jobs.loss_policy import loss_delays
from tenure.core.jobs.records import BATCH_MAX, JobRecord, Settled, Settlement
from tenure.core.jobs.replicas import Orphans, Recovered
from tenure.core.recovery_policy import UNWIND_SECONDS
from tenure.core.settings import Settings, WorkSettings
from tenure.core.store_policy import retry_after_error
from tenure.errors import StoreUnavailable, TenureError
from tenure.observe.events import Events
from tenure.observe.jobs import JobsRecovered
from tenure.observe.replica import ReplicaExpired
from tenure.runtime.attempts.job_ends import report_end
from tenure.runtime.process_info import process_name
from tenure.stores.contract import Store

__all__ = ["Recovery", "TakenJob", "leave", "recover_replica", "recovery_grace", "take"]

# The most jobs in one call. A look and a settlement each cost a round trip, and on SQLite a wait
# for the disk. Measured: with half as many jobs in a slice, a recovery took a third longer.
_SLICE = BATCH_MAX
# Others that settle the same slices do this work as well.
_IN_VAIN_MAX = 3
# How often to look whether an unanswered settlement has arrived: for about two seconds.
_TRIES = 5

End: TypeAlias = Callable[[JobRecord, int], Settlement]
"""Decides how the attempt of an orphan ended, at an instant of the store's clock."""

OnDead: TypeAlias = Callable[[Collection[str]], None]
"""Gets the replicas that a look was the first to mark as dead."""


def recovery_grace(settings: Settings) -> float:
    """Return how many seconds after its deadline a job is taken even from a living replica.

    Its own worker gets the time to cancel it first. If a child process has to start, the time-out
    begins later than the claim, which this includes.
    """
    allowance = settings.start_allowance if isinstance(settings, WorkSettings) else 0.0
    return max(settings.grace, allowance + UNWIND_SECONDS)


class TakenJob(Struct, frozen=True):
    """A job that was taken from its replica: its record before, and its state after."""

    job: JobRecord | None
    """None if its record cannot be read."""
    became: Recovered
    end: Settlement | None = None
    """How its attempt has ended, if its record could be read."""


OnTaken: TypeAlias = Callable[[Collection[TakenJob]], None]
"""Gets the jobs of each slice, right after they are settled."""


async def take(
    store: Store,
    *,
    by: str,
    end: End,
    replica: str | None = None,
    grace: float = 0.0,
    limit: int = _SLICE,
    as_of: int | None = None,
    on_dead: OnDead | None = None,
) -> list[TakenJob] | None:
    """Settle up to `limit` orphans, of one replica or of all that are dead.

    Returns None if there were none, and an empty list if others have settled them meanwhile.
    `on_dead` gets the replicas that this look was the first to mark as dead.
    """
    orphans = await store.jobs.orphans(
        by=by, replica=replica, grace=grace, limit=limit, as_of=as_of
    )
    if on_dead is not None and orphans.dead:
        on_dead(orphans.dead)
    if not orphans.jobs and not orphans.aside:
        return None
    ends = [end(job, orphans.now) for job in orphans.jobs]
    answers = await _settle(store, ends) if ends else []
    return _taken(orphans, ends, answers)


async def leave(store: Store, replica: str, events: Events | None = None) -> list[str]:
    """Hand back the jobs of a replica without counting losses, and remove its record.

    Returns the ids of the jobs, and emits how each has ended. The look comes first: it stops
    further claims of the replica, and it finds jobs of a claim whose reply was lost.
    """
    ids = []
    async for slice_ in _slices(store, by=replica, replica=replica, end=_handed_back_by(replica)):
        ids += [taken.became.id for taken in slice_]
        if events is not None:
            _report_ends(events, slice_, reason="its worker leaves")
    return ids


async def recover_replica(
    store: Store,
    replica: str,
    started: Collection[str],
    *,
    by: str,
    delays: Sequence[float],
    pause: float = 0.0,
    on_dead: OnDead | None = None,
    on_taken: OnTaken | None = None,
) -> list[TakenJob]:
    """Recover the jobs of a process that is known to be dead, without waiting for its ttl.

    Jobs in `started` count a loss. The others are handed back, and are due after `pause`.
    `on_dead` is called if it has neither left nor was found dead before, and `on_taken` with each
    slice: a later look may fail, and a repeat of this call does not find those jobs again.
    """
    hand_back = _handed_back_by(by, pause)

    def end(job: JobRecord, at: int) -> Settlement:
        if job.id in started:
            return loss_policy.lost(job, by=by, at=at, delays=delays)
        return hand_back(job, at)

    taken = []
    async for slice_ in _slices(store, by=by, replica=replica, end=end, on_dead=on_dead):
        if on_taken is not None:
            on_taken(slice_)
        taken += slice_
    return taken


class Recovery:
    """Recovers expired jobs, for the janitor of a replica or for an operator."""

    def __init__(self, settings: Settings, clock: Clock, events: Events) -> None:
        self._settings = settings
        self._clock = clock
        self._events = events
        self._is_stopping = False

    def stop(self) -> None:
        """End after the slice that is under way."""
        self._is_stopping = True

    @property
    def delays(self) -> list[float]:
        """The delays after the first, second, ... loss of a job, one for each loss it may have."""
        return loss_delays(self._settings.loss_budget, self._clock.random())

    async def run(self, store: Store, by: str, as_of: int | None = None) -> list[Recovered]:
        """Settle all expired jobs, slice by slice. Events name this host and process.

        With `as_of`, the instant of a beat, a store clock that was set ahead since expires nothing.
        """
        grace = recovery_grace(self._settings)

        def end(job: JobRecord, at: int) -> Settlement:
            return loss_policy.lost(job, by=by, at=at, delays=self.delays)

        # Asked for before: the look at orphans removes the records of dead workers.
        on_dead = partial(self.report_dead, processes=await _processes(store))
        everything: list[Recovered] = []
        async for slice_ in _slices(
            store, by=by, end=end, grace=grace, as_of=as_of, on_dead=on_dead
        ):
            self.report(slice_)
            everything += [taken.became for taken in slice_]
            if self._is_stopping:
                break
        return everything

    def report_dead(
        self, replicas: Collection[str], *, processes: Mapping[str, str] | None = None
    ) -> None:
        """Emit one event for each worker that was found dead, whether it had jobs or not.

        `processes`: the host and process of each, as far as they are known.
        """
        for replica in replicas:
            process = (processes or {}).get(replica, "")
            self._events.emit(ReplicaExpired(replica, process_name(), process))

    def report(self, taken: Collection[TakenJob]) -> None:
        """Emit one event for a slice, and one for each job that has failed or was cancelled."""
        ids: dict[str, list[str]] = defaultdict(list)
        for orphan in taken:
            ids[orphan.became.state or "unreadable"].append(orphan.became.id)
        self._events.emit(
            JobsRecovered(
                by=process_name(),
                replicas=tuple(dict.fromkeys(orphan.became.replica for orphan in taken)),
                waiting=tuple(ids["waiting"]),
                failed=tuple(ids["failed"]),
                cancelled=tuple(ids["cancelled"]),
                unreadable=tuple(ids["unreadable"]),
            )
        )
        ended = [orphan for orphan in taken if orphan.became.state != "waiting"]
        _report_ends(self._events, ended)


async def _processes(store: Store) -> dict[str, str]:
    """Return the host and process of each worker, such as "web-1:4711", by its replica."""
    processes = {}
    with suppress(TenureError):  # it only names the dead ones in the log
        for replica in await store.jobs.replicas():
            host, pid = replica.meta.get("host"), replica.meta.get("pid")
            if host and pid:
                processes[replica.id] = f"{host}:{pid}"
    return processes


def _report_ends(events: Events, taken: Collection[TakenJob], reason: str = "") -> None:
    for orphan in taken:
        if orphan.job is not None and orphan.end is not None and orphan.became.state is not None:
            end = replace(orphan.end, state=orphan.became.state)
            report_end(events, orphan.job, end, reason=reason)


async def _slices(
    store: Store,
    *,
    by: str,
    end: End,
    replica: str | None = None,
    grace: float = 0.0,
    as_of: int | None = None,
    on_dead: OnDead | None = None,
) -> AsyncIterator[list[TakenJob]]:
    in_vain = 0
    while in_vain < _IN_VAIN_MAX:
        slice_ = await take(
            store, by=by, end=end, replica=replica, grace=grace, as_of=as_of, on_dead=on_dead
        )
        if slice_ is None:
            return
        in_vain = 0 if slice_ else in_vain + 1
        if slice_:
            yield slice_


async def _settle(store: Store, ends: Sequence[Settlement]) -> list[Settled | None]:
    """Settle a slice. None in the answers: not settled, so a later look finds the job again."""
    try:
        return list(await store.jobs.settle(ends))
    except StoreUnavailable:
        arrived = await _arrived(store, ends)
        if not arrived:
            raise
    return [arrived.get(end.id) for end in ends]


async def _arrived(store: Store, ends: Sequence[Settlement]) -> dict[str, Settled]:
    """Return the answers to settlements that the store has carried out without a reply.

    The reply was lost, or on PostgreSQL an open transaction holds one of the jobs. A job that still
    runs under its fence is left alone, because its replica may have come back since the look. The
    other settlements are sent again, which changes nothing and returns their answers.
    """
    failures = 0
    while True:
        failures += 1
        await store.clock.sleep(retry_after_error(failures, store.clock.random()))
        try:
            jobs = await store.jobs.get([end.id for end in ends])
            over = [end for end, job in zip(ends, jobs, strict=True) if not _runs_under(job, end)]
            answers = await store.jobs.settle(over) if over else []
        except StoreUnavailable:
            if failures == _TRIES:
                raise
        else:
            return {end.id: answer for end, answer in zip(over, answers, strict=True)}


def _runs_under(job: JobRecord | None, end: Settlement) -> bool:
    return job is not None and job.state == "running" and job.fence == end.fence


def _handed_back_by(by: str, pause: float = 0.0) -> End:
    return lambda job, _: endings.handed_back(job, by=by, delay=pause)


def _taken(
    orphans: Orphans, ends: Sequence[Settlement], answers: Sequence[Settled | None]
) -> list[TakenJob]:
    taken = [
        TakenJob(job, _became(job, end, answer), end)
        for job, end, answer in zip(orphans.jobs, ends, answers, strict=True)
        if answer is not None and answer != "lost"
    ]
    aside = (Recovered(id=id_, replica=replica, state=None) for id_, replica in orphans.aside)
    return [*taken, *(TakenJob(None, became) for became in aside)]


def _became(job: JobRecord, end: Settlement, answer: Settled) -> Recovered:
    assert end.state != "succeeded"
    state: Literal["waiting", "failed", "cancelled"] | None = end.state
    if answer == "unreadable":
        state = None
    elif answer == "cancelled" or (answer == "repeated" and job.cancelling):
        state = "cancelled"
    return Recovered(id=job.id, replica=job.replica, state=state, losses=job.losses + end.losses)
