"""Cut the byte streams of RESP and of the PostgreSQL protocol into commands and replies.

One object reads one connection. It is fed pieces of any size and gives back whole parts, so that
joining what it gave back yields the stream it was fed.
"""

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Sent:
    """Something a client sent."""

    raw: bytes
    """The bytes for the server."""
    text: bytes = b""
    """What tells a command from another: its bytes, and for PostgreSQL the SQL it executes."""
    command: bool = False
    """Whether this counts as a command."""
    replies: int = 0
    """How many ends of a reply the server will send."""
    is_answered: bool = False
    """Whether the server answers without an end of a reply."""
    answer: bytes = b""
    """What the client is to be told at once, without asking the server."""


@dataclass(frozen=True)
class Received:
    """Something a server sent."""

    raw: bytes
    is_reply: bool
    """Whether this belongs to the reply to the oldest unanswered command, if there is one."""
    ends_reply: bool


class Wire(ABC):
    """Reads both directions of one connection."""

    def __init__(self) -> None:
        self._from_client = bytearray()
        self._from_server = bytearray()

    @abstractmethod
    def sent(self, piece: bytes) -> Iterator[Sent]:
        """Take bytes from the client and yield what is complete now."""

    @abstractmethod
    def received(self, piece: bytes) -> Iterator[Received]:
        """Take bytes from the server and yield what is complete now."""


class Resp(Wire):
    """RESP2 and RESP3. Every array from the client is a command, with one reply.

    What clients say to introduce themselves does not count, so the number of commands does not
    depend on which connections are open already. The commands that (un)subscribe are answered once
    for every channel.
    """

    _INTRODUCTIONS = (b"hello", b"auth", b"client", b"select")

    def sent(self, piece: bytes) -> Iterator[Sent]:
        self._from_client += piece
        for raw in _resp_values(self._from_client):
            count, _, name, *_ = raw.lower().split(b"\r\n", 3)
            replies = max(1, int(count[1:]) - 1) if name.endswith(b"subscribe") else 1
            yield Sent(raw, text=raw, command=name not in self._INTRODUCTIONS, replies=replies)

    def received(self, piece: bytes) -> Iterator[Received]:
        self._from_server += piece
        for raw in _resp_values(self._from_server):
            is_reply = not _is_push(raw)
            yield Received(raw, is_reply, ends_reply=is_reply)


class Postgres(Wire):
    """The PostgreSQL protocol 3. A command is a round trip that executes something.

    It ends with Sync or is a simple Query. Round trips that only log in, prepare or close do not
    count, so the number of commands does not depend on what a client has prepared already. Its
    text includes the SQL of the prepared statements it binds.
    """

    _PARTS = b"PBDEC"  # Parse, Bind, Describe, Execute, Close: followed by a Sync
    _CANCEL, _SSL, _GSS = 80877102, 80877103, 80877104

    def __init__(self) -> None:
        super().__init__()
        self._logging_in = True
        self._parts: list[bytes] = []
        self._sql: dict[bytes, bytes] = {}

    def sent(self, piece: bytes) -> Iterator[Sent]:
        self._from_client += piece
        while self._logging_in:
            raw = _taken(self._from_client, length_at=0)
            if raw is None:
                return
            yield self._login(raw)
        while (raw := _taken(self._from_client, length_at=1)) is not None:
            if raw[0] in self._PARTS:
                self._parts.append(raw)
                self._learn(raw)
            elif raw[0] in b"SQ":
                yield self._round_trip([*self._parts, raw])
                self._parts.clear()
            else:
                # The client may want an answer before the next Sync (Flush, data of a COPY).
                yield Sent(b"".join([*self._parts, raw]), is_answered=raw[0] == ord("H"))
                self._parts.clear()

    def received(self, piece: bytes) -> Iterator[Received]:
        self._from_server += piece
        while (raw := _taken(self._from_server, length_at=1)) is not None:
            # A notification (A) comes without having been asked for.
            yield Received(raw, is_reply=raw[0] != ord("A"), ends_reply=raw[0] == ord("Z"))

    def _login(self, raw: bytes) -> Sent:
        (code,) = struct.unpack_from("!I", raw, 4)
        if code in (self._SSL, self._GSS):
            # Refused here, since nothing could be read on an encrypted connection.
            return Sent(b"", answer=b"N")
        self._logging_in = False
        return Sent(raw, replies=0 if code == self._CANCEL else 1)

    def _learn(self, part: bytes) -> None:
        if part[0] == ord("P"):
            name, sql = part[5:].split(b"\0", 2)[:2]
            self._sql[name] = sql

    def _round_trip(self, parts: list[bytes]) -> Sent:
        text = [*parts]
        for part in parts:
            if part[0] == ord("B"):
                _portal, name = part[5:].split(b"\0", 2)[:2]
                text.append(self._sql.get(name, b""))
        executes = any(part[0] in b"EQ" for part in parts)
        return Sent(b"".join(parts), b"\n".join(text), command=executes, replies=1)


def _taken(buffer: bytearray, length_at: int) -> bytes | None:
    """Remove one whole PostgreSQL message from the front, or return None."""
    if len(buffer) < length_at + 4:
        return None
    (length,) = struct.unpack_from("!I", buffer, length_at)
    end = length_at + length
    if len(buffer) < end:
        return None
    message = bytes(buffer[:end])
    del buffer[:end]
    return message


def _resp_values(buffer: bytearray) -> Iterator[bytes]:
    """Remove whole values from the front and yield them."""
    while (end := _end_of_resp_value(buffer)) is not None:
        value = bytes(buffer[:end])
        del buffer[:end]
        yield value


def _end_of_resp_value(buffer: bytearray) -> int | None:
    at = 0
    missing = 1
    while missing:
        line_end = buffer.find(b"\r\n", at)
        if line_end < 0:
            return None
        kind, line = buffer[at], bytes(buffer[at + 1 : line_end])
        at = line_end + 2
        missing -= 1
        if kind in b"$!=":  # strings of a given length; -1 stands for none
            at += int(line) + 2 if int(line) >= 0 else 0
        elif kind in b"*~>":
            missing += max(0, int(line))
        elif kind in b"%|":  # pairs; the attributes of | stand before the value they belong to
            missing += 2 * int(line) + (kind == ord("|"))
    return at if at <= len(buffer) else None


def _is_push(value: bytes) -> bool:
    """Say whether a value came without having been asked for."""
    kind = value.split(b"\r\n", 3)[2] if value[:1] in (b">", b"*") and value[1:2] > b"0" else b""
    if value[:1] == b">":
        return not kind.endswith(b"subscribe")
    return kind in (b"message", b"pmessage", b"smessage")
