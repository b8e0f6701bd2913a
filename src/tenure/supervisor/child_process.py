"""A worker process of a supervisor: `python -m tenure.supervisor.child_process SPEC`."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys

from tenure.app import Tenure
from tenure.errors import TenureError
from tenure.runtime.board import Board
from tenure.runtime.lifeline import Lifeline
from tenure.supervisor.children import show_stacks_at_signal
from tenure.supervisor.finding import load_app, set_up_logging
from tenure.supervisor.spec import ChildSpec, decode_spec

log = logging.getLogger("tenure")


def main() -> None:
    """Run one worker; ends with 2 if it cannot even begin."""
    spec = decode_spec(sys.argv[1])
    # The supervisor decides when to stop; what the terminal sends reaches all of its group.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    show_stacks_at_signal()
    try:
        app = load_app(spec.app)
        set_up_logging(spec.log_level)
        asyncio.run(work(app, spec))
    except TenureError as error:
        log.error("%s: %s", type(error).__name__, error)  # noqa: TRY400 - it says what to do
        sys.exit(2)


async def work(app: Tenure, spec: ChildSpec) -> None:
    """Work until the supervisor says so, is gone, or somebody else asks for an end."""
    with socket.socket(fileno=spec.line) as line:
        lifeline = Lifeline(line, _board(spec), app._store.clock)  # noqa: SLF001 - of the same house
        async with app:
            worker = app._worker(  # noqa: SLF001 - of the same house
                queues=spec.queues,
                concurrency=spec.concurrency,
                grace=spec.grace,
                lifeline=lifeline,
                resumed=spec.resumed,
            )
            async with worker:
                loop = asyncio.get_running_loop()
                # Service managers send it to all processes at once, and the supervisor says the
                # same: a second time must not mean to hurry.
                loop.add_signal_handler(signal.SIGTERM, worker.stop_once)
                await worker.ended()


def _board(spec: ChildSpec) -> Board:
    try:
        return Board(spec.board, spec.concurrency)
    finally:
        os.close(spec.board)


if __name__ == "__main__":
    main()
