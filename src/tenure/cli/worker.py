"""`tenure worker`: run the jobs of an app until told to stop. `tenure ping`: does one answer?"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Literal

import click

from tenure.app import Tenure, engine_of
from tenure.app.workers import Workers
from tenure.cli.options import bytes_, span
from tenure.cli.options import queues as queues_
from tenure.cli.output import Screen, duration
from tenure.cli.reload import Reloader
from tenure.cli.target import explained, place
from tenure.core.environment import is_in_kubernetes
from tenure.errors import TenureError
from tenure.jobs.worker import Signals
from tenure.supervisor import Supervisor, SupervisorOptions, check_platform
from tenure.supervisor.app_finder import load_app, set_up_logging
from tenure.supervisor.child import show_stacks_at_signal
from tenure.supervisor.health import ask_health, serve_health
from tenure.supervisor.spec import ChildSpec

__all__ = ["ping", "worker"]

log = logging.getLogger("tenure")

_RELOAD_GRACE = 3.0
# A younger process has just been started: its age says nothing.
_AGE_TOLD = 0.1
_LEVELS = ("debug", "info", "warning", "error")

_health_option = click.option(
    "--health",
    metavar="PATH",
    envvar="TENURE_HEALTH",
    type=click.Path(path_type=Path),
    help="The socket at which a worker answers 'tenure ping' [or TENURE_HEALTH].",
)


@click.command(
    epilog="""\b
Examples:
  tenure worker shop.tasks:app                    'app = Tenure(...)' in shop/tasks.py
  tenure worker shop.tasks:app --processes 4 --concurrency 20
  tenure worker shop.tasks:app --queues urgent=3,default=1 --max-memory 500MB
  TENURE_URL=redis://cache/0 tenure worker shop.tasks:app"""
)
@click.argument("app", metavar="MODULE:APP")
@click.option(
    "--processes",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="How many worker processes to run and look after.",
)
@click.option(
    "--queues",
    metavar="A,B",
    callback=queues_,
    help="The queues to serve. a,b: strictly in this order, b only while a is empty. a=3,b=1: in "
    "turn, three starts of a for each one of b [default: those of the tasks, in equal parts].",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    help="How many jobs run at a time in each process.",
)
@click.option(
    "--timer-concurrency",
    type=click.IntRange(1, 10_000),
    default=20,
    show_default=True,
    help="How many runs of timers there are at a time in each process, beside its jobs.",
)
@click.option("--no-timers", is_flag=True, help="Run no timers and schedules: another worker must.")
@click.option("--timers-only", is_flag=True, help="Run timers and schedules, and take no jobs.")
@click.option(
    "--grace",
    metavar="TIME",
    callback=span,
    help="How long running jobs may take to finish after a signal [default: as the app says].",
)
@click.option(
    "--burst",
    is_flag=True,
    help="Run what is due, and end with 0 when nothing is due and nothing runs here; with 1 if a "
    "signal stops it earlier. No timers, no supervisor.",
)
@click.option(
    "--reload",
    is_flag=True,
    help="For development: start the worker anew when a Python file below this folder changes.",
)
@click.option(
    "--max-jobs",
    type=click.IntRange(1),
    metavar="N",
    help="Replace a process after so many jobs, against slow leaks.",
)
@click.option(
    "--max-memory",
    metavar="SIZE",
    callback=bytes_,
    help="Replace a process that takes more than this, such as 500MB, once its jobs are done; "
    "kill it at one and a half times as much.",
)
@_health_option
@click.option(
    "--log-level",
    type=click.Choice(_LEVELS, case_sensitive=False),
    help="What to log on stderr [default: info, or as the app has set up logging].",
)
@click.option("--url", hidden=True)
@click.option("--namespace", hidden=True)
@click.pass_context
def worker(
    context: click.Context,
    app: str,
    *,
    processes: int,
    queues: tuple[str, ...] | dict[str, int] | None,
    concurrency: int,
    timer_concurrency: int,
    no_timers: bool,
    timers_only: bool,
    grace: float | None,
    burst: bool,
    reload: bool,
    max_jobs: int | None,
    max_memory: int | None,
    health: Path | None,
    log_level: str | None,
    url: str | None,
    namespace: str | None,
) -> None:
    """Run the jobs of an app until SIGTERM or SIGINT.

    A supervisor starts the worker processes, renews their records, restarts what dies, and gives
    its jobs to others at once. A signal lets running jobs finish within the grace period and
    hands the rest back; a second one hands all back at once. Modules are looked for in the
    current directory, too.
    """
    screen = Screen(as_json=False)
    if reload:
        context.exit(_reload(screen, burst=burst, grace=grace))
    if burst and (processes > 1 or max_jobs or max_memory or health or timers_only):
        msg = (
            "--burst runs in this process, without a supervisor and without timers: use it without "
            "--processes, --max-jobs, --max-memory, --health and --timers-only."
        )
        raise click.UsageError(msg)
    timers = _timers(queues, no_timers=no_timers, timers_only=timers_only)
    try:
        found = load_app(app)
        _check_place(context, (url, namespace))
        set_up_logging(log_level)
        _announce(screen, found, queues)
        if burst:
            drain = found.worker(queues=queues, concurrency=concurrency, grace=grace, burst=True)
            # A script or a CI job must not hang because its store is down.
            asyncio.run(Workers(engine_of(found)).run_until_stopped(drain, is_lazy=False))
            screen.aside(_burst_summary(drain.ends, has_drained=drain.has_drained))
            context.exit(0 if drain.has_drained else 1)
        if found.traits.scope == "process":
            # Another process would see nothing of it.
            if processes > 1 or max_jobs or max_memory or health:
                screen.aside("So there is no supervisor, and what is meant for one has no effect.")
            asyncio.run(
                found.run_worker(
                    queues=queues,
                    concurrency=concurrency,
                    timers=timers,
                    timer_concurrency=timer_concurrency,
                    grace=grace,
                )
            )
            return
        spec = ChildSpec(
            app=app,
            queues=queues,
            concurrency=concurrency,
            timers=timers,
            timer_concurrency=timer_concurrency,
            grace=found.settings.grace if grace is None else grace,
            log_level=log_level,
        )
        options = SupervisorOptions(processes=processes, max_jobs=max_jobs, max_memory=max_memory)
        context.exit(asyncio.run(_supervise(found, spec, options, health)))
    except TenureError as error:
        screen.failure(type(error).__name__, explained(error))
        context.exit(2)


def _reload(screen: Screen, *, burst: bool, grace: float | None) -> int:
    """Run this same command without --reload, again after each change of a file."""
    if burst:
        msg = "--burst ends by itself, so there is nothing to reload: use it without --reload."
        raise click.UsageError(msg)
    if is_in_kubernetes(os.environ) or os.getpid() == 1:
        msg = (
            "--reload is for development: it restarts the worker in the middle of its jobs. In a "
            "container, deploy a new image instead."
        )
        raise click.UsageError(msg)
    arguments = [argument for argument in sys.argv[1:] if argument != "--reload"]
    if grace is None:
        grace = _RELOAD_GRACE
        arguments[1:1] = ["--grace", f"{grace}"]  # behind the name of this command
    screen.aside("Watching the Python files below this folder. For development only.")
    return Reloader(arguments, Path.cwd(), screen.aside, grace).run()


def _burst_summary(ends: dict[str, int], *, has_drained: bool) -> str:
    """Say whether a burst has run all that was due, and how its attempts have ended."""
    words = {"retry": "to be tried again", "handed back": "handed back"}
    counts = [f"{ends[end]} {words.get(end, end)}" for end in sorted(ends)]
    state = "Nothing is due any more."
    if not has_drained:
        state = "Stopped early: jobs that are due may be left."
    return f"{state} Attempts: {', '.join(counts) or 'none'}."


def _timers(queues: object, *, no_timers: bool, timers_only: bool) -> bool | Literal["only"]:
    if timers_only and (no_timers or queues is not None):
        msg = "--timers-only takes no jobs: use it without --no-timers and --queues."
        raise click.UsageError(msg)
    return "only" if timers_only else not no_timers


def _check_place(context: click.Context, given: Sequence[str | None]) -> None:
    if any(context.find_root().params.values()) or any(given):
        raise click.UsageError(
            "The app says which store it uses, so --url and --namespace are not for this command. "
            "An app made without a url goes by TENURE_URL, and likewise by TENURE_NAMESPACE."
        )


async def _supervise(
    app: Tenure, spec: ChildSpec, options: SupervisorOptions, health: Path | None
) -> int:
    loop = asyncio.get_running_loop()
    check_platform()
    show_stacks_at_signal()
    start = _Start(app)
    signals = Signals()

    def stop(number: signal.Signals) -> None:
        if not signals.counts():
            return
        meaning = (
            f"stopping within {duration(spec.grace)}; send the signal again to hand everything "
            "back at once"
        )
        if start.is_stopping:
            meaning = "handing back what runs"
        log.info("%s: %s", number.name, meaning)
        start.stop()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
            loop.add_signal_handler(number, stop, number)
    async with AsyncExitStack() as stack:
        engine = engine_of(app)
        await engine.open(is_lazy=engine.config.connect != "eager")
        stack.push_async_callback(app.close)
        if health is not None:
            await stack.enter_async_context(serve_health(health, start.status))
        if not await start.reach_store():
            return 0
        start.supervisor = supervisor = Supervisor(app, spec, options)
        await supervisor.run()
    return supervisor.exit_code


class _Start:
    """The time before there is a supervisor: it needs a store, which may be down."""

    def __init__(self, app: Tenure) -> None:
        self._app = app
        self._stopped = asyncio.Event()
        self.supervisor: Supervisor | None = None

    @property
    def is_stopping(self) -> bool:
        return self._stopped.is_set()

    def stop(self) -> None:
        self._stopped.set()
        if self.supervisor is not None:
            self.supervisor.stop()

    async def reach_store(self) -> bool:
        """Return True when the store was reached, False when stopped before that."""
        ready = asyncio.ensure_future(self._app.ready())
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait((ready, stopped), return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                ready.result()
            return ready.done() and not self._stopped.is_set()
        finally:
            ready.cancel()
            stopped.cancel()

    def status(self) -> dict[str, Any]:
        """Return how things stand, for probes."""
        if self.supervisor is not None:
            return self.supervisor.status()
        return {
            "pid": os.getpid(),
            "stopping": self.is_stopping,
            "ready": False,
            "waiting_for_store": not self._app.is_ready,
            "last_beat_seconds_ago": None,
            "children": [],
        }


def _announce(screen: Screen, app: Tenure, queues: tuple[str, ...] | dict[str, int] | None) -> None:
    engine = engine_of(app)
    store, tasks = engine.store, engine.registry.handlers
    screen.aside(f"Worker {os.getpid()} on {place(store.url)}, namespace {store.namespace}")
    if store.traits.scope == "process":
        screen.aside("This store is this process alone: no other one's jobs are seen.")
    if not tasks:
        screen.aside(
            "The app has no tasks and no timers, so there is nothing to run. Name the modules "
            "that declare them: Tenure(imports=...)."
        )
    declared = engine.registry.queues
    undeclared = [name for name in queues or () if name not in declared]
    if tasks and undeclared:
        they = "It is" if len(undeclared) == 1 else "They are"
        screen.aside(
            f"No task is declared for {', '.join(undeclared)}. {they} served all the same: jobs "
            "get there with task.using(queue=...)."
        )
    for name in undeclared:
        queue, _, weight = name.rpartition(":")
        if queue in declared and weight.isdecimal():
            screen.aside(
                f"{name} is served as a queue of that name. For a weight, write {queue}={weight}."
            )


@click.command(
    epilog="""\b
Examples:
  tenure ping --health /run/tenure.sock           is the worker alive?
  tenure ping --ready                             with TENURE_HEALTH set: has it joined?"""
)
@_health_option
@click.option("--ready", is_flag=True, help="Also ask whether all its processes have joined.")
@click.option(
    "--timeout",
    metavar="TIME",
    callback=span,
    default="5s",
    show_default=True,
    help="How long the answer may take.",
)
@click.option("--json", "as_json", is_flag=True, help="Answer with one JSON document.")
@click.pass_context
def ping(
    context: click.Context, *, health: Path | None, ready: bool, timeout: float, as_json: bool
) -> None:
    """Ask the worker on this machine how it is; ends with 0 if it is well, else with 1.

    For the probes of container platforms. The worker must have been started with the same
    --health path. A store that is away makes it not ready, but not dead.
    """
    screen = Screen(as_json=as_json)
    if health is None:
        raise click.UsageError("Name the socket of the worker: --health PATH, or TENURE_HEALTH.")
    try:
        status = ask_health(health, timeout)
    except OSError as error:
        screen.failure("NoAnswer", f"no worker answers at {health}: {error.strerror or error}.")
        context.exit(1)
    screen.answer(status, _in_words(status))
    context.exit(1 if ready and not status.get("ready") else 0)


def _in_words(status: dict[str, Any]) -> str:
    if status.get("stopping"):
        state = "stopping"
    elif status.get("ready"):
        state = "ready"
    elif status.get("waiting_for_store"):
        state = "waiting for its store"
    else:
        state = "starting" if status.get("last_beat_seconds_ago") is None else "not ready"
    children = status.get("children", [])
    age = max((child["age_seconds"] for child in children), default=0.0)
    oldest = f", the oldest for {duration(age)}" if age >= _AGE_TOLD else ""
    running = sum(child["running"] for child in children)
    return (
        f"worker {status.get('pid')} is {state}; worker processes: {len(children)}{oldest}; "
        f"running jobs: {running}"
    )
