"""A place outside the store that knows fences: python -m tests.chaos.sink FOLDER [--unfenced]

It is a process of its own, asked over a socket, because a file with a lock would stay locked while
the process that writes to it is paused. It answers one request after the other, and its ledger has
the true order of all effects.
"""

import asyncio
import json
import socket
import sys
import threading
from pathlib import Path
from typing import Literal

from tests.chaos.diary import Diary
from tests.rig.stdio import tell

Answer = Literal["accepted", "refused", "done"]

_SOCKET = "sink.sock"


class Sink:
    """Takes no effect under a fence lower than one it has seen for the same key."""

    def __init__(self, folder: Path, *, fenced: bool) -> None:
        self._fenced = fenced
        self._diary = Diary(folder, "sink")
        self._highest: dict[str, int] = {}
        self._done: set[str] = set()

    def take(self, by: str, key: str, fence: int, *, once: bool) -> Answer:
        """Decide about one effect; one that may happen only `once` per key is not repeated."""
        stale = self._fenced and fence < self._highest.get(key, 0)
        if once and self._fenced and not stale and key in self._done:
            # An attempt that was lost after its effect runs again: that is no fault.
            self._diary.write("repeat", key=key, fence=fence, detail=by)
            return "done"
        if not stale:
            self._highest[key] = max(fence, self._highest.get(key, 0))
            self._done |= {key} if once else set()
        answer: Answer = "refused" if stale else "accepted"
        self._diary.write(
            "effect",
            key=key,
            fence=fence,
            ok=not stale,
            answer="once" if once else "",
            detail=by,
        )
        return answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one process until it is gone."""
        try:
            while line := await reader.readline():
                by, key, fence, once = json.loads(line)
                writer.write(self.take(by, key, fence, once=once).encode() + b"\n")
                await writer.drain()
        except OSError:
            return  # killed between asking and hearing
        finally:
            writer.close()


class SinkClient:
    """How the processes of the chaos write to the sink, on a loop or in a thread."""

    def __init__(self, folder: Path, by: str) -> None:
        self._by = by
        self._one_at_a_time = threading.Lock()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(folder / _SOCKET))
        self._answers = self._socket.makefile("rb")

    def write(self, key: str, fence: int, *, once: bool = False) -> Answer:
        """Say what became of an effect."""
        with self._one_at_a_time:
            request = json.dumps([self._by, key, fence, once])
            self._socket.sendall(request.encode() + b"\n")
            answer = self._answers.readline().decode().strip()
        if not answer:
            raise ConnectionError("the sink of the chaos is gone")
        return answer  # type: ignore[return-value]


async def main(folder: str, *options: str) -> None:
    """Serve until killed."""
    sink = Sink(Path(folder), fenced="--unfenced" not in options)
    server = await asyncio.start_unix_server(sink.serve, Path(folder) / _SOCKET)
    tell("ready")
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
