"""The pool of child processes, with starts that the test plays."""

import pytest

from tenure.runtime.attempts.processes.child import Child
from tenure.runtime.attempts.processes.pool import Processes, ProcessLimits


async def test_a_start_that_fails_leaves_room_for_the_next_one(monkeypatch):
    rooms = []

    async def start(*_):
        raise OSError("no process left")

    monkeypatch.setattr(Child, "start", start)
    processes = Processes(ProcessLimits(workers=1, start=1), lambda: rooms.append(1))
    for _ in range(2):
        with pytest.raises(OSError, match="no process left"):
            await processes._take()
        assert processes.capacity == 1
    assert len(rooms) == 2
    await processes.close()
