from pathlib import Path

from tests.process.orders import boot
from tests.process.sink import FencedSink
from tests.process.site import Site, until_waiting
from tests.rig.processes import Child
from tests.rig.sizes import SIZE
from tests.rig.wait import wait_until

TTL = 2.0


async def test_a_paused_process_sees_its_loss_at_the_first_look(site: Site, tmp_path: Path):
    sink = tmp_path / "sink"
    looker = site.start("looker", "report", TTL, sink)
    [rival] = site.start_holders(TTL, "report")
    old = looker.expect("held", SIZE.patience)["fence"]
    rival.send("acquire")
    async with site.app() as app:
        await until_waiting(app, "report", 1)

    stop_between_writes(looker, site)
    stopped = boot()
    new = rival.expect("held", SIZE.patience)["fence"]
    assert new > old
    rival.send(f"write {sink}")
    assert rival.expect("wrote")["accepted"]
    # The looker tells a pause from a slow machine by its length.
    wait_until(lambda: boot() > stopped + 1.5 * TTL)
    assert not any(event["kind"] == "resumed" for event in looker.events)
    looker.cont()

    resumed = looker.expect("resumed", SIZE.patience)
    assert resumed["first_look"] is True
    assert resumed["cancelled"] is True
    assert resumed["raised"] == old
    assert resumed["accepted"] is False
    assert FencedSink(sink).text() == "holder"
    rival.send("release")
    assert rival.expect("released", SIZE.patience)["fence"] == new


def stop_between_writes(child: Child, site: Site) -> None:
    """Stop the child, with all that it has started; on SQLite, not inside a write."""
    site.pause(child.stop_signal)
