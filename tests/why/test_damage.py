"""What `why` says about records that were damaged or removed by hand."""

import re

import pytest

from tenure import JobNotFound, TimerNotFound
from tests.contract import calls
from tests.contract.job_calls import id_of, insert, new
from tests.security.hands import Hand
from tests.why.scene import Scene


async def test_a_job_whose_replica_is_unknown(scene: Scene, hand: Hand):
    await scene.join()
    job = await scene.send.enqueue()
    await scene.claim()
    hand.forget_replica("web-1")
    why = await job.why()
    assert why.code == "orphan"
    # The reference of SQLite is cleared with the record.
    which = "a replica" if hand.family == "sqlite" else "the replica web-1"
    assert why.text == f"It runs on {which}, which is not in the store, so no worker will end it."
    assert why.next == "Let another worker run it: tenure recover"


async def test_a_job_that_was_set_aside(scene: Scene, hand: Hand):
    await scene.join()
    await insert(scene.store, new(1))
    job = await scene.app.job(id_of(1))
    hand.spoil_job(id_of(1))
    await scene.claim()
    why = await job.why()
    assert why.code == "aside"
    kept = r"; it is kept in \S.* for another 7 d\."
    text = "Its record cannot be read, so it was set aside and does not run"
    assert re.fullmatch(text + kept, why.text)
    assert why.next.endswith(f"Remove it: tenure jobs delete {id_of(1)}")


async def test_a_lock_that_cannot_be_read(scene: Scene, hand: Hand):
    await calls.take(scene.store, "invoice:42", "web-1")
    hand.spoil_lock("invoice:42")
    why = await scene.app.why_lock("invoice:42")
    assert why.code == "unreadable"
    assert why.text.startswith("Its record cannot be read: ")
    assert why.text.endswith("; it counts as held.")
    assert why.next.endswith("remove it: tenure locks release invoice:42 --force")


async def test_what_is_not_there_is_not_explained(scene: Scene):
    job = await scene.send.using(retention=0).enqueue()
    await job.cancel()
    scene.clock.shift(60)
    await scene.app.prune_jobs()
    with pytest.raises(JobNotFound):
        await job.why()
    for name in ("sweep", "*"):
        with pytest.raises(TimerNotFound):
            await scene.app.timer_handle(name).why()
