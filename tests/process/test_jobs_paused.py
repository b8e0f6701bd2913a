"""A worker that stood still past its lease finds its jobs taken over, and can spoil nothing."""

from pathlib import Path

from tests.process.orders import boot
from tests.process.sink import FencedSink
from tests.process.test_paused_process import stop_between_writes
from tests.process.workshop import Workshop, on_each

TTL = 1.0


async def test_the_store_refuses_results_that_a_paused_worker_settles_late(shops: list[Workshop]):
    await on_each(shops, paused)


async def paused(shop: Workshop) -> None:
    """Pause a worker, let another finish its jobs, and let it go on."""
    [old] = await shop.hired(replica_ttl=TTL)
    gate = shop.gate()
    on_loop = await shop.tasks.stay.enqueue(str(gate))
    in_thread = await shop.tasks.stay_blocking.enqueue(str(gate))
    jobs = [on_loop, in_thread]
    slow = await shop.tasks.stay_blocking.enqueue(str(later := shop.gate()), each=True)
    stale = {line.job: line.fence for line in await shop.written("began", *jobs, slow)}
    [heir] = await shop.hired(replica_ttl=TTL)
    stop_between_writes(old, shop.site)
    await shop.written("began", *jobs, slow, pid=heir.pid)
    gate.touch()
    await shop.finished(*jobs)
    opened(later, attempt=1)
    ended = boot()
    old.cont()

    await shop.heard(old, "ReplicaLost")
    # Its thread knows nothing and comes to its end; what it says then is refused.
    refused = await shop.heard(old, "AttemptLost", lambda event: event["job"] == in_thread.id)
    assert refused["fence"] == stale[in_thread.id]
    await shop.written("ended", in_thread, pid=old.pid)
    # The other one was cancelled, or was as quick as the news and is refused as well.
    stopped = shop.lines("stopped", on_loop, pid=old.pid)
    late = shop.lines("ended", on_loop, pid=old.pid)
    assert len(stopped) + len(late) == 1
    assert [line.detail for line in stopped] in ([], ["taken over"])
    for job in jobs:
        check_one_effect(shop, job, heir.pid)
        assert [line.boot > ended for line in shop.lines("wrote", job, pid=old.pid)] in ([], [True])
        before = job.record
        assert (await job.refresh()).record == before
        assert (job.state, job.attempt, job.losses, job.failures) == ("succeeded", 2, 1, 0)
        assert await job.result() == heir.pid
    # What the heir still runs has not ended, though it has where it was taken away.
    refused = await shop.heard(old, "AttemptLost", lambda event: event["job"] == slow.id)
    assert refused["fence"] == stale[slow.id]
    await slow.refresh()
    assert (slow.state, slow.attempt) == ("running", 2)
    opened(later, attempt=2)
    await shop.finished(slow)
    assert await slow.result() == heir.pid
    # The old one works on, under a new id.
    heir.kill()
    await shop.joined(old)
    again = await shop.tasks.nap.enqueue(0)
    await shop.finished(again)
    assert await again.result() == old.pid


def opened(gate: Path, attempt: int) -> None:
    """Let one attempt end."""
    gate.with_name(f"{gate.name}-{attempt}").touch()


def check_one_effect(shop: Workshop, job, pid: int) -> None:
    """The sink has taken the write of the newest attempt, and refused every later one."""
    writes = shop.lines("wrote", job)
    assert [line.pid for line in writes if line.detail == "accepted"] == [pid]
    [path] = shop.folder.glob(f"gate-*.{job.id}")
    assert FencedSink(path).text() == str(pid)
