"""Many timers that are due at one instant."""

from collections import Counter
from contextlib import AsyncExitStack

from tenure import Tenure
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.timers.fleet import Fleet, Replica

TIMERS = 170


async def test_timers_that_are_due_together_share_a_few_calls(store: Store, clock: ManualClock):
    ran: Counter[str] = Counter()

    def declare(app: Tenure, _: Replica) -> None:
        def handler(name: str):
            async def work() -> None:
                ran[name] += 1

            return work

        for number in range(TIMERS):
            name = f"t{number}"
            app.timer(every="1m", name=name, timeout="9s")(handler(name))

    fleet = Fleet(store, clock, declare)
    async with AsyncExitStack() as stack:
        for replica in [fleet.add(), fleet.add()]:
            await stack.enter_async_context(replica.app)
            worker = replica.app.worker(timer_concurrency=TIMERS)
            await stack.enter_async_context(worker)
        await clock.advance(1)
        before = [replica.faults.calls["commit"] for replica in fleet.replicas]
        await clock.advance(65)
        after = [replica.faults.calls["commit"] for replica in fleet.replicas]
    assert ran == {f"t{number}": 1 for number in range(TIMERS)}
    # Of 20, 80 and 70 ticks.
    assert [now - then for now, then in zip(after, before, strict=True)] == [3, 3]
