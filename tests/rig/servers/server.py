"""The part that all servers share: a child process, its port, its folder and its end."""

import atexit
import os
import shutil
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.rig.scratch import new_folder
from tests.rig.servers.sockets import free_port
from tests.rig.spawn import Identity, freeze_family, kill_family, send, spawn
from tests.rig.wait import wait_until

__all__ = ["Server", "ServerFailedError", "clean_environment"]

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
                env={**clean_environment(), **self._env},
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


@atexit.register
def _close_all() -> None:
    for server in list(_servers):
        server.close()


def clean_environment() -> dict[str, str]:
    """Return the environment without the variables that change what a server or `initdb` does."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("PG", "LC_"))}
