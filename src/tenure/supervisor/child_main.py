"""A worker process of a supervisor: `python -m tenure.supervisor.child_main SPEC`."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tenure.app import Tenure, engine_of
from tenure.app.engine import Engine
from tenure.app.options import WORKER_DEFAULTS, WorkerOptions
from tenure.app.setup import keep_quiet
from tenure.app.workers import Workers
from tenure.errors import StoreUnavailable, TenureError
from tenure.runtime.supervised.link import SupervisorLink
from tenure.runtime.supervised.scoreboard import Scoreboard
from tenure.supervisor.app_finder import load_app
from tenure.supervisor.child import HELD_SIGNALS, show_stacks_at_signal
from tenure.supervisor.log_setup import set_up_logging
from tenure.supervisor.spec import ChildSpec, decode_spec

log = logging.getLogger("tenure")


def main() -> None:
    """Run one worker; ends with 2 if it can never begin, with 1 if it could not this time."""
    spec = decode_spec(sys.argv[1])
    # The supervisor decides when to stop; what the terminal sends reaches all of its group.
    # Not SIG_IGN, which programs that handlers start would inherit.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    show_stacks_at_signal()
    with suppress(OSError, RuntimeError):  # where stderr is no file, or not there
        faulthandler.enable()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_SIGNALS)
    keep_quiet()
    if spec.log_form is not None:  # what is wrong with the app is to be logged in this form
        set_up_logging(spec.log_form, spec.log_level)
    try:
        app = _load(spec)
        set_up_logging(spec.log_form, spec.log_level)
        asyncio.run(work(app, spec))
    except StoreUnavailable as error:
        log.warning("the store is down again, so this process ends: %s", error)
        sys.exit(1)  # the next one may find it
    except TenureError as error:
        log.error("%s: %s", type(error).__name__, error)  # noqa: TRY400 - it says what to do
        sys.exit(2)
    except Exception:
        log.exception("the worker has ended with an error")  # in one piece, beside its siblings
        sys.exit(1)


def _load(spec: ChildSpec) -> Tenure:
    """Import the app; with --metrics, after what its modules count has got a place."""
    if spec.metrics is None:
        return load_app(spec.app)
    from tenure.prometheus import instrument, processes  # noqa: PLC0415 - an extra package

    processes.write_metrics_to(spec.metrics.folder, spec.metrics.number)
    app = load_app(spec.app)
    instrument(app)
    return app


async def work(app: Tenure, spec: ChildSpec) -> None:
    """Work until the supervisor asks for the end or is gone, or a signal asks for it."""
    with socket.socket(fileno=spec.line) as line:
        line.set_inheritable(False)  # programs that handlers start must not keep it open
        engine = engine_of(app)
        link = SupervisorLink(line, _board(spec), engine.store.clock)
        options: WorkerOptions = {
            **WORKER_DEFAULTS,
            "queues": spec.queues,
            "concurrency": spec.concurrency,
            "timers": spec.timers,
            "timer_concurrency": spec.timer_concurrency,
            "grace": spec.grace,
        }
        async with _opened(engine):
            worker = Workers(engine).worker(options, link=link, resumed=spec.resumed)
            async with worker:
                loop = asyncio.get_running_loop()
                # Service managers send it to all processes at once, and the supervisor sends Stop
                # as well: the second of the two must not mean to hurry.
                loop.add_signal_handler(signal.SIGTERM, worker.stop_once)
                await worker.ended()


@asynccontextmanager
async def _opened(engine: Engine) -> AsyncIterator[None]:
    """Open the app at once: the supervisor has waited for the store already."""
    await engine.open(is_lazy=False)
    try:
        yield
    finally:
        await engine.close()


def _board(spec: ChildSpec) -> Scoreboard:
    try:
        return Scoreboard(spec.board, spec.places)
    finally:
        os.close(spec.board)


if __name__ == "__main__":
    main()
