"""Where a storm takes place: a store of its own, and a network to it that can be broken."""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tenure import Tenure
from tests.chaos.labour import BOOKS, connected
from tests.rig.proxy import Proxy
from tests.rig.servers import Postgres, Valkey, find_postgres, find_valkey

Family = Literal["sqlite", "redis", "postgres"]
FAMILIES: tuple[Family, ...] = ("sqlite", "redis", "postgres")

PASSWORD = f"store-secret-{secrets.token_hex(8)}"
"""Part of every url that can have one. It must not be in any log."""


@dataclass
class Place:
    """One store under test."""

    family: Family
    folder: Path
    url: str
    """Straight to the store."""
    namespace: str
    server: Valkey | Postgres | None = None
    network: Proxy | None = None

    @property
    def far_url(self) -> str:
        """The way through the network that can be broken, if there is one."""
        return self.network.url(self.url) if self.network else self.url

    @property
    def has_tables(self) -> bool:
        return self.family != "redis"

    def app(self) -> Tenure:
        return Tenure(self.url, namespace=self.namespace, replica_ttl=1)

    async def make_books(self) -> None:
        """Make the users' own table."""
        if self.has_tables:
            async with connected(self.url) as (_, execute):
                await execute(f"CREATE TABLE {BOOKS} (number BIGINT, fence BIGINT)")

    async def booked(self) -> list[int]:
        """Return what jobs have written in their own transactions."""
        if not self.has_tables:
            return []
        async with connected(self.url) as (_, execute):
            return [row[0] for row in await execute(f"SELECT number FROM {BOOKS}")]


def missing(family: Family) -> str:
    """Say why this store cannot be tried here; empty if it can."""
    programs = {"sqlite": "", "redis": find_valkey(), "postgres": find_postgres()}
    return "" if programs[family] is not None else "its server program was not found"


@contextmanager
def opened(
    family: Family,
    folder: Path,
    *,
    env: Mapping[str, str] | None = None,
    data: Path | None = None,
) -> Iterator[Place]:
    """Start a store that keeps what it has acknowledged, as durably as its grade says.

    `env` is given to its server, if it has one; `data` is where to keep everything.
    """
    namespace = f"chaos-{secrets.token_hex(3)}"
    with ExitStack() as stack:
        if family == "sqlite":
            home = data or folder
            home.mkdir(exist_ok=True)
            yield Place(family, folder, f"sqlite:///{home / 'tenure.db'}", namespace)
            return
        server: Valkey | Postgres
        if family == "redis":
            # With "always" it ends itself when its disk is full.
            flush = "always" if data is None else "everysec"
            server = Valkey(config={"appendfsync": flush}, password=PASSWORD, env=env, data=data)
            stack.enter_context(server)
            url = server.url
            network = stack.enter_context(Proxy(server.port, "resp"))
        else:
            server = stack.enter_context(Postgres(durable=True, env=env, data=data))
            # It asks for none, and a client sends what it has only if asked.
            url = server.url.replace("tenure@", f"tenure:{PASSWORD}@")
            network = stack.enter_context(Proxy(server.port, "postgres"))
        yield Place(family, folder, url, namespace, server, network)
