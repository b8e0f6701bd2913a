"""Distinguishes the loss of all data in the store from the loss of one lock or one worker.

Both look alike: the store no longer knows a lease or a replica. So the id of the data is read when
an app opens, and compared when the store did not know something, or when renewals work again after
an outage. Without trouble this costs no calls.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tenure.core.store_policy import is_other_data
from tenure.errors import StoreUnavailable, TenureError
from tenure.observe.events import Events
from tenure.observe.store import DataLost
from tenure.stores.contract import Store

__all__ = ["DataLossDetector", "Holdings"]

log = logging.getLogger("tenure")

# The losses that this process has reported: several apps may notice the same one.
_reported: set[tuple[str, str, str]] = set()
_reporting = threading.Lock()


class Holdings(NamedTuple):
    """What a process has in the store: its replica, its running jobs, the names of its locks."""

    replica: str = ""
    jobs: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()

    def with_(self, other: Holdings) -> Holdings:
        """Return the union of both."""
        return Holdings(
            self.replica or other.replica,
            tuple(dict.fromkeys(self.jobs + other.jobs)),
            tuple(dict.fromkeys(self.holds + other.holds)),
        )


class DataLossDetector:
    """Watches the id of the data for one app. Runs on the host, except when the app opens."""

    def __init__(self) -> None:
        self._data_id: str | None = None
        self._unknown = Holdings()
        self.is_suspected = False
        """Whether the store did not know something, and the id was not compared since."""
        self._sources: dict[Callable[[], Holdings], None] = {}

    def add_source(self, source: Callable[[], Holdings]) -> None:
        """Call `source` for the holdings when a loss is reported. It runs on any thread."""
        self._sources[source] = None

    def remove_source(self, source: Callable[[], Holdings]) -> None:
        self._sources.pop(source, None)

    def suspect(self, unknown: Holdings = Holdings()) -> None:  # noqa: B008 - it is immutable
        """Record holdings that the store no longer knows. `confirm` finds out why."""
        self._unknown = _joined([self._unknown, unknown, *(ask() for ask in list(self._sources))])
        self.is_suspected = True

    async def confirm(self, store: Store, events: Events) -> None:
        """Read the id of the data. If a loss is suspected, compare it, and emit `DataLost`.

        Raises StoreUnavailable. Call it again then.
        """
        if self._data_id is not None and not self.is_suspected:
            return
        # Reset before the call: a suspicion during it may concern a loss after its answer.
        unknown, self._unknown = self._unknown, Holdings()
        was_suspected, self.is_suspected = self.is_suspected, False
        try:
            data_id = (await store.ping()).incarnation
            if not data_id:
                msg = "the store is full and has no room for the id of its data"
                raise StoreUnavailable(msg)
        except BaseException as error:
            self._unknown = unknown.with_(self._unknown)
            self.is_suspected = self.is_suspected or was_suspected
            if isinstance(error, StoreUnavailable) or not isinstance(error, TenureError):
                raise
            log.info("cannot tell whether the store has lost its data: %s", error)
            return
        before, self._data_id = self._data_id, data_id
        if is_other_data(before, data_id) and _is_first(store, data_id):
            gone = _joined([unknown, *(ask() for ask in list(self._sources))])
            events.emit(DataLost(store.url, *gone))


def _joined(parts: Iterable[Holdings]) -> Holdings:
    whole = Holdings()
    for part in parts:
        whole = whole.with_(part)
    return whole


def _is_first(store: Store, data_id: str) -> bool:
    loss = (store.url, store.namespace, data_id)
    with _reporting:
        if loss in _reported:
            return False
        _reported.add(loss)
        return True
