from tests.process.orders import boot
from tests.process.site import Site
from tests.rig.sizes import SIZE


async def test_processes_that_open_a_fresh_store_together_all_succeed(site: Site, blank_url: str):
    openers = [site.start("opener") for _ in range(2 * SIZE.processes)]
    for opener in openers:
        opener.expect("ready", SIZE.patience)
    together = boot() + 0.2
    for opener in openers:
        opener.send(str(together))
    fences = [opener.expect("opened", SIZE.patience)["fence"] for opener in openers]
    assert [opener.wait(SIZE.patience) for opener in openers] == [0] * len(openers)
    assert len(set(fences)) == len(openers)
