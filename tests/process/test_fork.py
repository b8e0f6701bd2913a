"""Forks: a child can neither renew nor release what its parent holds."""

from tests.process.site import Site
from tests.rig.sizes import SIZE


async def test_a_fork_storm_changes_nothing_for_the_parent(site: Site):
    forker = site.start("forker", 1.0, SIZE.processes)
    fence = forker.expect("held", SIZE.patience)["fence"]
    # The exit code says what a child could do that it must not; see the program.
    assert forker.expect("children", 3 * SIZE.patience)["codes"] == [0] * SIZE.processes
    after = forker.expect("after", SIZE.patience)
    assert after["held"]
    assert after["fence"] == fence
    forker.expect("released", SIZE.patience)
    assert forker.wait(SIZE.patience) == 0
