"""Notifies other processes of changes, with few notifications for many changes."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from hashlib import md5
from typing import cast

from tenure.core.leases import Topic
from tenure.errors import TenureError

__all__ = ["Notifier", "channel_of", "kind_in", "payloads", "topics_in"]

# A commit that notifies takes a lock of the whole database and wakes every listener, so not every
# change may notify. A caller that waits for the end of a job can wait a moment longer, an idle
# worker should not. A few at once are sent directly, so the events of a single job are not delayed.
_PAUSE_SECONDS = 0.02
_URGENT_PAUSE_SECONDS = 0.002
_AT_ONCE = 5
# How long closing waits for a server that does not answer.
_CLOSE_SECONDS = 1.0
# Beyond this many topics of a kind it is cheaper to wake all watchers of the kind.
_NAMED_MAX = 64
_EVERY = "*"
# PostgreSQL rejects payloads of 8000 bytes and more.
_PAYLOAD_BYTES = 7000

Send = Callable[[str, list[str]], Awaitable[object]]


def channel_of(namespace: str) -> str:
    """Return the channel of a namespace, whose own name could be too long for one."""
    return f"tenure_{md5(namespace.encode(), usedforsecurity=False).hexdigest()}"


class Notifier:
    """Collects topics, and sends them at once or, if many come, together a moment later.

    They are hints: one that cannot be sent is dropped. It uses real time also under a virtual
    clock, because other processes do.
    """

    def __init__(self, namespace: str, send: Send) -> None:
        self._channel = channel_of(namespace)
        self._namespace = namespace
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._pending: dict[Topic, None] = {}
        self._credit = float(_AT_ONCE)
        self._counted = self._loop.time()
        self._sent_at = -math.inf
        self._urgent = False
        self._closing = False
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def tell(self, topics: Iterable[Topic]) -> None:
        """Wake all watchers of these topics soon."""
        topics = dict.fromkeys(topics)
        self._pending.update(topics)
        self._urgent = self._urgent or any(kind != "job" for kind, _ in topics)
        if not self._pending or self._task is not None:
            return
        if self._timer is not None and self._urgent:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._send_or_wait()

    async def close(self) -> None:
        """Send the remaining topics."""
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        task = self._task
        if task is not None:
            await asyncio.wait([task], timeout=_CLOSE_SECONDS)
        if self._pending and (task is None or task.done()):
            task = self._loop.create_task(self._send_all(self._pending))
            self._pending = {}
            await asyncio.wait([task], timeout=_CLOSE_SECONDS)
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task])

    def _send_or_wait(self) -> None:
        now = self._loop.time()
        earned = (now - self._counted) / _PAUSE_SECONDS
        self._credit, self._counted = min(self._credit + earned, _AT_ONCE), now
        pause = (1 - self._credit) * _PAUSE_SECONDS
        if self._urgent:
            pause = min(pause, self._sent_at + _URGENT_PAUSE_SECONDS - now)
        if pause <= 0:
            self._credit = max(self._credit - 1, 0.0)
            self._sent_at = now
            self._start()
        else:
            self._timer = self._loop.call_later(pause, self._later)

    def _later(self) -> None:
        self._timer = None
        self._send_or_wait()

    def _start(self) -> None:
        topics, self._pending, self._urgent = self._pending, {}, False
        self._task = self._loop.create_task(self._send_all(topics))
        self._task.add_done_callback(self._sent)

    def _sent(self, _task: asyncio.Task[None]) -> None:
        self._task = None
        # Closing sends the rest, and drops it after a while.
        if self._pending and not self._closing:
            self._send_or_wait()

    async def _send_all(self, topics: Iterable[Topic]) -> None:
        with suppress(TenureError):  # waiters poll anyway
            await self._send(self._channel, payloads(self._namespace, topics))


def payloads(namespace: str, topics: Iterable[Topic]) -> list[str]:
    """Return the kind, the namespace (which has no blanks) and the names, which NUL cannot be in.

    The separator is a line feed; a name that contains one gets a payload of its own.
    """
    kinds: dict[str, list[str]] = {}
    result = []
    for kind, name in topics:
        if "\n" in name:
            result.append(f"{kind} {namespace} {name}")
        else:
            kinds.setdefault(f"{kind}s", []).append(name)
    for plural, names in kinds.items():
        if len(names) > _NAMED_MAX:
            result.append(f"{_EVERY} {namespace} {plural[:-1]}")
        else:
            result += _filled(f"{plural} {namespace} ", names)
    return result


def _filled(head: str, names: list[str]) -> list[str]:
    payloads: list[list[str]] = [[]]
    size = len(head)
    for name in names:
        length = len(name.encode()) + 1
        if size + length > _PAYLOAD_BYTES:
            payloads.append([])
            size = len(head)
        payloads[-1].append(name)
        size += length
    return [head + "\n".join(group) for group in payloads]


def kind_in(payload: str, namespace: str) -> str | None:
    """Return the kind whose watchers to wake; None if the payload names topics."""
    head = f"{_EVERY} {namespace} "
    return payload.removeprefix(head) if payload.startswith(head) else None


def topics_in(payload: str, namespace: str) -> list[Topic]:
    """Return the topics in a payload: one, or many of a kind; none of other namespaces."""
    kind, _, rest = payload.partition(" ")
    meant, _, names = rest.partition(" ")
    # Another store object could have drawn the same channel from the same virtual clock.
    if meant != namespace:
        return []
    if kind.endswith("s"):
        return [cast("Topic", (kind[:-1], name)) for name in names.split("\n")]
    return [cast("Topic", (kind, names))]
