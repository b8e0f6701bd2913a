"""Timers and a schedule on two replicas: one run per tick, a pause, a trigger. Needs no server."""

import asyncio

from tenure import Tenure, Tick


def replica(name: str) -> Tenure:
    """Return the app of one replica. All replicas have the same declarations."""
    app = Tenure()

    @app.timer(every="1s")
    async def sweep(tick: Tick) -> None:
        print(f"{name}: the tick of {tick.nominal:%H:%M:%S}")

    @app.task
    async def report(kind: str) -> str:
        return f"a {kind} report"

    # One durable job per tick. A run of a timer, in contrast, ends with its replica.
    app.schedule(report, cron="0 6 * * 1", tz="Europe/Berlin", args=("weekly",), name="weekly")
    return app


async def main() -> None:
    first, second = replica("replica 1"), replica("replica 2")
    async with first, second, first.worker(), second.worker():
        await asyncio.sleep(2.5)
        await operate(first)


async def operate(app: Tenure) -> None:
    """Do what an operator does with `tenure timers`. Any process can do it."""
    sweep = app.timer_handle("sweep")
    info, history = await sweep.info(), await sweep.history()
    ran = sum(record.outcome == "succeeded" for record in history)
    print(f"sweep: {info.rule}, next at {info.next:%H:%M:%S}, {ran} runs so far")

    await sweep.pause(reason="a migration", until="1h")
    await asyncio.sleep(2.5)
    [newest] = await sweep.history(1)
    print("while paused:", newest.outcome, newest.reason)
    job = await sweep.trigger()
    print("a trigger runs in spite of the pause:", (await job.wait(timeout=10)).state)
    await sweep.resume()

    job = await app.timer_handle("weekly").trigger()
    print("the job of the schedule:", (await job.wait(timeout=10)).state)


asyncio.run(main())
