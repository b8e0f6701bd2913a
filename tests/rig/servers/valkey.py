"""A Valkey or Redis server."""

import shutil
import signal
import socket
from collections.abc import Mapping
from pathlib import Path

from tests.rig.binaries import find_valkey
from tests.rig.servers.server import Server
from tests.rig.servers.sockets import LOOPBACK, read_until

__all__ = ["Valkey"]


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
        return f"redis://{secret}{LOOPBACK}:{self.port}/0"

    def restart(self, *, empty: bool = False) -> None:
        """Restart with the same port; with `empty`, all data is lost."""
        self.stop()
        if empty:
            shutil.rmtree(self.data)
            self.data.mkdir()
        self.start()

    def _command(self, port: int) -> list[str | Path]:
        settings = {
            "bind": LOOPBACK,
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
            with socket.create_connection((LOOPBACK, port), 1.0) as connection:
                connection.sendall(b"".join([*login, _resp("INFO", "server"), _resp("PING")]))
                answer = read_until(connection, b"+PONG\r\n")
        except OSError:
            return False
        return b"process_id:%d\r\n" % self.pid in answer

    def _clean_up(self) -> None:
        """Do nothing: all a Valkey server leaves behind lies in its folder."""


def _resp(*words: str) -> bytes:
    parts = (b"$%d\r\n%s\r\n" % (len(word.encode()), word.encode()) for word in words)
    return b"*%d\r\n" % len(words) + b"".join(parts)
