"""The timers of the tour: one that ticks once for all replicas, one with a limit over all."""

import asyncio
from collections.abc import Callable

from tenure import Tenure, Tick

NAMESPACE = "clockwork"  # apart from the jobs of the tour
LIMIT = 2
SECONDS = 0.6  # that the one with a limit takes


def declare(app: Tenure, tell: Callable[..., None]) -> None:
    """Declare the timers, in each replica."""

    @app.timer(every="1s")
    async def chime(tick: Tick) -> None:
        tell("chimed", fence=tick.fence, text=f"{tick.nominal:%H:%M:%S}")

    @app.timer(every="1s", each="replica", limit=LIMIT)
    async def polish(tick: Tick) -> None:
        tell("in", fence=tick.fence)
        await asyncio.sleep(SECONDS)
        tell("out", fence=tick.fence)
