"""Private real servers: child processes on loopback ports, with their data in temporary folders.

    with Valkey() as server:
        client = redis.asyncio.Redis.from_url(server.url)

Every server can be stopped, killed, paused, resumed and restarted with the same port and the same
data. No server outlives the process that made it.
"""

import atexit
import os
import pwd
import random
import shutil
import signal
import socket
import struct
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.rig.binaries import find_postgres, find_valkey
from tests.rig.scratch import new_folder
from tests.rig.spawn import Identity, freeze_family, kill_family, run, send, spawn
from tests.rig.waiting import wait_until

__all__ = ["Postgres", "Server", "Valkey", "find_postgres", "find_valkey"]

_LOOPBACK = "127.0.0.1"
_READY_WITHIN = 30.0
_STOPPED_WITHIN = 30.0
_PORT_ATTEMPTS = 5
_TAIL = 4000

_servers: set["Server"] = set()


class ServerFailedError(RuntimeError):
    """The server did not do what it was told; the message ends with the tail of its log."""


class Server(ABC):
    """A server that runs as a child process of this one."""

    name: str
    stop_signal: signal.Signals
    """Asks for an orderly end, without waiting for clients to leave."""
    quick_signal: signal.Signals
    """Ends the server at once, leaving nothing behind outside its folder."""

    def __init__(
        self,
        identity: Identity,
        *,
        on_disk: bool,
        env: Mapping[str, str] | None = None,
        data: Path | None = None,
    ) -> None:
        self._env = dict(env or {})
        self.folder = new_folder(self.name, on_disk=on_disk)
        self.data = data or self.folder / "data"
        self.log = self.folder / "server.log"
        self.identity = identity
        self._process: subprocess.Popen[bytes] | None = None
        self._paused: list[int] = []
        self._port: int | None = None
        self._owner = os.getpid()
        _servers.add(self)

    @property
    def port(self) -> int:
        """The port, which stays the same over every restart; known after the first start."""
        assert self._port is not None, "the server has not been started yet"
        return self._port

    @property
    @abstractmethod
    def url(self) -> str:
        """Where clients connect to."""

    @property
    def pid(self) -> int:
        """The pid of the running server's main process."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Say whether the main process exists; a paused server counts as running."""
        return self._process is not None and self._process.poll() is None

    def answers(self) -> bool:
        """Say whether the server runs and serves clients."""
        return self.running and self._answers(self.port)

    def start(self) -> Self:
        """Start the server and return when it answers; raise with its log when it does not."""
        assert not self.running, "the server is running already"
        attempts = 1 if self._port is not None else _PORT_ATTEMPTS
        for attempts_left in reversed(range(attempts)):
            port = self._port or free_port()
            try:
                self._start_on(port)
            except ServerFailedError:
                # Another process may have taken the port between our look and the server's bind.
                if attempts_left and "in use" in self._tail():
                    continue
                raise
            self._port = port
            break
        return self

    def stop(self) -> None:
        """End the server in an orderly way; nothing happens when it is not running."""
        self._end_with(self.stop_signal, _STOPPED_WITHIN)

    def kill(self) -> None:
        """SIGKILL every process of the server at once."""
        if self._process is not None:
            kill_family(self._process)
        self._forget_process()

    def pause(self) -> None:
        """SIGSTOP every process of the server: connections stay open, nothing is answered."""
        self._paused = freeze_family(self.pid)

    def resume(self) -> None:
        """Let a paused server go on."""
        # The main process last: it must not see children that do not answer.
        send(reversed(self._paused), signal.SIGCONT)
        self._paused = []

    def restart(self) -> None:
        """End the server in an orderly way and start it again with the same port and data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """End the server and remove its folder; may be called at any time, and again."""
        if os.getpid() != self._owner:
            return  # a forked copy of the owner must not end the owner's server
        with suppress(ServerFailedError):  # a server that did not obey has been killed instead
            self._end_with(self.quick_signal, 5.0)
        self._clean_up()
        shutil.rmtree(self.folder, ignore_errors=True)
        _servers.discard(self)

    def __enter__(self) -> Self:
        try:
            return self if self.running else self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @abstractmethod
    def _command(self, port: int) -> list[str | Path]:
        """Prepare the folder if needed and return the command line."""

    @abstractmethod
    def _answers(self, port: int) -> bool:
        """Say whether *this* server, and no other on the same port, serves clients."""

    @abstractmethod
    def _clean_up(self) -> None:
        """Remove what the ended server has left behind outside its folder."""

    def _start_on(self, port: int) -> None:
        command = self._command(port)
        with self.log.open("ab") as log:
            self._process = process = spawn(
                command,
                identity=self.identity,
                stdout=log,
                stderr=log,
                env={**_clean_environment(), **self._env},
                cwd=self.folder,
            )
        try:
            wait_until(
                lambda: process.poll() is not None or self._answers(port), _READY_WITHIN, "ready"
            )
        except AssertionError:
            self.kill()
            raise self._failure("did not get ready") from None
        if process.poll() is not None:
            self._forget_process()
            raise self._failure(f"ended with {process.returncode} instead of getting ready")

    def _end_with(self, number: signal.Signals, timeout: float) -> None:
        if (process := self._process) is None:
            return
        self.resume()
        send([process.pid] if process.poll() is None else [], number)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise self._failure(f"did not end within {timeout:g} s of {number.name}") from None
        finally:
            self.kill()

    def _forget_process(self) -> None:
        self._process = None
        self._paused = []

    def _failure(self, what: str) -> ServerFailedError:
        return ServerFailedError(f"{self.name} {what}; the end of its log:\n{self._tail()}")

    def _tail(self) -> str:
        return self.log.read_bytes()[-_TAIL:].decode(errors="replace")


class Valkey(Server):
    """A Valkey (or Redis) server that keeps what it acknowledged, unless told otherwise.

    `config` is merged over the rig's own settings; the values stand in the configuration file as
    they are given. `env` is added to its environment; `data` is where to keep its files.
    """

    name = "valkey"
    stop_signal = signal.SIGTERM
    quick_signal = signal.SIGKILL

    def __init__(
        self,
        *,
        config: Mapping[str, str] | None = None,
        password: str | None = None,
        env: Mapping[str, str] | None = None,
        data: Path | None = None,
    ) -> None:
        binary = find_valkey()
        if binary is None:
            raise FileNotFoundError("no valkey-server or redis-server found")
        super().__init__("self", on_disk=False, env=env, data=data)
        self.data.mkdir()
        self._binary = binary
        self._config = dict(config or {})
        self._password = password

    @property
    def url(self) -> str:
        secret = "" if self._password is None else f":{self._password}@"
        return f"redis://{secret}{_LOOPBACK}:{self.port}/0"

    def restart(self, *, empty: bool = False) -> None:
        """Restart with the same port; with `empty`, all data is lost."""
        self.stop()
        if empty:
            shutil.rmtree(self.data)
            self.data.mkdir()
        self.start()

    def _command(self, port: int) -> list[str | Path]:
        settings = {
            "bind": _LOOPBACK,
            "port": str(port),
            "dir": str(self.data),
            "daemonize": "no",
            "save": '""',
            "appendonly": "yes",
            "appendfsync": "everysec",
        }
        if self._password is not None:
            settings["requirepass"] = self._password
        settings |= self._config
        file = self.folder / "valkey.conf"
        file.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        return [self._binary, file]

    def _answers(self, port: int) -> bool:
        login = [] if self._password is None else [_resp("AUTH", self._password)]
        try:
            with socket.create_connection((_LOOPBACK, port), 1.0) as connection:
                connection.sendall(b"".join([*login, _resp("INFO", "server"), _resp("PING")]))
                answer = _read_until(connection, b"+PONG\r\n")
        except OSError:
            return False
        return b"process_id:%d\r\n" % self.pid in answer

    def _clean_up(self) -> None:
        """Do nothing: all a Valkey server leaves behind lies in its folder."""


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
        identity = run_as or _unprivileged()
        self._binary = _reachable(binary) if identity == "nobody" else binary
        super().__init__(identity, on_disk=durable, env=env, data=data)
        self._config = {**self._settings(durable), **(config or {})}

    @property
    def url(self) -> str:
        return f"postgresql://tenure@{_LOOPBACK}:{self.port}/tenure"

    @staticmethod
    def _settings(durable: bool) -> dict[str, str]:
        flush = "on" if durable else "off"
        return {
            "listen_addresses": _LOOPBACK,
            "unix_socket_directories": "",
            "max_connections": "200",
            "fsync": flush,
            "full_page_writes": flush,
            "shared_buffers": "32MB",
            # In the data folder, so that a killed server leaves nothing behind in /dev/shm.
            "dynamic_shared_memory_type": "mmap",
        }

    def _command(self, port: int) -> list[str | Path]:
        if not self.data.exists():
            shutil.copytree(_fresh_cluster(self._binary, self.identity), self.data)
            if self.identity == "nobody":
                _give_to_nobody(self.folder)
        settings = {"port": str(port), **self._config}
        options = [part for item in settings.items() for part in ("-c", "=".join(item))]
        return [self._binary, "-D", self.data, *options]

    def _answers(self, port: int) -> bool:
        try:
            status = (self.data / "postmaster.pid").read_text().splitlines()[7:8]
        except FileNotFoundError:
            return False
        # The file says "ready" only of a server that got its port, so no other one can be there.
        return status == ["ready   "] and _postgres_accepts(port)

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


@atexit.register
def _close_all() -> None:
    for server in list(_servers):
        server.close()


@cache
def _unprivileged() -> Identity:
    """Return the identity that lets this user run PostgreSQL."""
    if os.geteuid() != 0:
        return "self"
    try:
        run(["true"], identity="namespace")
    except RuntimeError:
        return "nobody"
    return "namespace"


@cache
def _reachable(postgres: Path) -> Path:
    """Return a PostgreSQL installation that the user nobody may run: this one or a copy."""
    try:
        run([postgres, "--version"], identity="nobody", cwd=Path("/"))
    except RuntimeError:
        return _public_copy(postgres)
    return postgres


def _public_copy(postgres: Path) -> Path:
    # On disk, because programs may not run from the memory of many containers.
    folder = new_folder("programs", on_disk=True)
    folder.chmod(0o755)
    installation = postgres.parent.parent
    package = installation.parent
    copied = folder / package.name / installation.name
    shutil.copytree(installation, copied, ignore=shutil.ignore_patterns("include", "doc"))
    # A wheel keeps shared libraries in a folder beside its package and finds them from there.
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, folder / libraries.name)
    return copied / "bin" / postgres.name


@cache
def _fresh_cluster(postgres: Path, identity: Identity) -> Path:
    """Return the data folder of a cluster that was never started: to copy, which beats `initdb`."""
    folder = new_folder("cluster")
    if identity == "nobody":
        _give_to_nobody(folder)
    data = folder / "data"
    env = _clean_environment()
    switches = "--username=tenure --auth=trust --no-sync --encoding=UTF8 --locale=C --wal-segsize=4"
    initdb: list[str | Path] = [postgres.with_name("initdb"), f"--pgdata={data}", *switches.split()]
    run(initdb, identity=identity, env=env, cwd=folder)
    # Renamed rather than created, because every database is hundreds of files more to copy.
    rename = b"ALTER DATABASE postgres RENAME TO tenure"
    alone: list[str | Path] = [postgres, "--single", "-D", data, "-c", "fsync=off", "template1"]
    run(alone, identity=identity, given=rename, env=env, cwd=folder)
    return data


def _give_to_nobody(folder: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    folder.chmod(0o755)
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, nobody.pw_uid, nobody.pw_gid)


def _clean_environment() -> dict[str, str]:
    """Return the environment without the variables that change what a server or `initdb` does."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("PG", "LC_"))}


def free_port() -> int:
    """Return a loopback port nobody listens on, outside the range of outgoing connections.

    Inside that range, another connection could take the port while the server is down, and a client
    that retries could even be connected to itself.
    """
    ports = random.SystemRandom()
    while True:
        port = ports.randrange(15000, _first_outgoing_port())
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_LOOPBACK, port))
            except OSError:
                continue
            return port


def _first_outgoing_port() -> int:
    setting = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first = int(setting.read_text().split()[0]) if setting.exists() else 49152
    # A machine with an unusually low range gets no gap to choose from; then overlap with it.
    return first if first > 16000 else 32768


def _resp(*words: str) -> bytes:
    parts = (b"$%d\r\n%s\r\n" % (len(word.encode()), word.encode()) for word in words)
    return b"*%d\r\n" % len(words) + b"".join(parts)


def _postgres_accepts(port: int) -> bool:
    """Log in as a client would, and leave; say whether the server was ready for a query."""
    parameters = b"user\0tenure\0database\0tenure\0\0"
    hello = struct.pack("!II", 8 + len(parameters), 3 << 16) + parameters
    ready_for_query = b"Z\0\0\0\5I"
    terminate = b"X\0\0\0\4"
    try:
        with socket.create_connection((_LOOPBACK, port), 1.0) as connection:
            connection.sendall(hello)
            _read_until(connection, ready_for_query)
            connection.sendall(terminate)
    except OSError:
        return False
    return True


def _read_until(connection: socket.socket, end: bytes) -> bytes:
    """Read until the bytes received end with `end`; raise `ConnectionError` if they never do."""
    received = b""
    while not received.endswith(end):
        piece = connection.recv(65536)
        if not piece:
            raise ConnectionError(f"closed after {received!r}")
        received += piece
    return received
