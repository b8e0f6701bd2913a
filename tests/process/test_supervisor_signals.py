"""Signals to a supervisor and its processes: none stays blocked, and jobs finish."""

import re
import signal
from pathlib import Path

import pytest

from tests.process.test_supervisor import supervised, workers_of
from tests.process.workshop import Workshop, on_each
from tests.rig.spawn import alive, family, send


def blocked(pid: int) -> set[str]:
    """Return the signals that the main thread of a process holds back."""
    status = Path(f"/proc/{pid}/status").read_text()
    mask = int(re.search(r"SigBlk:\s*(\w+)", status)[1], 16)
    return {number.name for number in signal.valid_signals() if mask >> (number - 1) & 1}


@pytest.mark.draw(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
async def test_a_supervisor_of_several_processes_stops_at_every_signal(
    shops: list[Workshop], number: signal.Signals
):
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip(
            f"{number.name} is ignored here, as after nohup, and so it is by the supervisor"
        )

    async def scenario(shop: Workshop) -> None:
        supervisor = supervised(shop, "--processes", 3)
        children = await workers_of(shop, 3)
        assert {pid: blocked(pid) for pid in (supervisor.pid, *children) if blocked(pid)} == {}
        supervisor.send_signal(signal.SIGUSR2)
        await shop.until(lambda: "Current thread" in supervisor.stderr, "its stacks are shown")
        supervisor.send_signal(number)
        assert await shop.exited(supervisor) == 0, supervisor.story()
        assert await shop.app.replicas() == []

    await on_each(shops, scenario)


async def test_a_signal_to_every_process_lets_a_job_in_a_child_process_finish(
    shops: list[Workshop],
):
    async def scenario(shop: Workshop) -> None:
        supervisor = supervised(shop, "--processes", 1)
        gate = shop.gate()
        job = await shop.tasks.compute.enqueue(str(gate))
        left = gate.with_name(f"{gate.name}.pid")
        await shop.until(lambda: left.exists() and left.read_text(), "the job has begun")
        members = family(supervisor.pid)
        assert int(left.read_text()) in members
        send(members, signal.SIGTERM)  # as service managers do
        await shop.until(lambda: "stopping" in supervisor.stderr, "the supervisor stops")
        gate.touch()
        assert await shop.exited(supervisor) == 0, supervisor.story()
        await job.refresh()
        assert (job.state, job.attempt, job.failures, job.losses) == ("succeeded", 1, 0, 0)
        assert not any(map(alive, members))

    await on_each(shops, scenario)
