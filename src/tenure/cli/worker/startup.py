"""How `tenure worker` starts an app: what it says first, and how it opens and runs the app.

The only module of the command line that reaches into an app.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterator

from tenure.app import Tenure, engine_of
from tenure.app.workers import Workers
from tenure.cli.screen import Screen
from tenure.cli.target import place
from tenure.jobs.worker import EmbeddedWorker

__all__ = ["announce", "begin", "run_drain"]


def announce(screen: Screen, app: Tenure, queues: Collection[str] | None) -> None:
    """Say which store the worker uses, and warn of queues and apps without tasks."""
    screen.remark(f"Worker {os.getpid()} on {place(app.url)}, namespace {app.settings.namespace}")
    if app.traits.scope == "process":
        screen.remark(
            "This store is visible to this process only: jobs of other processes are not in it."
        )
    if not app.task_names:
        screen.remark(
            "The app has no tasks and no timers, so there is nothing to run. Name the modules "
            "that declare them: Tenure(imports=...)."
        )
        return
    for remark in _about_queues(queues or (), engine_of(app).registry.queues):
        screen.remark(remark)


async def begin(app: Tenure) -> None:
    """Open an app. Does not wait for its store, unless the app is made with connect="eager"."""
    engine = engine_of(app)
    await engine.open(is_lazy=engine.config.connect != "eager")


def run_drain(app: Tenure, drain: EmbeddedWorker) -> None:
    """Run a worker of this app until nothing is due or a signal stops it."""
    # A script or a CI job must not hang because its store is down.
    asyncio.run(Workers(engine_of(app)).run_until_stopped(drain, is_lazy=False))


def _about_queues(queues: Collection[str], declared: Collection[str]) -> Iterator[str]:
    undeclared = [name for name in queues if name not in declared]
    if undeclared:
        they = "It is" if len(undeclared) == 1 else "They are"
        yield (
            f"No task is declared for {', '.join(undeclared)}. {they} served anyway: jobs get "
            "there with task.using(queue=...)."
        )
    for name in undeclared:
        queue, _, weight = name.rpartition(":")
        if queue in declared and weight.isdecimal():
            yield f"{name} is served as a queue of that name. For a weight, write {queue}={weight}."
