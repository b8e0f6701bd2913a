"""Forks: a child neither renews nor releases what its parent holds, nor breaks its connections."""

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


async def test_children_that_exit_leave_the_connections_of_the_parent_alone(site: Site):
    parent = site.start("forking_parent", SIZE.processes)
    assert parent.expect("calls", 3 * SIZE.patience)["failures"] == []
    assert parent.wait(SIZE.patience) == 0
