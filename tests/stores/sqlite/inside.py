"""Looks at a SQLite store from inside: its connection, its statements, its steps."""

import sqlite3
from contextlib import asynccontextmanager
from pathlib import Path

from tenure.core.durations import micros
from tenure.stores.sqlite import SqliteStore
from tenure.stores.sqlite.database import Mode
from tenure.testing import ManualClock
from tests.contract.calls import take


@asynccontextmanager
async def opened(file: Path, clock: ManualClock, migrate="auto"):
    store = SqliteStore(f"sqlite:///{file}", namespace="app", clock=clock)
    await store.open(migrate)
    try:
        yield store
    finally:
        await store.close()


class HandClock(ManualClock):
    """The clocks of one machine, moved by hand, and not known to be a test's."""

    virtual = False


def restarted(clock: ManualClock, boot_id: str = "another", *, took: float = 20) -> HandClock:
    """Return the clock of a machine that was started anew, `took` seconds ago by its wall clock."""
    again = HandClock(clock.wall())
    again.boot_id = boot_id
    again._boot = 5.0  # boot clocks begin at 0
    again._offset = clock.wall() + micros(took)
    return again


async def inside(store: SqliteStore, look, mode=Mode.READ):
    """Return what `look` does with the store's own connection, in its own thread."""
    return await store.run(lambda tx: look(tx._execute.__self__), mode)


async def leave_trace(store: SqliteStore) -> None:
    """Have the store say that this machine uses the file, which the next call need not do then."""
    await inside(store, lambda _: None, Mode.WRITE)


async def statements_of(store: SqliteStore, call) -> list[str]:
    """Return the statements that a call runs."""
    seen: list[str] = []
    await inside(store, lambda db: db.set_trace_callback(seen.append))
    await leave_trace(store)
    seen.clear()
    await call
    await inside(store, lambda db: db.set_trace_callback(None))
    return seen


async def steps_of(store: SqliteStore, call) -> int:
    """Return how many steps of SQLite's machine a call takes."""
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1

    await leave_trace(store)
    await inside(store, lambda db: db.set_progress_handler(step, 1))
    steps = 0
    await call
    taken = steps
    await inside(store, lambda db: db.set_progress_handler(None, 0))
    return taken


async def change(store: SqliteStore, statement: str, *values) -> None:
    """Write to the tables behind the store's back, whatever their constraints say."""

    def write(db: sqlite3.Connection) -> None:
        db.execute("PRAGMA ignore_check_constraints = ON")
        db.execute(statement, values)
        db.execute("PRAGMA ignore_check_constraints = OFF")

    await inside(store, write, Mode.WRITE)


async def count(store: SqliteStore, table: str) -> int:
    return await inside(store, lambda db: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


async def forced(store: SqliteStore, call) -> bool:
    """Make a call; return whether a commit of it waited for the disk."""
    await take(store, "a lease", "makes the next level known")  # not forced
    seen = await statements_of(store, call)
    assert any(statement.startswith("BEGIN IMMEDIATE") for statement in seen)
    levels = [statement for statement in seen if statement.startswith("PRAGMA synchronous")]
    return any(level.endswith("FULL") for level in levels)
