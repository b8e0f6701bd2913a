"""Ends an attempt in a transaction of the user: `current_job().transaction(connection)`.

It locks the job's record, runs the block, settles the job and commits. So the user's writes and the
success of the job are one commit.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Self, TypeVar

from msgspec import Struct

from tenure.core.jobs.endings import succeeded
from tenure.core.jobs.records import JobRecord
from tenure.core.jobs.results import store_result
from tenure.core.values.signature import Signature
from tenure.errors import AttemptOver, ConfigError, TooLarge
from tenure.stores.contract import UserTransaction
from tenure.stores.transaction import run_sync

__all__ = ["Ending", "JobTransaction"]

T = TypeVar("T")


class Ending(Struct, frozen=True):
    """What a transaction needs to settle an attempt as succeeded."""

    signature: Signature
    history: Callable[[], bytes]
    """Returns the job's history with this attempt as succeeded."""
    result_limit: int


class JobTransaction:
    """A block whose writes are committed together with the end of the job. Enter it once.

    `async with` works with every connection, plain `with` with synchronous connections only.
    """

    def __init__(
        self,
        within: UserTransaction,
        record: JobRecord,
        ending: Ending,
        on_commit: Callable[[], None],
    ) -> None:
        self._within = within
        self._record = record
        self._ending = ending
        self._on_commit = on_commit
        self._result: bytes | None = None
        self.is_open = False

    def result(self, value: T) -> T:
        """Set the result of the job, and return it. The result is None if this is never called.

            return done.result(f"parcel {order}")

        Raises TooLarge, or TypeError if the value does not fit the return type of the task. Nothing
        is committed then.
        """
        if inspect.iscoroutine(value):
            value.close()
            msg = "result() takes what a coroutine returns, not the coroutine: await it."
            raise TypeError(msg)
        written, limit = self._ending.signature.encode_result(value), self._ending.result_limit
        if written.problem:
            msg = f"this value cannot be the job's result: {written.problem}"
            raise TypeError(msg)
        if written.size > limit:
            raise TooLarge("the result", written.size, limit, "result_limit")
        self._result, _ = store_result(written, limit)
        return value

    async def __aenter__(self) -> Self:
        await self._begin(on_loop=True)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            await self._undo()
        elif self._within.blocks:
            await self._finish()
        else:
            finishing = asyncio.ensure_future(self._finish())
            try:
                await asyncio.shield(finishing)
            except asyncio.CancelledError:
                await (
                    finishing
                )  # wait for a commit that was sent; a second cancellation ends the wait
                raise

    def __enter__(self) -> Self:
        if not self._within.blocks:
            msg = "this connection is asynchronous: write 'async with current_job().transaction'."
            raise ConfigError(msg)
        run_sync(self._begin(on_loop=False))
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        run_sync(self._finish() if error is None else self._undo())

    async def _begin(self, *, on_loop: bool) -> None:
        record = self._record
        await self._within.begin(on_loop=on_loop)
        try:
            if not await self._within.hold(record.id, record.fence):
                raise AttemptOver(record.id, record.fence)
        except BaseException:
            await self._within.rollback()
            raise
        self.is_open = True

    async def _finish(self) -> None:
        """Settle the job and commit. Rolls back on any error."""
        record = self._record
        end = succeeded(record, result=self._result, history=self._ending.history())
        try:
            if await self._within.settle(end) != "settled":
                raise AttemptOver(record.id, record.fence)
            await self._within.commit()
        except BaseException:
            await self._undo()
            raise
        self._on_commit()
        self.is_open = False

    async def _undo(self) -> None:
        try:
            await self._within.rollback()
        finally:
            self.is_open = False
