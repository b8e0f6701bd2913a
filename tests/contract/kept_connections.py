"""Keeps connections to PostgreSQL for the next test, because a new one costs more than most tests.

A new server process reads the catalogs and plans each function of the schema anew: two thirds of
the CPU time of these tests. A connection belongs to an event loop, so the tests that share
connections share a loop as well, and nothing else: each has a namespace and store objects of its
own, and no call leaves anything in a session. The marker `own_connections` is for tests about
opening, closing and cancelling.
"""

import asyncio
from typing import Any

from tenure.core.clock import Clock
from tenure.stores.postgres import PostgresStore
from tenure.stores.postgres.connector import Connector

__all__ = ["KeptConnections"]

_KEPT_MAX = 8  # more than most tests use at once


class KeptConnections:
    """An event loop for many tests, and idle connections to one URL that are open on it."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self._idle: list[Any] = []

    def store(self, url: str, *, namespace: str, clock: Clock) -> PostgresStore:
        """Return a store object that borrows its connections. Its clones open their own."""
        store = PostgresStore(url, namespace=namespace, clock=clock)
        lender: Any = _Lender(store._connector, self._idle)
        store._connector = lender
        return store

    def end_test(self) -> None:
        """Cancel the tasks that a test left behind, as closing a loop of its own would."""
        self.runner.run(_cancel_others())
        self.runner.get_loop().set_exception_handler(None)

    def close(self) -> None:
        """Close the connections and the loop."""
        self.runner.run(self._close_all())
        self.runner.close()

    async def _close_all(self) -> None:
        while self._idle:
            await self._idle.pop().close()


class _Lender:
    """Takes the place of the connector of a store object."""

    def __init__(self, connector: Connector, idle: list[Any]) -> None:
        self._connector = connector
        self._idle = idle
        self.close = connector.close

    async def dial(self) -> Any:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return _Loan(connection, self._idle)
        return _Loan(await self._connector.dial(), self._idle)


class _Loan:
    """A connection that closing gives back."""

    def __init__(self, connection: Any, idle: list[Any]) -> None:
        self._connection = connection
        self._idle = idle
        self._is_over = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def is_closed(self) -> bool:
        return self._is_over or self._connection.is_closed()

    def terminate(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._connection.terminate()

    async def close(self, *, timeout: float | None = None) -> None:
        if self.is_closed():
            return
        self._is_over = True
        if len(self._idle) < _KEPT_MAX:
            self._idle.append(self._connection)
        else:
            await self._connection.close(timeout=timeout)


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
