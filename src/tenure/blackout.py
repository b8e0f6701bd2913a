"""Times at which a timer must not run, for `@app.timer(blackout=[...])` and `app.schedule`.

    from tenure import blackout

    @app.timer(every="10m", blackout=[blackout.weekdays("22:00-06:00", tz="Europe/Berlin")])
    async def sync_orders() -> None: ...

A tick inside a blackout is skipped; with action="defer" it runs when the blackout ends.
"""

from tenure.core.calendar.blackouts import Blackout, daily, weekdays, weekends, window

__all__ = ["Blackout", "daily", "weekdays", "weekends", "window"]
