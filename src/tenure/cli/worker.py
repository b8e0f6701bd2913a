"""`tenure worker`: run the jobs of an app until told to stop."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys
import traceback
from operator import attrgetter
from types import ModuleType
from typing import NoReturn

import click

from tenure.app import Tenure
from tenure.cli.parameters import names, span
from tenure.cli.show import Screen
from tenure.cli.target import explained, place
from tenure.errors import ConfigError, TenureError

__all__ = ["find_app", "worker"]

_LEVELS = ("debug", "info", "warning", "error")


@click.command(
    epilog="""\b
Examples:
  tenure worker shop.tasks:app                    'app = Tenure(...)' in shop/tasks.py
  tenure worker shop.tasks:app --queues urgent,default --concurrency 20
  TENURE_URL=redis://cache/0 tenure worker shop.tasks:app"""
)
@click.argument("app", metavar="MODULE:APP")
@click.option(
    "--queues",
    metavar="A,B",
    callback=names,
    help="The queues to serve, the first one first [default: those of the tasks].",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    help="How many jobs run at a time.",
)
@click.option(
    "--grace",
    metavar="TIME",
    callback=span,
    help="How long running jobs may take to finish after a signal [default: as the app says].",
)
@click.option(
    "--log-level",
    type=click.Choice(_LEVELS, case_sensitive=False),
    help="What to log on stderr [default: info, or as the app has set up logging].",
)
@click.pass_context
def worker(
    context: click.Context,
    app: str,
    *,
    queues: tuple[str, ...] | None,
    concurrency: int,
    grace: float | None,
    log_level: str | None,
) -> None:
    """Run the jobs of an app until SIGTERM or SIGINT.

    A signal lets running jobs finish within the grace period and hands the rest back to others;
    a second one hands all back at once. Modules are looked for in the current directory, too.
    """
    if any(context.find_root().params.values()):
        raise click.UsageError(
            "The app says which store it uses, so --url and --namespace are not for this command. "
            "An app made without a url goes by TENURE_URL, and likewise by TENURE_NAMESPACE."
        )
    screen = Screen(as_json=False)
    try:
        found = find_app(app)
        for module in found.settings.imports:
            _imported(module)  # the worker does it as well, but would not explain what is wrong
        _set_up_logging(log_level)
        _announce(screen, found)
        asyncio.run(found.run_worker(queues=queues, concurrency=concurrency, grace=grace))
    except TenureError as error:
        screen.failure(type(error).__name__, explained(error))
        context.exit(2)


def find_app(text: str) -> Tenure:
    """Return the app that "module:app" names. Raises ConfigError."""
    name, colon, path = text.partition(":")
    if not colon or not path or not all(part.isidentifier() for part in name.split(".")):
        msg = f"{text!r} names no app. Write MODULE:APP, such as {_suggested(text)}."
        raise ConfigError(msg)
    module = _imported(name)
    try:
        found = attrgetter(path)(module)
    except AttributeError:
        msg = f"module {name!r} has no {path!r}. {_apps_of(module)}"
        raise ConfigError(msg) from None
    if isinstance(found, Tenure):
        return found
    msg = f"{text!r} is no tenure.Tenure but a {type(found).__name__}. {_apps_of(module)}"
    raise ConfigError(msg)


def _suggested(text: str) -> str:
    """Return how what looks like the path of a file should have been written."""
    name, _, path = text.partition(":")
    module = name.removesuffix(".py").replace("\\", ".").replace("/", ".").strip(".")
    if not all(part.isidentifier() for part in module.split(".")):
        module = "shop.tasks"
    return f"{module}:{path or 'app'}"


def _imported(name: str) -> ModuleType:
    here = os.getcwd()  # noqa: PTH109 - sys.path holds text
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            _tell_failed_import(name, error)
        msg = f"there is no module {error.name!r}, neither in {here} nor among those installed."
        raise ConfigError(msg) from None
    except Exception as error:  # noqa: BLE001 - whatever a user's module does
        _tell_failed_import(name, error)


def _tell_failed_import(name: str, error: Exception) -> NoReturn:
    """Show where the user's own code failed, and end."""
    trace = error.__traceback__
    while trace is not None and _is_of_importing(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    sys.stderr.write("".join(traceback.format_exception(error.with_traceback(trace))))
    msg = f"module {name!r} cannot be imported: {type(error).__name__}: {error}."
    raise ConfigError(msg) from None


def _is_of_importing(file: str) -> bool:
    return file in (__file__, importlib.__file__) or file.startswith("<frozen importlib")


def _apps_of(module: ModuleType) -> str:
    apps = [name for name, value in vars(module).items() if isinstance(value, Tenure)]
    if not apps:
        return f"There is no Tenure in {module.__name__}."
    return f"Did you mean {' or '.join(f'{module.__name__}:{name}' for name in apps)}?"


def _set_up_logging(level: str | None) -> None:
    """Log to stderr, unless the app's module has seen to logging itself."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s"
    )
    if level is not None:
        logging.getLogger().setLevel(level.upper())


def _announce(screen: Screen, app: Tenure) -> None:
    store, tasks = app._store, app._handlers  # noqa: SLF001 - of no use to anybody else
    screen.aside(f"Worker {os.getpid()} on {place(store.url)}, namespace {store.namespace}")
    if store.traits.scope == "process":
        screen.aside("This store is this process alone: no other one's jobs are seen.")
    if not tasks:
        screen.aside(
            "The app has no tasks. Name the modules that declare them: Tenure(imports=...)."
        )
