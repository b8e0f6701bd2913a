"""Events of the store: it does not answer, it answers again, its data is gone."""

from __future__ import annotations

import logging

from tenure.core.safe_text import safe
from tenure.observe.base import BaseEvent, Detail, first_of, sentence

__all__ = [
    "DataLost",
    "StoreCalled",
    "StoreFailing",
    "StoreRestored",
]


class StoreCalled(Detail, BaseEvent, frozen=True):
    """One call of the store was answered, or failed.

    Only reported if the app had a subscriber when it was opened.
    """

    call: str
    """The method of the store contract, such as "claim"."""
    seconds: float
    error: str = ""
    """The class of the error; empty if the call was answered."""


class StoreFailing(BaseEvent, frozen=True):
    """A worker cannot reach the store; it keeps trying. Once per outage and app, whatever fails.

    Once more for another kind of call that fails although the store answers some. A process that
    only holds locks has no such calls: it emits `RenewalFailing`.
    """

    call: str
    """The call that failed first, such as "beat"."""
    error: str

    @property
    def line(self) -> str:
        return (
            f"the store has failed the call {safe(self.call)}: {sentence(self.error)} No job is "
            "lost: running handlers go on, and this process tries again until the store answers. "
            "Restarting it does not help."
        )


class StoreRestored(BaseEvent, frozen=True):
    """The store answers all calls again: once for each `StoreFailing`, unless the worker stops."""

    call: str
    """The same as in `StoreFailing`."""
    failures: int
    """How many calls have failed, of all kinds."""

    @property
    def line(self) -> str:
        calls = "1 failed call" if self.failures == 1 else f"{self.failures} failed calls"
        return f"the store answers again, after {calls}; the first was {safe(self.call)}"

    @property
    def level(self) -> int:
        return logging.INFO


class DataLost(BaseEvent, frozen=True):
    """The store answers, but all data in it is gone. Once per process and loss."""

    store: str
    replica: str = ""
    jobs: tuple[str, ...] = ()
    """The jobs that ran in this process. It does not know which jobs waited in the store."""
    holds: tuple[str, ...] = ()
    """The names of the locks that this process held."""

    @property
    def level(self) -> int:
        return logging.ERROR

    def __str__(self) -> str:
        losses = {
            f"worker {safe(self.replica[:8])}": self.replica,
            f"{len(self.jobs)} running jobs ({first_of(self.jobs)})": self.jobs,
            f"{len(self.holds)} locks ({first_of(self.holds)})": self.holds,
        }
        listed = ", ".join(text for text, is_lost in losses.items() if is_lost) or "nothing"
        return (
            f"the store {safe(self.store)} has lost its data. Jobs that waited, results, locks and "
            f"the last ticks of timers are gone. Of this process: {listed}. It goes on with an "
            "empty store. Enqueue again what must not be lost. 'tenure doctor' says what the store "
            "survives."
        )
