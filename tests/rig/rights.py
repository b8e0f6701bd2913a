"""Users with the least rights, on the servers of the rig: exactly as docs/security.md makes them.

Most tests connect as such a user. So whoever uses one more command, or needs one more right, finds
the tests red until the page says so.
"""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg

from tenure.core.clock import SystemClock
from tenure.stores.connect import connect

_PAGE = Path(__file__).parents[2] / "docs" / "security.md"


def redis_user() -> dict[str, str]:
    """Return the setting that makes the user of the page known to a Valkey server."""
    [line] = blocks("text", "ACL SETUSER")
    # Without a password, so that URLs look alike wherever they are shown.
    return {"user": line.removeprefix("ACL SETUSER ").strip().replace(">change-me", "nopass")}


def make_postgres_roles(url: str) -> None:
    """Do on a server, as its superuser and then as the owner, what the page says."""
    parts = urlsplit(url)
    _ask(url, blocks("sql", "ROLE")[0].replace(" shop ", f" {parts.path[1:]} "))
    make_postgres_schema(url)
    # A place for tables of its own, as services have.
    _ask(url, "CREATE SCHEMA tenure_app AUTHORIZATION tenure_app")


def make_postgres_schema(url: str, *, anew: bool = False) -> None:
    """Create the schema as the owner, and let the other role use it; `anew` drops it before."""
    if anew:
        _ask(url, "DROP SCHEMA IF EXISTS tenure CASCADE")
    owner = as_owner(url)
    # In a thread, as the first test that asks for a server may be in a loop already.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(_migrate(owner))).result()
    _ask(owner, blocks("sql", "GRANT USAGE")[0])


def as_app(url: str) -> str:
    """Return the URL for who runs jobs and takes locks."""
    return _with_login(url, "tenure_app")


def as_owner(url: str) -> str:
    """Return the URL for who migrates a PostgreSQL database."""
    return _with_login(url, "tenure_owner")


def _with_login(url: str, login: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{login}@{parts.netloc.rpartition('@')[2]}"))


@cache
def blocks(language: str, word: str) -> list[str]:
    """Return the code blocks of the page that are in a language and contain a word."""
    page = _PAGE.read_text(encoding="utf-8")
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    return [block for block in blocks if word in block]


def _ask(url: str, statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in filter(str.strip, statements.split(";")):
            connection.execute(statement.encode())


async def _migrate(url: str) -> None:
    store = connect(url, namespace="migration", clock=SystemClock())
    await store.open("auto")
    await store.close()
