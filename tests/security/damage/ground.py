"""Where scenes are played: a namespace of its own for each, on a store whose guards are down."""

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from tenure.core.clock import SystemClock
from tenure.stores.connect import connect
from tests.rig.fixtures import Endpoint
from tests.security.damage.places import OfPostgres, OfSqlite, Spoiler
from tests.security.damage.redis_places import OfRedis
from tests.security.damage.scene import Scene, fill

__all__ = ["Ground", "ground_of"]


@dataclass
class Ground:
    """One store, as an app sees it and as the code that spoils it sees it."""

    family: str
    url: str
    admin_url: str
    folder: Path

    @contextmanager
    def scene(self, copies: int) -> Iterator[tuple[str, str, Scene, Spoiler]]:
        """Fill a new namespace; in a file of its own, if it is one of SQLite."""
        namespace = f"s{secrets.token_hex(5)}"
        url = self.url or f"sqlite:///{self.folder / namespace}.db"
        scene = asyncio.run(filled(url, namespace, copies))
        spoiler = self._spoiler(url, namespace)
        try:
            yield url, namespace, scene, spoiler
        finally:
            spoiler.close()

    def _spoiler(self, url: str, namespace: str) -> Spoiler:
        if self.family == "sqlite":
            return OfSqlite(url.removeprefix("sqlite:///"), namespace)
        if self.family == "redis":
            return OfRedis(self.admin_url, namespace)
        return OfPostgres(self.admin_url, namespace)


async def filled(url: str, namespace: str, copies: int) -> Scene:
    store = connect(url, namespace=namespace, clock=SystemClock())
    await store.open()
    try:
        return await fill(store, copies)
    finally:
        await store.close()


def ground_of(request: pytest.FixtureRequest, family: str, folder: Path) -> Iterator[Ground]:
    """Yield the ground of a store; on PostgreSQL a database without constraints."""
    if family == "sqlite":
        yield Ground(family, "", "", folder)
        return
    if family == "redis":
        server: Endpoint = request.getfixturevalue("valkey_server")
        yield Ground(family, server.app_url, server.url, folder)
        return
    server = request.getfixturevalue("postgres_server")
    name = f"s{secrets.token_hex(5)}"
    url = f"{server.url.rpartition('/')[0]}/{name}"
    with psycopg.connect(server.url, autocommit=True) as db:
        db.execute(f'CREATE DATABASE "{name}"'.encode())
    asyncio.run(filled(url, "first", 1))
    hand = OfPostgres(url, "first")
    hand.drop_constraints()
    hand.close()
    yield Ground(family, url, url, folder)
    with psycopg.connect(server.url, autocommit=True) as db:
        db.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())
