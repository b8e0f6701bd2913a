"""A PostgreSQL cluster."""

import shutil
import signal
import socket
import struct
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.rig.binaries import find_postgres
from tests.rig.servers.installation import fresh_cluster, give_to_nobody, reachable, unprivileged
from tests.rig.servers.server import Server, clean_environment
from tests.rig.servers.sockets import LOOPBACK, read_until
from tests.rig.spawn import Identity, run

__all__ = ["Postgres"]


class Postgres(Server):
    """A PostgreSQL cluster with a superuser and a database both named `tenure`, without passwords.

    `durable` makes it flush to disk as in production; without it, data survives every death of the
    server's processes but not one of the machine. PostgreSQL refuses to run as root; root therefore
    runs it with the identity of somebody else, which `run_as` can choose. `env` and `data` are as
    for `Valkey`.
    """

    name = "postgres"
    stop_signal = signal.SIGINT
    quick_signal = signal.SIGQUIT

    def __init__(
        self,
        *,
        durable: bool = False,
        config: Mapping[str, str] | None = None,
        run_as: Identity | None = None,
        env: Mapping[str, str] | None = None,
        data: Path | None = None,
    ) -> None:
        binary = find_postgres()
        if binary is None:
            raise FileNotFoundError("no postgres with initdb beside it found")
        identity = run_as or unprivileged()
        self._binary = reachable(binary) if identity == "nobody" else binary
        super().__init__(identity, on_disk=durable, env=env, data=data)
        self._config = {**self._settings(durable), **(config or {})}

    @property
    def url(self) -> str:
        return f"postgresql://tenure@{LOOPBACK}:{self.port}/tenure"

    @staticmethod
    def _settings(durable: bool) -> dict[str, str]:
        flush = "on" if durable else "off"
        return {
            "listen_addresses": LOOPBACK,
            "unix_socket_directories": "",
            "max_connections": "200",
            "fsync": flush,
            "full_page_writes": flush,
            "shared_buffers": "32MB",
            # In the data folder, so that a killed server leaves nothing behind in /dev/shm.
            "dynamic_shared_memory_type": "mmap",
        }

    def follow(self, primary: "Postgres") -> None:
        """Make this server, which was never started, a standby of a running one."""
        copy: list[str | Path] = [self._binary.with_name("pg_basebackup"), "-D", self.data]
        source = f"host={LOOPBACK} port={primary.port} user=tenure"
        options = ("--write-recovery-conf", "--checkpoint=fast", "--no-sync", "-d", source)
        if self.identity == "nobody":
            give_to_nobody(self.folder)
        run([*copy, *options], identity=self.identity, env=clean_environment(), cwd=self.folder)

    def _command(self, port: int) -> list[str | Path]:
        if not self.data.exists():
            shutil.copytree(fresh_cluster(self._binary, self.identity), self.data)
            if self.identity == "nobody":
                give_to_nobody(self.folder)
        settings = {"port": str(port), **self._config}
        options = [part for item in settings.items() for part in ("-c", "=".join(item))]
        return [self._binary, "-D", self.data, *options]

    def _answers(self, port: int) -> bool:
        try:
            status = (self.data / "postmaster.pid").read_text().splitlines()[7:8]
        except FileNotFoundError:
            return False
        # The file says so only of a server that got its port, so no other one can be there.
        return status in (["ready   "], ["standby "]) and _postgres_accepts(port)

    def _clean_up(self) -> None:
        """Free the bit of System V memory that a killed server leaves behind.

        In a namespace of its own the memory ended with the server, and its number may be another's.
        """
        try:
            memory = (self.data / "postmaster.pid").read_text().splitlines()[6].split()
        except (FileNotFoundError, IndexError):
            return  # the server was not killed
        if self.identity != "namespace" and len(memory) == 2:
            with suppress(FileNotFoundError):
                subprocess.run(["ipcrm", "-m", memory[1]], check=False, capture_output=True)


def _postgres_accepts(port: int) -> bool:
    """Log in as a client would, and leave; say whether the server was ready for a query."""
    parameters = b"user\0tenure\0database\0tenure\0\0"
    hello = struct.pack("!II", 8 + len(parameters), 3 << 16) + parameters
    ready_for_query = b"Z\0\0\0\5I"
    terminate = b"X\0\0\0\4"
    try:
        with socket.create_connection((LOOPBACK, port), 1.0) as connection:
            connection.sendall(hello)
            read_until(connection, ready_for_query)
            connection.sendall(terminate)
    except OSError:
        return False
    return True
