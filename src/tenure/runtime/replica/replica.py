"""A replica: the record of this process in the store, renewed by heartbeats on the host.

All jobs of the process depend on that record. While heartbeats fail, the jobs keep running. They
are stopped only when the store says that they were taken over.

Under a supervisor, the supervisor sends the heartbeats as long as the process exists. So code that
blocks all threads of this process loses no jobs. If the supervisor is silent, this process beats
itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

from tenure.core.jobs.replicas import CANCELS_MAX, Beat
from tenure.core.lease_policy import renew_after
from tenure.core.leases import Meta
from tenure.core.settings import Settings
from tenure.errors import StoreError
from tenure.observe.events import Events
from tenure.runtime.attempts.run_counter import RunCounter
from tenure.runtime.data_loss import Holdings
from tenure.runtime.host import Host, HostedTask, Pulse
from tenure.runtime.replica.audit import CountInterval
from tenure.runtime.replica.janitor import Janitor
from tenure.runtime.store_retry import Retrier
from tenure.runtime.supervised.link import SupervisorLink
from tenure.runtime.supervised.messages import (
    IsolationOver,
    Joined,
    RecordRenewed,
    Retire,
    Stop,
    TakenOver,
)

__all__ = ["Replica", "ReplicaListener", "pause_after"]

log = logging.getLogger("tenure")

# The pause after a bug in a beat: long enough not to spin, short enough for the ttl.
_AFTER_A_SURPRISE = 0.3
# The pause before the next beat if an answer is full of cancels: there are more.
_MORE_CANCELS = 0.05
# A supervisor beats every third of the ttl. After two missed beats there is time for one here.
_SILENCE = 2 / 3
# A replica that stops waits so long for a join in flight. The host waits 6 s in all.
_JOIN_PATIENCE = 2.0


class ReplicaListener(Protocol):
    """Gets the events of a replica, on the loop of the app."""

    def on_joined(self, replica: str) -> None:
        """Work may be claimed under this id."""
        ...

    def on_heartbeat(self, replica: str, held: int | None, *, revived: bool) -> None:
        """The record was renewed. `held`: the number of its jobs, if the store has counted them.

        `revived`: the record may have expired for a while, and claims got nothing meanwhile.
        """
        ...

    def on_taken_over(self, replica: str) -> None:
        """The replica was declared dead: other replicas have recovered its jobs."""
        ...

    def on_cancels(self, jobs: list[str]) -> None:
        """Cancellation of these jobs was requested. May be called several times for a job."""
        ...

    def on_order(self, order: Stop | Retire | IsolationOver | None) -> None:
        """The supervisor sent a message; None: the supervisor is gone."""
        ...


class Replica:
    """Joins, beats, and recovers dead replicas. Joins under a new id if it was declared dead."""

    def __init__(
        self,
        host: Host,
        settings: Settings,
        events: Events,
        meta: Meta,
        listener: ReplicaListener,
        *,
        counter: RunCounter,
        link: SupervisorLink | None = None,
        resumed: str | None = None,
    ) -> None:
        self._host = host
        self._clock = host.store.clock
        self._ttl = settings.replica_ttl
        self._events = events
        self._retrier = Retrier(self._clock, events, host.outages)
        self._meta = meta
        self._listener = listener
        self._counter = counter
        self._link = link
        self._resumed = resumed
        self._janitor = Janitor(host.store, settings, events, host.clock_watch)
        self._counts = CountInterval()
        self._loop = asyncio.get_running_loop()
        self._hosted: HostedTask | None = None
        self._pulse: Pulse | None = None
        self._join_in_flight: asyncio.Task[object] | None = None
        self.joining: str | None = None
        """The id under which it joins. The store may have it before the answer arrives."""

    def start(self) -> None:
        self._pulse = self._host.add_pulse()
        self._hosted = self._host.start(self._run)

    async def stop(self) -> None:
        """Stop beating. The record stays until it is removed or expires."""
        if self._pulse is not None:
            self._host.remove_pulse(self._pulse)
        if self._hosted is not None:
            await self._host.stop(self._hosted)

    async def _run(self) -> None:
        listening = None
        if self._link is not None:
            listening = asyncio.ensure_future(self._link.listen(self._on_order))
        try:
            while True:
                await self._join_and_live()
        except asyncio.CancelledError:
            await self._end_join()
            await self._janitor.leave()
            raise
        finally:
            self._janitor.close()
            if listening is not None:
                listening.cancel()

    async def _join_and_live(self) -> None:
        """Join as a new replica, and beat until it is declared dead."""
        replica, self._resumed = self._resumed or self._clock.token(), None
        self.joining = replica
        self._counter.join(replica)
        await self._join(replica)
        if self._link is not None:
            # Before the first claim: the supervisor recovers this replica if the process dies.
            self._link.send(Joined(replica))
        self._notify(self._listener.on_joined, replica)
        self.joining = None
        await self._stay_alive(replica)
        # Recorded before the jobs are stopped. It is confirmed when the replica joins again.
        self._host.data.suspect(Holdings(replica=replica))
        self._notify(self._listener.on_taken_over, replica)

    async def _join(self, replica: str) -> None:
        async def join() -> None:
            store = await self._host.open_store()
            sending = store.jobs.beat([replica], ttl=self._ttl, meta=self._meta)
            self._join_in_flight = asyncio.ensure_future(sending)
            await asyncio.shield(self._join_in_flight)
            await self._host.data.confirm(store, self._events)
            await self._janitor.begin([replica])

        await self._retrier.until_answered("join", join)
        self._confirm()

    async def _end_join(self) -> None:
        """Wait for a join in flight: the worker leaves over another connection, and after it.

        A store may carry out a call that was cancelled. A record that appears after the worker has
        left would count as a living worker for `replica_ttl`.
        """
        if (join := self._join_in_flight) is not None:
            # Without a look at its error, asyncio logs that it was never retrieved.
            join.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            await asyncio.wait({join}, timeout=_JOIN_PATIENCE)
            join.cancel()

    async def _stay_alive(self, replica: str) -> None:
        """Beat until the store says that the replica is dead. Errors do not end this."""
        while True:
            try:
                if self._link is not None and not self._link.is_closed:
                    if await self._stay_alive_supervised(replica, self._link):
                        return None
                else:
                    return await self._beat_until_dead(replica)
            except Exception:
                text = "a heartbeat failed in an unexpected way; the next one follows"
                log.exception(text, extra={"replica": replica})
                await self._clock.sleep(_AFTER_A_SURPRISE)

    async def _stay_alive_supervised(self, replica: str, link: SupervisorLink) -> bool:
        """Rely on the supervisor's beats. Returns True if this replica is dead, False if the
        supervisor is.
        """
        beats_at = self._clock.boot() + _SILENCE * self._ttl
        while not link.is_closed:
            match await link.next_order(beats_at - self._clock.boot()):
                case RecordRenewed() as renewal if renewal.replica == replica:
                    beats_at = self._clock.boot() + _SILENCE * self._ttl
                    self._on_renewal(
                        replica, renewal.held, renewal.cancels, revived=renewal.revived
                    )
                case TakenOver() as renewal if renewal.replica == replica:
                    return True
            await self._leave_stats()
            if self._clock.boot() >= beats_at:
                # The supervisor is silent, or cannot reach the store. Perhaps this process can.
                beat = await self._beat(replica)
                if beat is None:
                    return True
                self._janitor.look(replica, beat)
                # As often as without a supervisor, because a replica with longer gaps may not
                # recover.
                pause = pause_after(beat, self._ttl, self._clock.random(), self._janitor)
                beats_at = self._clock.boot() + pause
        return False

    async def _beat_until_dead(self, replica: str) -> None:
        store = await self._host.open_store()
        async with store.watch(("replica", replica)) as watch:
            while (beat := await self._beat(replica)) is not None:
                self._janitor.look(replica, beat)
                await watch.wait(pause_after(beat, self._ttl, self._clock.random(), self._janitor))

    async def _beat(self, replica: str) -> Beat | None:
        sent = self._clock.boot()
        ahead = self._janitor.ahead
        count = self._counts.take(sent)

        async def beat() -> Beat | None:
            nonlocal sent, count
            sent = self._clock.boot()
            counting, count = (
                count,
                False,
            )  # the count may be what fails, so the next beat does not count
            stats = self._counter.due()
            [answer] = await self._host.store.jobs.beat(
                [replica], ttl=self._ttl, ahead=ahead, count=counting, stats=stats
            )
            if stats is not None:
                self._counter.arrived()
            return answer

        answer = await self._retrier.until_answered("beat", beat)
        late = self._janitor.beaten(sent, answer)
        if answer is not None:
            self._on_renewal(replica, answer.held, answer.cancels, revived=late)
        return answer

    async def _leave_stats(self) -> None:
        """Leave the counts of this worker, if it is time, while the supervisor beats for it."""
        if (stats := self._counter.due()) is not None:
            with suppress(StoreError):  # they are left again later
                await self._host.store.jobs.beat([], ttl=self._ttl, stats=stats)
                self._counter.arrived()

    def _on_renewal(
        self, replica: str, held: int | None, cancels: list[str], *, revived: bool
    ) -> None:
        self._confirm()
        self._notify(partial(self._listener.on_heartbeat, replica, held, revived=revived))
        if cancels:
            self._notify(self._listener.on_cancels, cancels)

    def _confirm(self) -> None:
        """Note for health checks that the store knows this replica."""
        if self._pulse is not None:
            self._pulse.last = self._clock.boot()

    def _on_order(self, order: Stop | Retire | IsolationOver | None) -> None:
        self._notify(self._listener.on_order, order)

    def _notify(self, how: Callable[..., None], *values: object) -> None:
        with suppress(RuntimeError):  # the loop of the app is closed
            self._loop.call_soon_threadsafe(how, *values)


def pause_after(beat: Beat, ttl: float, chance: float, janitor: Janitor) -> float:
    """Return the pause before the next beat."""
    pause = janitor.next_look(renew_after(ttl, chance))
    if beat.more:
        return 0.0  # the answer is full, so more cancels wait: ask again soon
    return min(pause, _MORE_CANCELS) if len(beat.cancels) == CANCELS_MAX else pause
