"""The primary is replaced: behind Sentinel and in a cluster all clients reconnect by themselves."""

from pathlib import Path

import pytest

from tenure.core.clock import SystemClock
from tenure.stores.redis import RedisStore
from tests.chaos.failovers import BLOWS, Blow, storm
from tests.chaos.tally import Tally
from tests.rig.failover import ClusterGroup, Group, SentinelGroup
from tests.rig.servers import find_valkey
from tests.rig.sizes import SIZE

pytestmark = pytest.mark.skipif(find_valkey() is None, reason="no Valkey")


@pytest.mark.proof("three servers and a minute; the gate fails over in tests/sim")
@pytest.mark.parametrize(
    ("kind", "blows", "topology"),
    [
        (SentinelGroup, ("kill", "cut off"), "with 2 replicas and 3 sentinels"),
        (ClusterGroup, ("pause", "cut off"), "cluster of 6 nodes: slot"),
    ],
    ids=["sentinel", "cluster"],
)
async def test_fail_overs_cost_at_most_the_tail(
    kind: type[Group], blows: tuple[Blow, ...], topology: str, tmp_path: Path
):
    tally = Tally(kind.__name__)
    with kind() as group:
        store = RedisStore(group.url, namespace="chaos", clock=SystemClock())
        findings = {finding.subject: finding for finding in await store.examine()}
        assert topology in findings["topology"].detail
        assert str(group.primary("chaos").port) in findings["topology"].detail
        assert findings["grade"].detail.startswith("C, ")
        await storm(group, BLOWS if SIZE.name == "soak" else blows, tally, tmp_path)
    print(tally.line())  # noqa: T201 - shown when it fails
    assert not tally.violations
    assert not tally.missed()
