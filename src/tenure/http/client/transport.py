"""Runs the conversations of the client over httpx: `Line` blocks, `AsyncLine` runs on a loop."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from importlib import import_module
from types import ModuleType
from typing import Any, Final, TypeVar

from tenure.core.clock import BlockingClock, Clock
from tenure.core.redaction import redact
from tenure.errors import ConfigError
from tenure.http.client.conversation import Ask, Lost, Pause, Reply, Steps
from tenure.http.client.remote_job import JobEvent, Tail
from tenure.http.request import Headers

__all__ = ["AsyncLine", "Line", "http_client"]

T = TypeVar("T")

_LIBRARIES: Final = ("httpx2", "httpx")
# Mistakes in the request itself: a retry would fail in the same way.
_OWN_MISTAKES: Final = frozenset({"UnsupportedProtocol", "LocalProtocolError"})
_CONNECT: Final = 10.0


def http_client(kind: str, base_url: str, client: Any, options: dict[str, Any]) -> Any:
    """Return the httpx client that the caller passed in, or a new one."""
    if base_url and not base_url.startswith(("http://", "https://")):
        msg = f"base_url must begin with http:// or https://, not {redact(base_url)!r}."
        raise ConfigError(msg)
    if client is None:
        return getattr(_library(), kind)(base_url=base_url, **options)
    if base_url or options:
        names = ", ".join([*(["base_url"] if base_url else []), *options])
        msg = f"http= is a complete client: pass {names} to that client instead."
        raise ConfigError(msg)
    return client


def _library() -> ModuleType:
    for name in _LIBRARIES:
        try:
            return import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
    msg = "the client needs httpx2, which is not installed: pip install 'tenure[client]'."
    raise ConfigError(msg)


def _network_errors() -> tuple[type[Exception], ...]:
    """Return the errors that mean a lost response, of each httpx library that is imported."""
    loaded = filter(None, (sys.modules.get(name) for name in _LIBRARIES))
    return tuple(
        kind for library in loaded for kind in (library.TransportError, library.DecodingError)
    )


def _lost(error: Exception) -> Lost:
    if type(error).__name__ in _OWN_MISTAKES:
        raise error
    return Lost(error)


def _sent(ask: Ask) -> dict[str, Any]:
    """Return a request as arguments for httpx."""
    return {
        "method": ask.method,
        "url": ask.url,
        "headers": dict(ask.headers),
        "content": ask.body,
        "timeout": (min(_CONNECT, ask.silence), ask.silence, ask.silence, ask.silence),
        "follow_redirects": False,
    }


def _reply(response: Any, body: bytes | bytearray = b"") -> Reply:
    headers = Headers(dict(response.headers.items()))
    return Reply(status=response.status_code, headers=headers, body=bytes(body))


class Line:
    """A connection to a server that blocks the calling thread."""

    def __init__(self, http: Any, clock: BlockingClock) -> None:
        self._http = http
        self._clock = clock
        self._errors = _network_errors()

    def run(self, steps: Steps[T]) -> T:
        """Carry out a conversation."""
        got: Reply | Lost | None = None
        while True:
            try:
                step = steps.send(got)
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(step, Pause):
                self._clock.pause(step.seconds)
                got = None
            else:
                got = self._send(step)

    def _send(self, ask: Ask) -> Reply | Lost:
        until, body = self._clock.boot() + ask.within, bytearray()
        try:
            with self._http.stream(**_sent(ask)) as response:
                for part in response.iter_bytes():
                    body += part
                    # httpx limits only the silence between two parts, not the whole response.
                    if self._clock.boot() > until:
                        return Lost(TimeoutError("the response takes too long"))
                return _reply(response, body)
        except self._errors as error:
            return _lost(error)

    def follow(self, tail: Tail) -> Generator[JobEvent, None, None]:
        """Yield the events of a job, and reconnect until the last one."""
        while not tail.has_ended():
            got: Reply | Lost | None = None
            try:
                with self._http.stream(**_sent(tail.next_ask())) as response:
                    if tail.begins(_reply(response)):
                        for part in response.iter_bytes():
                            yield from tail.feed(part)
                            if tail.has_ended():  # a proxy may keep the stream open after it
                                break
                    else:
                        got = _reply(response, response.read())
            except self._errors as error:
                got = _lost(error)
            if not tail.has_ended():
                self._clock.pause(tail.interrupted(got).seconds)


class AsyncLine:
    """A connection to a server for code on an event loop."""

    def __init__(self, http: Any, clock: Clock) -> None:
        self._http = http
        self._clock = clock
        self._errors = _network_errors()

    async def run(self, steps: Steps[T]) -> T:
        """Carry out a conversation."""
        got: Reply | Lost | None = None
        while True:
            try:
                step = steps.send(got)
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(step, Pause):
                await self._clock.sleep(step.seconds)
                got = None
            else:
                got = await self._send(step)

    async def _send(self, ask: Ask) -> Reply | Lost:
        try:
            async with _within(ask.within), self._http.stream(**_sent(ask)) as response:
                return _reply(response, await response.aread())
        except TimeoutError as error:
            return Lost(error)
        except self._errors as error:
            return _lost(error)

    async def follow(self, tail: Tail) -> AsyncGenerator[JobEvent, None]:
        """Yield the events of a job, and reconnect until the last one."""
        while not tail.has_ended():
            got: Reply | Lost | None = None
            try:
                async with self._http.stream(**_sent(tail.next_ask())) as response:
                    if tail.begins(_reply(response)):
                        parts = response.aiter_bytes()
                        while not tail.has_ended():  # a proxy may keep the stream open after it
                            if (part := await _next(parts, tail.left)) is None:
                                break
                            for event in tail.feed(part):
                                yield event
                    else:
                        got = _reply(response, await response.aread())
            except TimeoutError as error:
                got = Lost(error)
            except self._errors as error:
                got = _lost(error)
            if not tail.has_ended():
                await self._clock.sleep(tail.interrupted(got).seconds)


async def _next(parts: AsyncIterator[bytes], left: float) -> bytes | None:
    """Return the next part of a stream; None at its end."""
    async with _within(left):
        return await anext(parts, None)


def _within(left: float) -> asyncio.Timeout:
    return asyncio.timeout(None if math.isinf(left) else left)
