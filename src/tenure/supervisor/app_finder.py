"""Finds the app that "module:app" names, and advises on everything that can be wrong."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from operator import attrgetter
from types import ModuleType
from typing import NoReturn

import tenure
from tenure.app import Tenure
from tenure.errors import ConfigError
from tenure.jobs import Task
from tenure.supervisor.log_setup import logged_exit, write_traceback

__all__ = ["find_app", "load_app"]


def load_app(text: str) -> Tenure:
    """Return the app, with the modules imported that declare its tasks. Raises ConfigError."""
    app = find_app(text)
    for module in app.settings.imports:
        _imported(module)
    return app


def find_app(text: str) -> Tenure:
    """Return the app that "module:app" names. Raises ConfigError."""
    name, colon, path = text.partition(":")
    is_file = name.endswith(".py")
    if not colon or not path or is_file or not all(part.isidentifier() for part in name.split(".")):
        msg = f"{text!r} names no app. Write MODULE:APP, such as {_suggested(text)}."
        raise ConfigError(msg)
    module = _imported(name)
    try:
        candidate = attrgetter(path)(module)
    except AttributeError:
        msg = f"module {name!r} has no {path!r}. {_apps_of(module)}"
        raise ConfigError(msg) from None
    if isinstance(candidate, Tenure):
        return candidate
    kind = "Task" if isinstance(candidate, Task) else type(candidate).__name__
    msg = f"{text!r} is no tenure.Tenure but a {kind}. {_apps_of(module)}"
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
        msg = (
            f"there is no module {error.name!r}, neither in {here} nor among those installed. "
            f"{_where(error.name)}"
        )
        raise ConfigError(msg) from None
    except ConfigError as error:
        # Its message says what to change, so a line of the user's own is all that is missing.
        msg = f"{_place_of(error, name)}: {error}"
        raise ConfigError(msg) from None
    except SystemExit as leaving:
        raise logged_exit(leaving) from None
    except Exception as error:  # noqa: BLE001 - whatever a user's module does
        _tell_failed_import(name, error)


def _where(name: str) -> str:
    """Say how to find a module that is in another folder."""
    return (
        f"Run this in the folder that has {name.replace('.', '/')}.py, or name that folder in "
        "PYTHONPATH."
    )


def _tell_failed_import(name: str, error: Exception) -> NoReturn:
    """Show where the user's own code failed, and end."""
    trace = error.__traceback__
    while trace is not None and _is_of_importing(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    write_traceback("".join(traceback.format_exception(error.with_traceback(trace))))
    msg = f"module {name!r} cannot be imported: {type(error).__name__}: {str(error).rstrip('.')}."
    raise ConfigError(msg) from None


def _place_of(error: Exception, name: str) -> str:
    """Return which line of the user's code has made an error."""
    place = f"module {name!r}"
    ours = os.path.dirname(tenure.__file__)  # noqa: PTH120 - compared with the names of code
    for frame in traceback.extract_tb(error.__traceback__):
        if not (_is_of_importing(frame.filename) or frame.filename.startswith(ours)):
            place = f"{frame.filename}, line {frame.lineno}"
    return place


def _is_of_importing(file: str) -> bool:
    return file in (__file__, importlib.__file__) or file.startswith("<frozen importlib")


def _apps_of(module: ModuleType) -> str:
    apps = [name for name, value in vars(module).items() if isinstance(value, Tenure)]
    if not apps:
        return f"There is no Tenure in {module.__name__}."
    return f"Did you mean {' or '.join(f'{module.__name__}:{name}' for name in apps)}?"
