"""The base of the parts of a Redis store: their keys, and how they run scripts on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

from tenure.core.bounds import SET_ASIDE
from tenure.core.jobs.records import JobRecord
from tenure.stores.redis.connection import Connection
from tenure.stores.redis.records import read_job
from tenure.stores.redis.wire import Word

__all__ = ["JobPart", "Part", "slices"]

# The keys of the job scripts, in the order of lua/jobs.lua.
_JOB_KEYS = (
    *("state", "fixed", "waiting", "held", "unfinished", "tags", "finished", "deadlines"),
    *("cancels", "running", "unique", "ends", "paused", "sleeping"),
    *("replicas", "expiry", "renewed", "joined", "claims", "broken"),
    *("succeeded", "failed", "cancelled", "live", "pauses"),
)

# A call may be several scripts if each job is decided alone and a repeat is recognised.
_SLICE: Final = 100

Item = TypeVar("Item")


class Part:
    """Leases, jobs or schedules of a store, on its connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._damage = connection.damage
        self._tag = connection.tag


class JobPart(Part):
    """A part whose scripts work on the keys of all jobs of a namespace."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._keys = tuple(f"{self._tag}job:{name}" for name in _JOB_KEYS)
        self._job_hashes = f"{self._tag}job:fixed and {self._tag}job:state"

    async def _run(self, script: str, *arguments: Word) -> list[Any]:
        """Run a script on all keys of this part."""
        return await self._connection.run(script, self._keys, self._connection.bells, *arguments)

    def _read_job(
        self,
        id_: str,
        record: bytes | None,
        fixed: bytes | None,
        read: Callable[[bytes, bytes], JobRecord] = read_job,
    ) -> JobRecord | None:
        """Return a job; None if it does not exist or cannot be read."""
        if record is None:
            return None
        return self._damage.read("job", self._job_hashes, id_, read, record, fixed or b"")

    def _report_aside(self, id_: str) -> None:
        self._damage.report("job", id_, SET_ASIDE, f"{self._tag}job:broken")


def slices(items: Sequence[Item], size: int = _SLICE) -> Iterator[Sequence[Item]]:
    """Yield slices of items for one script each: Redis serves no other client meanwhile."""
    for first in range(0, len(items), size):
        yield items[first : first + size]
