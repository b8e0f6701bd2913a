"""Where the keeper runs: in a thread of its own, started when the first lease is kept.

With a virtual clock it runs on the caller's loop instead, because a second thread would make the
order of events depend on the machine.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress

from tenure.observe.events import Events
from tenure.runtime.keeper import Keeper, Kept
from tenure.stores.contract import Store

__all__ = ["KeeperHost"]

log = logging.getLogger("tenure")

# Closing waits this long for the keeper's last call; the thread is a daemon, so it never
# keeps a process alive.
_STOP_TIMEOUT = 6.0


class KeeperHost:
    """The keeper of one app. Nothing runs until something is kept."""

    def __init__(self, store: Store, events: Events) -> None:
        self._virtual = store.clock.virtual
        self._keeper = Keeper(store.clone(), events)
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def keep(self, kept: Kept) -> None:
        # A keeper that has ended by an error of ours is worth a second try.
        if self._task is None or self._task.done():
            self._start()
        self._keeper.keep(kept)

    def drop(self, kept: Kept) -> None:
        self._keeper.drop(kept)

    def forget(self, kept: Kept) -> None:
        self._keeper.forget(kept)

    async def close(self) -> None:
        """Stop the keeper and wait for it. What is still held ends with its ttl."""
        task = self._task
        if task is None or task.done():
            return
        if self._thread is None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            return
        assert self._loop is not None
        with suppress(RuntimeError):  # the thread has ended by itself
            self._loop.call_soon_threadsafe(task.cancel)
        await asyncio.to_thread(self._thread.join, _STOP_TIMEOUT)

    def _start(self) -> None:
        if self._virtual:
            self._task = asyncio.ensure_future(self._keeper.run())
            return
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(self._keeper.run())
        self._thread = threading.Thread(target=self._run, name="tenure-keeper", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._task = None  # so that the next lease tries again
            raise

    def _run(self) -> None:
        assert self._loop is not None
        assert self._task is not None
        task = self._task
        try:
            self._loop.run_until_complete(task)
        except asyncio.CancelledError:
            pass
        except Exception:
            # Holds still turn lost by their own look at the clock; only nobody tells them.
            log.exception("the keeper has ended; nothing is renewed any more")
        finally:
            self._loop.close()
