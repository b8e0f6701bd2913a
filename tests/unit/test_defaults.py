"""docs/defaults.md has every setting with the default that the code has."""

import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tenure import Backoff, Tenure, Unique
from tenure.app import engine_of
from tenure.cli.worker.command import worker
from tenure.core.settings import URL_DEFAULT, Settings, usable_cores
from tenure.dashboard import Dashboard
from tenure.http import AsyncClient, AsyncRouter, Client

PAGE = Path(__file__).parents[2] / "docs" / "defaults.md"


def defaults(call: Callable[..., Any], *left_out: str, prefix: str = "") -> dict[str, object]:
    """Return the defaults of a call's arguments, by name."""
    parameters = inspect.signature(call).parameters.values()
    return {
        f"{prefix}{parameter.name}": parameter.default
        for parameter in parameters
        if parameter.default is not parameter.empty and parameter.name not in left_out
    }


def of_app() -> dict[str, object]:
    settings = Settings.read({}, {})
    values = {name: getattr(settings, name) for name in settings.__struct_fields__}
    assert values.pop("process_workers") == usable_cores()
    values["queue_expected"] = settings.queue_expected.of("any")
    app = {"url": URL_DEFAULT, "migrate": engine_of(Tenure("memory://")).config.migrate, **values}
    return {name: app.get(name, default) for name, default in defaults(Tenure.__init__).items()}


def of_workers() -> dict[str, object]:
    in_python = defaults(Tenure.worker)
    assert in_python == defaults(Tenure.run_worker)
    shared = {name.replace("_", "-") for name in in_python}
    # Flags for `timers`, and what is about the store, not about the worker.
    elsewhere = {"app", "url", "namespace", "no-timers", "timers-only"}
    options = {
        option.name.replace("_", "-"): option for option in worker.params if option.name is not None
    }
    assert options["concurrency"].default == in_python["concurrency"]
    assert options["timer-concurrency"].default == in_python["timer_concurrency"]
    only = {
        f"--{name}": option.default if isinstance(option.default, int) else None
        for name, option in options.items()
        if name not in shared | elsewhere
    }
    return {**in_python, **only}


def of_locks() -> dict[str, object]:
    lock = defaults(Tenure.lock, "meta", prefix="lock.")
    semaphore = defaults(Tenure.semaphore, "meta", prefix="semaphore.")
    once = defaults(Tenure.once, "ttl", prefix="once.")
    same = {name.replace("lock.", "semaphore."): value for name, value in lock.items()}
    assert same.items() <= semaphore.items()
    with_lock = defaults(Tenure.with_lock, "min_hold", "ttl", prefix="with_lock.")
    election = defaults(Tenure.election, "meta", prefix="election.")
    strict = {"semaphore.strict": semaphore["semaphore.strict"]}
    return {**lock, **strict, **with_lock, **election, **once}


def of_http() -> dict[str, object]:
    structure = ("prefix", "name", "dependencies", "responses")
    router = defaults(AsyncRouter.__init__, *structure, prefix="router.")
    of_router = ("path", "max_wait", "body_limit", "headers", "limits", "name", "before_enqueue")
    endpoint = defaults(AsyncRouter.endpoint, *of_router, prefix="endpoint.")
    of_task = defaults(Tenure.task, "fn", "name", "retry", prefix="endpoint.")
    assert of_task.items() <= endpoint.items()
    return {**router, **endpoint, **dict.fromkeys(of_task, "as of tasks")}


def of_client() -> dict[str, object]:
    structure = ("base_url", "http", "clock")
    client = defaults(Client.__init__, *structure)
    assert client == defaults(AsyncClient.__init__, *structure)
    request = ("json", "method", "params", "headers")
    return {**client, **defaults(Client.submit, *request, prefix="submit.")}


SECTIONS: Mapping[str, Callable[[], dict[str, object]]] = {
    "App": of_app,
    "Tasks": lambda: defaults(Tenure.task, "fn"),
    "Retries": lambda: defaults(Backoff),
    "Timers and schedules": lambda: defaults(Tenure.timer),
    "Workers": of_workers,
    "Locks": of_locks,
    "HTTP": of_http,
    "HTTP client": of_client,
    "Dashboard": lambda: defaults(Dashboard.__init__),
}


def written(section: str) -> dict[str, str]:
    """Return the defaults on the page, by name."""
    text = PAGE.read_text("utf-8")
    [part] = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in part.splitlines()
        if line.startswith("| `")
    ]
    assert all(len(row) == 4 for row in rows), f"a row of {section} has not four cells"
    return {
        name: default for names, default, *_ in rows for name in re.findall(r"`([^`]+)`", names)
    }


def fits(cell: str, value: object) -> bool:
    """Say whether a cell shows a default."""
    if value == "as of tasks":
        return cell.startswith("as of [tasks]")
    if value is None or value in ((), "") or (value is False and not cell.startswith("`")):
        return cell.startswith("none")
    values = value if isinstance(value, tuple) else (value,)
    return re.findall(r"`([^`]+)`", cell) == [shown(value) for value in values]


def shown(value: object) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


@pytest.mark.parametrize("section", SECTIONS)
def test_the_page_of_defaults_has_the_defaults_of_the_code(section: str):
    in_code, on_page = SECTIONS[section](), written(section)
    assert set(on_page) == set(in_code), "docs/defaults.md must name exactly these settings"
    wrong = {name: (cell, in_code[name]) for name, cell in on_page.items()}
    assert not {name: pair for name, pair in wrong.items() if not fits(*pair)}


def test_schedules_have_the_defaults_of_timers():
    of_schedule = defaults(Tenure.schedule, "args", "kwargs")
    assert of_schedule.items() <= defaults(Tenure.timer).items()


def test_a_unique_key_is_free_when_its_job_has_finished():
    assert defaults(Unique.__init__) == {"keep": 0}
    assert '`Unique("key")` has `keep` `0`' in PAGE.read_text("utf-8")


@pytest.mark.parametrize(
    ("cell", "value"), [("`11` s", 10), ("none", 10), ("`10`", None), ("`1` and `2`", (1, 3))]
)
def test_a_default_that_has_changed_is_noticed(cell: str, value: object):
    assert not fits(cell, value)
