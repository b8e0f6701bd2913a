"""Jobs that a worker has handed back with a delay although they were due.

A burst worker stops when nothing is due. These jobs look delayed in the store, but the burst must
still wait for them.
"""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import islice

from tenure.core.jobs.records import BATCH_MAX, JobRecord
from tenure.runtime.attempts.settler import Settler
from tenure.runtime.store_retry import Retrier
from tenure.stores.contract import Store

__all__ = ["PostponedJobs"]


class PostponedJobs:
    """Hands jobs back with a delay, and tracks those that still wait."""

    def __init__(
        self,
        store: Store,
        retrier: Retrier,
        settler: Settler,
        *,
        stopped: asyncio.Event,
        burst: bool,
    ) -> None:
        self._store = store
        self._retrier = retrier
        self._settler = settler
        self._stopped = stopped
        self._is_burst = burst
        self._claims: dict[str, int] = {}  # by job: its number of claims when it was handed back

    def hand_back(self, record: JobRecord, delay: float, *, reason: str) -> None:
        """Hand a job back with a delay, without counting a failure."""
        if self._is_burst:
            self._claims[record.id] = record.attempt
        self._settler.hand_back(record, delay, reason=reason)

    async def any_waiting(self) -> bool:
        """Whether one of the jobs still waits, and no worker has claimed it since."""
        try:
            while self._claims:
                ids = list(islice(self._claims, BATCH_MAX))
                get = partial(self._store.jobs.get, ids)
                records = await self._retrier.until_answered("get", get, give_up=self._stopped)
                if any(map(self._still_waits, ids, records)):
                    return True
        except Exception:  # noqa: BLE001 - logged by `Retrier`, and this worker is about to leave
            return True
        return False

    def _still_waits(self, id_: str, record: JobRecord | None) -> bool:
        if record and record.state == "waiting" and record.attempt == self._claims[id_]:
            return True
        del self._claims[id_]
        return False
