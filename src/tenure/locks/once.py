"""Run something once, for good, over all replicas and restarts.

What was done is a mark in the store, written in the same atomic step that proves the lease is
still held. A crash before the mark lets another replica run the body again: so the body must be
safe to repeat (`CREATE INDEX IF NOT EXISTS`, `UPDATE ... WHERE migrated IS NULL`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import msgspec

from tenure.core.leases import Mark, storable
from tenure.errors import LeaseLost, OnceFailed, StoreError, StoreUnavailable
from tenure.locks.hold import Hold
from tenure.locks.lock import Lock, run_anywhere
from tenure.runtime.store_retry import until_available
from tenure.stores.contract import Store

__all__ = ["run_once"]

_ERROR_LENGTH_MAX = 2000


class _Result(msgspec.Struct, frozen=True):
    """What a mark says about one (name, version)."""

    state: Literal["done", "failed"]
    error: str = ""


async def run_once(
    lock: Lock, store: Store, name: str, version: int | str, call: Callable[[], Any]
) -> bool:
    """Run `call` unless (name, version) has succeeded before; see `app.once`."""
    key = f"once:{version}:{name}"  # a version has no colon
    before = await _marked(store, key)
    if _state(before) == "done":
        return False
    async with lock as hold:
        now = await _marked(store, key)
        if _state(now) == "done":
            return False
        if now is not None and now != before:
            # It failed while this caller waited for it: that is its answer too.
            raise OnceFailed(name, version, _result(now).error)
        try:
            await run_anywhere(call)
        except Exception as error:
            text = storable(f"{type(error).__name__}: {error}", _ERROR_LENGTH_MAX)
            await _mark(store, key, hold, _Result("failed", text))
            raise OnceFailed(name, version, text) from error
        await _mark(store, key, hold, _Result("done"))
        return True


async def _marked(store: Store, key: str) -> Mark | None:
    [mark] = await store.leases.marked([key])
    return mark


def _state(mark: Mark | None) -> str | None:
    return _result(mark).state if mark is not None else None


def _result(mark: Mark) -> _Result:
    try:
        return msgspec.json.decode(mark.value, type=_Result)
    except (ValueError, RecursionError) as error:
        msg = (
            f"the mark {mark.key!r} cannot be read, so it is unknown whether it has run. Remove "
            "the mark to have it run again; 'tenure doctor' says where it is."
        )
        raise StoreError(msg) from error


async def _mark(store: Store, key: str, hold: Hold, result: _Result) -> None:
    """Store the result; repeating it after a lost reply changes nothing."""
    value = msgspec.json.encode(result).decode()

    def give_up_if_lost(_: int, error: StoreUnavailable) -> None:
        if hold.is_lost:
            raise error

    mark = partial(store.leases.mark, key, hold.lease, value)
    if not await until_available(store.clock, mark, give_up_if_lost):
        raise LeaseLost(hold.name, hold.fence, "it ended before its result could be stored")
