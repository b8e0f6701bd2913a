"""A network between a client and its server, with a planned mishap for each request."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator

import httpx2

from tenure.core.clock import SystemClock


class HurriedClock(SystemClock):
    """Real time, but sleeping takes no time."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    def boot(self) -> float:
        return super().boot() + sum(self.pauses)

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)


class Mishap:
    """What happens to one request. The base class does nothing to it."""

    def instead(self, request: httpx2.Request) -> httpx2.Response | None:
        """Answer in place of the server, or raise; the server then never sees the request."""

    def afterwards(self, response: httpx2.Response) -> httpx2.Response:
        """Return what arrives of an answer, or raise; the request has had its effect."""
        return response


class Unreachable(Mishap):
    def instead(self, request):
        raise httpx2.ConnectError("planned", request=request)


class ReplyLost(Mishap):
    def afterwards(self, response):
        raise httpx2.ReadError("planned")


class Answered(Mishap):
    """Removed by a proxy."""

    def __init__(self, status: int, headers: dict[str, str] | None = None, body: bytes = b""):
        self._status, self._headers, self._body = status, headers or {}, body

    def instead(self, request):
        return httpx2.Response(self._status, headers=self._headers, content=self._body)


class HeaderSet(Mishap):
    def __init__(self, name: str, value: str):
        self._name, self._value = name, value

    def afterwards(self, response):
        response.headers[self._name] = self._value
        return response


class RequestHeaderLost(Mishap):
    def __init__(self, name: str):
        self._name = name

    def instead(self, request):
        request.headers.pop(self._name, None)


class Cut(Mishap):
    """The connection breaks in the middle of an event, or between two."""

    def __init__(self, after: int, *, cleanly: bool = False):
        self._after, self._cleanly = after, cleanly

    def afterwards(self, response):
        stream = CutStream(response.stream, self._after, cleanly=self._cleanly)
        return httpx2.Response(response.status_code, headers=response.headers, stream=stream)


class Passing(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A stream that wraps another one."""

    def __init__(self, stream):
        self._stream = stream

    def close(self) -> None:
        self._stream.close()

    async def aclose(self) -> None:
        await self._stream.aclose()


class Doubled(Mishap):
    """Every part of an answer arrives twice."""

    def afterwards(self, response):
        stream = DoubledStream(response.stream)
        return httpx2.Response(response.status_code, headers=response.headers, stream=stream)


class DoubledStream(Passing):
    def __iter__(self) -> Iterator[bytes]:
        for part in self._stream:
            yield from (part, part)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            yield part
            yield part


class HeldOpen(Mishap):
    """A proxy keeps the connection open after the server has closed it."""

    def afterwards(self, response):
        stream = HeldStream(response.stream)
        return httpx2.Response(response.status_code, headers=response.headers, stream=stream)


class HeldStream(Passing):
    def __iter__(self) -> Iterator[bytes]:
        yield from self._stream
        yield from EndlessStream()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            yield part
        async for part in EndlessStream():
            yield part


class CutStream(Passing):
    def __init__(self, stream, after: int, *, cleanly: bool):
        super().__init__(stream)
        self._left, self._cleanly = after, cleanly

    def _cut(self, part: bytes) -> bytes:
        """Return the bytes of a part that come through; none after the end."""
        if self._left == 0:
            return b"" if self._cleanly else part[: len(part) // 2]
        self._left -= 1
        return part

    def __iter__(self) -> Iterator[bytes]:
        for part in self._stream:
            is_last = self._left == 0
            yield self._cut(part)
            if is_last:
                self._end()
                return

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            is_last = self._left == 0
            yield self._cut(part)
            if is_last:
                self._end()
                return

    def _end(self) -> None:
        if not self._cleanly:
            raise httpx2.ReadError("planned")


class Trickled(Mishap):
    """An answer that never ends and always sends a bit more."""

    def instead(self, request):
        return httpx2.Response(200, stream=EndlessStream())


class EndlessStream(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    def __iter__(self) -> Iterator[bytes]:
        while True:
            time.sleep(0.02)
            yield b" "

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(0.02)
            yield b" "


class Network(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """Carries requests for either client. Each mishap is for one request, in this order."""

    def __init__(self, *mishaps: Mishap):
        self._mishaps = list(mishaps)
        # Loading the root certificates takes longer than most of these tests.
        self._sync = httpx2.HTTPTransport(verify=False)
        self._async = httpx2.AsyncHTTPTransport(verify=False)
        self.sent: list[httpx2.Request] = []

    def expect(self, *mishaps: Mishap) -> None:
        self._mishaps += mishaps

    def _begin(self, request: httpx2.Request) -> tuple[Mishap, httpx2.Response | None]:
        # A copy of the request, because a mishap may change it for the server.
        self.sent.append(
            httpx2.Request(
                request.method,
                request.url,
                headers=request.headers,
                extensions=request.extensions,
            )
        )
        mishap = self._mishaps.pop(0) if self._mishaps else Mishap()
        return mishap, mishap.instead(request)

    def handle_request(self, request):
        mishap, answer = self._begin(request)
        if answer is not None:
            return answer
        response = self._sync.handle_request(request)
        try:
            return mishap.afterwards(response)
        except httpx2.TransportError:
            response.close()
            raise

    async def handle_async_request(self, request):
        mishap, answer = self._begin(request)
        if answer is not None:
            return answer
        response = await self._async.handle_async_request(request)
        try:
            return mishap.afterwards(response)
        except httpx2.TransportError:
            await response.aclose()
            raise

    def header(self, name: str, of: Callable[[httpx2.Request], bool] = lambda _: True) -> list:
        return [request.headers.get(name) for request in self.sent if of(request)]

    def close(self) -> None:
        self._sync.close()

    async def aclose(self) -> None:
        await self._async.aclose()
