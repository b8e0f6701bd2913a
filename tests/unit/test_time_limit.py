"""The time-out of an attempt stands still while it is paused, and does not begin anew."""

from tenure.runtime.attempts.time_limit import TimeLimit


async def test_time_before_a_pause_counts(clock):
    rung, limits = [], []
    limit = TimeLimit(clock, 10, lambda: rung.append(clock.boot()), limits.append)
    began = clock.boot()
    await clock.advance(6)
    limit.pause()
    limit.pause()
    await clock.advance(100)
    assert not rung
    limit.resume()
    limit.resume()
    await clock.advance(3.9)
    assert not rung
    await clock.advance(0.2)
    assert len(rung) == 1
    assert limits == [began + 10, 0.0, began + 110]
