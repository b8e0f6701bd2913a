"""Looks at a SQLite store from inside: its connection, its statements, its steps."""

from tenure.stores.sqlite import SqliteStore
from tenure.stores.sqlite.database import Mode


async def inside(store: SqliteStore, look, mode=Mode.READ):
    """Return what `look` does with the store's own connection, in its own thread."""
    return await store._run(lambda tx: look(tx._execute.__self__), mode)


async def statements_of(store: SqliteStore, call) -> list[str]:
    """Return the statements that a call runs."""
    seen: list[str] = []
    await inside(store, lambda db: db.set_trace_callback(seen.append))
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

    await inside(store, lambda db: db.set_progress_handler(step, 1))
    steps = 0
    await call
    taken = steps
    await inside(store, lambda db: db.set_progress_handler(None, 0))
    return taken
