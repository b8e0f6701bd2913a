"""Pruning removes jobs in slices, on every store."""

from tenure.core.jobs.records import Pruned
from tenure.runtime.pruning import prune
from tenure.stores.contract import Store
from tenure.testing import FaultyStore
from tests.contract.job_calls import bring, find_all


class ThinSlices(FaultyStore):
    """Removes one job at a time."""

    async def prune(self, *, idle: float, limit: int = 1000) -> Pruned:
        return await super().prune(idle=idle, limit=min(limit, 1))


async def test_pruning_goes_on_until_nothing_is_left_to_remove(store: Store):
    for number in (1, 2, 3):
        await bring(store, "succeeded", number=number, retention=0)
    assert await prune(ThinSlices(store)) == 3
    assert await find_all(store) == []
