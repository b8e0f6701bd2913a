"""`tenure worker`: its options, and which way of running a worker they ask for.

There are four ways: under a supervisor (the usual one), in this process because the store is
visible to it only, in this process until no job is due (--burst), and with a restart after each
change of the code (--reload).
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import click

from tenure.app import Tenure
from tenure.cli.options import address, memory, span
from tenure.cli.options import queues as queues_option
from tenure.cli.screen import Screen
from tenure.cli.target import explained
from tenure.cli.worker.log_screen import LogScreen
from tenure.cli.worker.metrics import metrics_page
from tenure.cli.worker.ping import health_option
from tenure.cli.worker.reloader import Reloader
from tenure.cli.worker.startup import announce, run_drain
from tenure.cli.worker.supervised import supervise
from tenure.core.environment import is_in_kubernetes
from tenure.errors import TenureError
from tenure.supervisor import SupervisorOptions
from tenure.supervisor.app_finder import load_app
from tenure.supervisor.log_setup import LogForm, set_up_logging
from tenure.supervisor.spec import ChildSpec

__all__ = ["worker"]

Queues: TypeAlias = tuple[str, ...] | dict[str, int] | None

_RELOAD_GRACE = 3.0
_LEVELS = ("debug", "info", "warning", "error")


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
    help="How many worker processes to run.",
)
@click.option(
    "--queues",
    metavar="A,B",
    callback=queues_option,
    help="The queues to serve. a,b: in strict order, b only while a has no due jobs. a=3,b=1: by "
    "weight, three starts of a for each start of b [default: the queues of the declared tasks, "
    "with equal weights].",
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
    help="How many timer runs there are at a time in each process, in addition to jobs.",
)
@click.option("--no-timers", is_flag=True, help="Run no timers and schedules; another worker must.")
@click.option("--timers-only", is_flag=True, help="Run timers and schedules, and no jobs.")
@click.option(
    "--grace",
    metavar="TIME",
    callback=span,
    help="How long running jobs may take to finish after a signal [default: the app's setting].",
)
@click.option(
    "--burst",
    is_flag=True,
    help="Run what is due and exit with 0 when no job is due and none runs here; exit with 1 if a "
    "signal stops it before. Runs no timers and has no supervisor.",
)
@click.option(
    "--reload",
    is_flag=True,
    help="For development: restart the worker when a Python file below this directory changes.",
)
@click.option(
    "--max-jobs",
    type=click.IntRange(1),
    metavar="N",
    help="Replace a process after this many jobs, against slow memory leaks.",
)
@click.option(
    "--max-memory",
    metavar="SIZE",
    callback=memory,
    help="Replace a process that uses more than this, such as 500MB, once its jobs are done; kill "
    "it at 1.5 times as much.",
)
@health_option
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    callback=address,
    help="Serve the metrics of all processes to Prometheus at this address, such as "
    "127.0.0.1:9464. It has no authentication.",
)
@click.option(
    "--log",
    type=click.Choice(("json", "text")),
    help="How to log on stderr: one JSON object per line, or lines for people [default: text, or "
    "as the app has set up logging].",
)
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
    queues: Queues,
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
    metrics: tuple[str, int] | None,
    log: LogForm | None,
    log_level: str | None,
    url: str | None,
    namespace: str | None,
) -> None:
    """Run the jobs and timers of an app until SIGTERM or SIGINT.

    A supervisor starts the worker processes, sends their heartbeats, restarts processes that die
    and recovers their jobs at once. The first signal lets running jobs finish within the grace
    period and hands the others back; a second signal hands all of them back at once. Modules are
    also searched in the current directory.
    """
    screen = Screen(as_json=False)
    if log is not None:
        set_up_logging(log, log_level)
    if log == "json":
        screen = LogScreen()
    if reload:
        context.exit(_reload(screen, burst=burst, grace=grace))
    wants_supervisor = bool(processes > 1 or max_jobs or max_memory or health)
    if burst and (wants_supervisor or timers_only or metrics):
        msg = (
            "--burst runs in this process, without a supervisor and without timers. Use it without "
            "--processes, --max-jobs, --max-memory, --health, --metrics and --timers-only."
        )
        raise click.UsageError(msg)
    timers = _timers(queues, no_timers=no_timers, timers_only=timers_only)
    try:
        page = None if metrics is None else context.with_resource(metrics_page(*metrics))
        loaded = load_app(app) if page is None else page.load(app)
        _refuse_store_options(context, (url, namespace))
        set_up_logging(log, log_level)
        announce(screen, loaded, queues)
        if burst:
            context.exit(_run_burst(screen, loaded, queues, concurrency, grace))
        if loaded.traits.scope == "process":
            # Another process would see nothing of this store.
            if wants_supervisor:
                screen.remark("So there is no supervisor, and its options have no effect.")
            run = loaded.run_worker(
                queues=queues,
                concurrency=concurrency,
                timers=timers,
                timer_concurrency=timer_concurrency,
                grace=grace,
            )
            asyncio.run(run if page is None else page.serve_while(run))
            return
        spec = ChildSpec(
            app=app,
            queues=queues,
            concurrency=concurrency,
            timers=timers,
            timer_concurrency=timer_concurrency,
            grace=loaded.settings.grace if grace is None else grace,
            log_form=log,
            log_level=log_level,
            metrics=None if page is None else page.files,
        )
        options = SupervisorOptions(processes=processes, max_jobs=max_jobs, max_memory=max_memory)
        context.exit(asyncio.run(supervise(loaded, spec, options, health, page)))
    except TenureError as error:
        screen.failure(type(error).__name__, explained(error))
        context.exit(2)


def _timers(queues: Queues, *, no_timers: bool, timers_only: bool) -> bool | Literal["only"]:
    if timers_only and (no_timers or queues is not None):
        msg = "--timers-only runs no jobs. Use it without --no-timers and --queues."
        raise click.UsageError(msg)
    return "only" if timers_only else not no_timers


def _refuse_store_options(context: click.Context, options: Sequence[str | None]) -> None:
    if any(context.find_root().params.values()) or any(options):
        raise click.UsageError(
            "The app decides which store it uses, so this command takes no -A, --url and "
            "--namespace. An app that is made without a URL reads TENURE_URL and TENURE_NAMESPACE."
        )


def _run_burst(
    screen: Screen, app: Tenure, queues: Queues, concurrency: int, grace: float | None
) -> int:
    """Run until nothing is due, and return the exit code."""
    drain = app.worker(queues=queues, concurrency=concurrency, grace=grace, burst=True)
    run_drain(app, drain)
    screen.remark(_burst_summary(drain.ends, has_drained=drain.has_drained))
    return 0 if drain.has_drained else 1


def _burst_summary(ends: dict[str, int], *, has_drained: bool) -> str:
    """Return whether a burst has run all that was due, and how its attempts have ended."""
    words = {"retry": "to be retried"}
    counts = [f"{ends[end]} {words.get(end, end)}" for end in sorted(ends)]
    state = "No job is due any more."
    if not has_drained:
        state = "Stopped early: due jobs may be left."
    return f"{state} Attempts: {', '.join(counts) or 'none'}."


def _reload(screen: Screen, *, burst: bool, grace: float | None) -> int:
    """Run this same command without --reload, again after each change of a file."""
    if burst:
        msg = "--burst ends by itself, so there is nothing to reload. Use it without --reload."
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
    screen.remark("Watching the Python files below this directory. For development only.")
    return Reloader(arguments, Path.cwd(), screen.remark, grace).run()
