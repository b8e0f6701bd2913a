"""A child of a worker that has ended: its process number may belong to another process by then."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from types import SimpleNamespace

import pytest

from tenure.runtime.attempts.processes.child import Child
from tests.rig.wait import wait_until

SLEEP = "import time; time.sleep(60)"
START_AND_END = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEP!r}])"


@contextmanager
def leader(program: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program that leads a process group of its own, as the children of a worker do."""
    with subprocess.Popen([sys.executable, "-c", program], start_new_session=True) as process:
        try:
            yield process
        finally:
            if group_exists(process.pid):
                os.killpg(process.pid, signal.SIGKILL)


def group_exists(number: int) -> bool:
    try:
        os.killpg(number, 0)
    except ProcessLookupError:
        return False
    return True


async def ended_child(pid: int) -> Child:
    """Return a child that has ended and had this number."""
    ours, theirs = socket.socketpair()
    with closing(theirs):
        reader, writer = await asyncio.open_connection(sock=ours)

        async def wait() -> int:
            return 0

        child = Child(SimpleNamespace(pid=pid, wait=wait), reader, writer, None)
        await asyncio.wait([child._gone])
        writer.close()
        return child


async def test_another_process_with_the_same_pid_is_left_alone():
    with leader(SLEEP) as stranger:
        (await ended_child(stranger.pid)).kill()
        with pytest.raises(subprocess.TimeoutExpired):
            stranger.wait(0.5)


async def test_processes_that_a_child_started_are_killed_with_it():
    with leader(START_AND_END) as process:
        process.wait(20)  # reaped: only what it has started is left
        assert group_exists(process.pid)
        (await ended_child(process.pid)).kill()
        wait_until(lambda: not group_exists(process.pid), timeout=20)
