"""Loopback ports, and raw requests on them before any driver connects."""

import random
import socket
from pathlib import Path

__all__ = ["LOOPBACK", "free_port", "read_until"]

LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """Return a free loopback port, outside the range of outgoing connections.

    Inside that range, another connection could take the port while the server is down, and a client
    that retries could even be connected to itself.
    """
    ports = random.SystemRandom()
    while True:
        port = ports.randrange(15000, _first_outgoing_port())
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return port


def _first_outgoing_port() -> int:
    setting = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first = int(setting.read_text().split()[0]) if setting.exists() else 49152
    # A machine with an unusually low range gets no gap to choose from; then overlap with it.
    return first if first > 16000 else 32768


def read_until(connection: socket.socket, end: bytes) -> bytes:
    """Read until the bytes received end with `end`; raise `ConnectionError` if they never do."""
    received = b""
    while not received.endswith(end):
        piece = connection.recv(65536)
        if not piece:
            raise ConnectionError(f"closed after {received!r}")
        received += piece
    return received
