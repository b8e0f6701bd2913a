"""Failures in what needs attention: each is named once, with a step that helps."""

from tenure import Tenure
from tenure.testing import ManualClock
from tests.dashboard.desk import Desk, desk_on


async def test_a_timer_that_fails_is_named_once(still: Tenure, clock: ManualClock) -> None:
    healthy_from = 4

    @still.timer(every="1m")
    async def sweep(tick: object) -> None:
        nonlocal healthy_from
        healthy_from -= 1
        if healthy_from > 0:
            raise ValueError("no broom")

    async with still.worker(), desk_on(still) as desk:
        await clock.advance(61)
        [line] = await lines(desk)
        assert line["text"] == "Timer sweep: its last run failed: ValueError: no broom"
        assert line["next"] == "See its history: tenure timers history sweep"
        assert line["link"] == "timers/sweep"
        await clock.advance(120)
        [line] = await lines(desk)
        text = "its last run failed, as 2 others within the hour: ValueError: no broom"
        assert line["text"] == f"Timer sweep: {text}"
        await clock.advance(60)
        [line] = await lines(desk)
        assert line["text"] == "Timer sweep: 3 runs failed in the last hour: ValueError: no broom"
        await clock.advance(3700)
        assert await lines(desk) == []


async def test_jobs_that_failed_are_named_by_task(still: Tenure, clock: ManualClock) -> None:
    @still.task(retry=0)
    async def charge(order: int) -> None:
        raise ValueError(f"no card for {order}")

    async with still.worker(), desk_on(still) as desk:
        for order in (1, 2):
            job = await charge.enqueue(order)
            await job.wait(timeout=10)
        [line] = await lines(desk)
        text = "2 jobs failed for good in the last hour: ValueError: no card for 2"
        assert line["text"] == f"Task charge: {text}"
        assert line["next"] == "Mend the cause, then requeue them."


async def lines(desk: Desk) -> list[dict[str, str]]:
    """Return what needs attention now."""
    attention: list[dict[str, str]] = (await desk.get("api/overview"))["attention"]
    return attention
