"""Health over a local socket: each connection gets one line of JSON."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from tenure.errors import ConfigError

__all__ = ["ask_health", "decode_health", "serve_health"]

_ANSWER_MAX = 10_000_000


@asynccontextmanager
async def serve_health(path: Path, status: Callable[[], dict[str, Any]]) -> AsyncIterator[None]:
    """Answer at this path inside the block. Raises ConfigError if another process does already."""
    _make_room(path)

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            writer.write(msgspec.json.encode(status()) + b"\n")
            await writer.drain()
        writer.close()

    try:
        server = await asyncio.start_unix_server(answer, path)
    except OSError as error:
        msg = f"the health socket {path} cannot be made: {error.strerror or error}."
        raise ConfigError(msg) from error
    made = _identity(path)
    try:
        yield
    finally:
        server.close()
        _remove(path, made)


def ask_health(path: Path, patience: float) -> dict[str, Any]:
    """Return what a supervisor answers. Raises OSError if there is none or it is silent."""
    if not hasattr(socket, "AF_UNIX"):
        msg = "health sockets need Linux, macOS or another Unix"
        raise OSError(msg)
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(patience)
        line.connect(os.fspath(path))
        answer = b""
        while (part := line.recv(65_536)) and len(answer) < _ANSWER_MAX:
            answer += part
    return decode_health(answer)


def decode_health(answer: bytes) -> dict[str, Any]:
    """Return the answer, decoded. Raises OSError for what no supervisor sends."""
    try:
        return msgspec.json.decode(answer, type=dict[str, Any])
    except (ValueError, RecursionError):
        msg = "what answers there is no worker"
        raise OSError(msg) from None


def _make_room(path: Path) -> None:
    """Remove a socket without a listener, and nothing else."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            msg = f"{path} is there already and is no socket. Name another path for --health."
            raise ConfigError(msg)
    except OSError:
        return
    with socket.socket(socket.AF_UNIX) as line:
        try:
            line.connect(os.fspath(path))
        except OSError:
            path.unlink(missing_ok=True)
            return
    msg = f"another supervisor answers at {path}. Give each one a --health path of its own."
    raise ConfigError(msg)


def _remove(path: Path, made: tuple[int, int] | None) -> None:
    """Remove our own socket, not one that took its place."""
    if _identity(path) == made:
        path.unlink(missing_ok=True)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
