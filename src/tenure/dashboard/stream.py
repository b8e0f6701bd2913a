"""The stream that tells pages which of them have changed: one poller serves all viewers.

It looks while somebody listens, and at nothing else than what they listen for. A page whose topic
has another version fetches its data again, which is a shared look as well.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from typing import Any, Final

import msgspec

from tenure.core.jobs.replicas import ReplicaRecord
from tenure.dashboard.answer import Refusal
from tenure.dashboard.site import REFRESH, Site
from tenure.dashboard.snapshot import KEEPS_CLOSED
from tenure.errors import TenureError

__all__ = ["TOPICS", "Ticker", "topics_in"]

TOPICS: Final = ("overview", "jobs", "timers", "locks", "replicas", "events")
STREAMS_MAX: Final = 100
"""How many viewers may listen at a time, in one process."""
STREAM_FOR: Final = 30.0
"""Seconds after which a stream ends and the browser opens the next one. A server that shuts down
waits for open streams, and `auth` is asked anew with each."""
_PING: Final = 15.0
_NEWEST: Final = 50
_RETRY: Final = b"retry: 1000\n\n"


def topics_in(text: str) -> frozenset[str]:
    """Return the topics that a request names, separated by commas; all if it names none."""
    names = frozenset(filter(None, text.split(",")))
    if unknown := sorted(names - set(TOPICS)):
        raise Refusal(400, f"There is no topic {unknown[0]!r}. Topics: {', '.join(TOPICS)}.")
    return names or frozenset(TOPICS)


class Ticker:
    """The versions of all topics, for the viewers of one dashboard on one event loop."""

    def __init__(self, site: Site) -> None:
        self._site = site
        # They rise over restarts too, as pages compare them with those of the process before.
        self._versions = dict.fromkeys(TOPICS, site.snapshot.clock.wall() // 1000)
        self._digests: dict[str, bytes] = {}
        self._echoes: dict[str, float] = {}
        """When to count a topic as changed once more."""
        self._trouble = ""
        self._listeners: list[frozenset[str]] = []
        self._poller: asyncio.Task[None] | None = None
        self._is_over = False
        """Whether the service has closed its app, and with it what the listeners look at."""
        self._turn = asyncio.Event()

    async def listen(self, topics: frozenset[str]) -> AsyncGenerator[bytes, None]:
        """Return the events of a stream: one at once, then one for each change.

        Close it. Raises Refusal if too many viewers listen.
        """
        if len(self._listeners) >= STREAMS_MAX:
            detail = f"{STREAMS_MAX} pages listen already. This one has to be reloaded by hand."
            raise Refusal(429, detail, headers={"retry-after": "30"})
        stream = self._events(topics)
        await anext(stream)  # without a pause: requests that come together are all counted
        return stream

    async def _events(self, topics: frozenset[str]) -> AsyncGenerator[bytes, None]:
        """Yield nothing once it counts as a listener, then the events of a stream."""
        clock = self._site.snapshot.clock
        end, sent_at = clock.boot() + STREAM_FOR, clock.boot()
        self._listeners.append(topics)
        try:
            self._begin()
            yield b""
            yield _RETRY + self._event(topics)
            last = self._state(topics)
            while (left := end - clock.boot()) > 0 and not self._is_over:
                await clock.wait(self._turn, min(left, REFRESH * 2))
                if (state := self._state(topics)) != last:
                    yield self._event(topics)
                    last, sent_at = state, clock.boot()
                elif clock.boot() - sent_at >= _PING:
                    yield b": still here\n\n"
                    sent_at = clock.boot()
        finally:
            self._listeners.remove(topics)

    def touch(self) -> None:
        """Count everything as changed, after an action."""
        for topic in TOPICS:
            self._versions[topic] += 1
        self._wake()

    async def close(self) -> None:
        """Stop looking."""
        if self._poller is not None:
            self._poller.cancel()
            await asyncio.wait((self._poller,))

    def _event(self, topics: Collection[str]) -> bytes:
        versions = {topic: self._versions[topic] for topic in TOPICS if topic in topics}
        data = msgspec.json.encode({"topics": versions, "trouble": self._trouble or None})
        return b"event: tick\ndata: %s\n\n" % data

    def _state(self, topics: Collection[str]) -> tuple[object, ...]:
        return self._trouble, *(self._versions[topic] for topic in TOPICS if topic in topics)

    def _begin(self) -> None:
        if self._poller is None or self._poller.done():
            self._is_over = False
            self._poller = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        """Look every other second, until nobody listens any more or the service has closed its app.

        A look after that would open the store again, in a process that is about to end.
        """
        snapshot, was_open = self._site.snapshot, False
        clock = snapshot.clock
        while self._listeners:
            if was_open and not snapshot.is_app_open:
                self._is_over = True
                self._wake()
                return
            was_open = snapshot.is_app_open
            KEEPS_CLOSED.set(was_open)  # it may be closed during the look
            topics = frozenset[str]().union(*self._listeners)
            await self._look(topics)
            await clock.sleep(REFRESH)

    async def _look(self, topics: Collection[str]) -> None:
        before = self._trouble, dict(self._versions)
        looks = [self._look_at(topic) for topic in _DIGESTS if topic in topics]
        # Together: what one of them cannot read keeps no other page from its changes.
        self._trouble = next(filter(None, await asyncio.gather(*looks)), "")
        self._note("events", self._site.recent.last)
        if (self._trouble, self._versions) != before:
            self._wake()

    async def _look_at(self, topic: str) -> str:
        """Note how a topic stands; return what keeps it from being read."""
        try:
            self._note(topic, await _DIGESTS[topic](self._site))
        except TenureError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - of a driver: the next look may work
            return type(error).__name__
        return ""

    def _note(self, topic: str, seen: Any) -> None:
        digest = hashlib.sha256(msgspec.json.encode(seen)).digest()
        now, echo = self._site.snapshot.clock.boot(), self._echoes.get(topic, math.inf)
        if self._digests.get(topic, digest) != digest:
            self._versions[topic] += 1
            wait = self._site.snapshot.looks.change()
            echo = now + wait if wait > 0 else math.inf
        elif now >= echo:  # pages may have got answers from before the change until now
            self._versions[topic] += 1
            echo = math.inf
        self._digests[topic], self._echoes[topic] = digest, echo

    def _wake(self) -> None:
        turn, self._turn = self._turn, asyncio.Event()
        turn.set()


async def _overview(site: Site) -> Any:
    """Return what the first page shows, without what only time changes."""
    queues = await site.snapshot.queues()
    counts = [
        (queue.queue, queue.waiting, queue.running, queue.paused_for is None) for queue in queues
    ]
    return counts, _replicas_in(await site.snapshot.replicas()), await _jobs(site)


async def _jobs(site: Site) -> Any:
    """Return the newest jobs, those that run, and how many there are.

    What was inserted, has started or has ended since changes one of them. Not seen is a finished
    job that another program deletes.
    """
    newest = await site.snapshot.jobs(limit=_NEWEST)
    running = await site.snapshot.jobs(state="running", limit=_NEWEST)
    counts = [(queue.queue, queue.waiting, queue.running) for queue in await site.snapshot.queues()]
    jobs = [(job.id, job.revision) for page in (newest, running) for job in page.jobs]
    return jobs, counts


async def _timers(site: Site) -> Any:
    listed = await site.snapshot.timers_now()
    infos = [view.info for view in listed.timers]
    standings = [
        (info.name, info.revision, info.running, info.pause, info.is_declared, info.renamed_to)
        for info in infos
    ]
    ticks = [(view.history[:1], view.next[:1]) for view in listed.timers]
    return listed.pause, standings, ticks


async def _locks(site: Site) -> Any:
    leases = await site.snapshot.leases()
    return [(lease.key, lease.holder, lease.fence, lease.waiting, lease.limit) for lease in leases]


async def _replicas(site: Site) -> Any:
    replicas = await site.snapshot.replicas()
    site.recent.compare(replicas)
    return _replicas_in(replicas)


def _replicas_in(replicas: Collection[ReplicaRecord]) -> Any:
    return [
        (replica.id, replica.dead, replica.expires_in > 0, replica.held, replica.meta)
        for replica in replicas
    ]


_DIGESTS: Final[Mapping[str, Callable[[Site], Awaitable[Any]]]] = {
    "overview": _overview,
    "jobs": _jobs,
    "timers": _timers,
    "locks": _locks,
    "replicas": _replicas,
}
