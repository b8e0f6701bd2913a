"""Checks the environment of a process: unknown variables, and stores that do not reach far enough.

Pure: callers pass the environment in, and log or show the answers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final, Literal, TypeAlias

from tenure.core.settings import URL_DEFAULT, Settings

__all__ = [
    "SCOPES",
    "VARIABLES",
    "Scope",
    "default_store_problem",
    "is_in_kubernetes",
    "other_stores",
    "reaches",
    "scope_problem",
    "unknown_variables",
]

Scope: TypeAlias = Literal["process", "host", "fleet"]

SCOPES: Final[tuple[Scope, ...]] = ("process", "host", "fleet")
"""How far a store reaches, from the shortest to the longest."""

_OTHER_SETTINGS: Final = ("url", "require", "migrate", "scope", "connect", "health")

VARIABLES: Final = frozenset(
    f"TENURE_{name.upper()}" for name in (*Settings.__struct_fields__, *_OTHER_SETTINGS)
)
"""All variables that Tenure reads."""

_PREFIX: Final = "TENURE_"
# Reserved for tests.
_FOR_TESTS: Final = re.compile(r"TENURE_(TEST_.*|PLANTED)")
# Kubernetes adds these for a Service called "tenure" or "tenure-redis" to every pod beside it.
_OF_KUBERNETES: Final = re.compile(
    r"TENURE_(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
# Below this similarity, names share only a few letters, as "retry" and "require".
_SIMILAR: Final = 0.65
# Options of `tenure worker` that have no variable.
_WORKER_OPTIONS: Final = (
    "processes",
    "queues",
    "concurrency",
    "timer_concurrency",
    "no_timers",
    "timers_only",
    "burst",
    "reload",
    "max_jobs",
    "max_memory",
    "metrics",
    "log",
    "log_level",
)

_OF_OTHER_STORES: Final = ("REDIS_URL", "VALKEY_URL", "DATABASE_URL", "POSTGRES_URL")


def unknown_variables(environ: Mapping[str, str]) -> dict[str, str | None]:
    """Return the TENURE_* variables that Tenure does not read, each with the likely intention.

    That is another variable, an option of a command as text, or None.
    """
    closest: dict[str, str | None] = {}
    for variable in sorted(environ):
        is_ours = variable.startswith(_PREFIX) and variable not in VARIABLES
        if not is_ours or _FOR_TESTS.fullmatch(variable) or _OF_KUBERNETES.fullmatch(variable):
            continue
        closest[variable] = _meant(variable.removeprefix(_PREFIX))
    return closest


def _meant(name: str) -> str | None:
    """Return the likely intention of a name without its prefix, which would make all similar."""
    if name.lower() in _WORKER_OPTIONS:
        return f"the option --{name.lower().replace('_', '-')} of 'tenure worker'"
    names = [variable.removeprefix(_PREFIX) for variable in sorted(VARIABLES)]
    for candidate in names:  # with an additional word: REDIS_URL, GRACE_PERIOD
        if name.startswith(f"{candidate}_") or name.endswith(f"_{candidate}"):
            return _PREFIX + candidate
    close = get_close_matches(name, names, 1, _SIMILAR)
    return _PREFIX + close[0] if close else None


def other_stores(environ: Mapping[str, str]) -> list[str]:
    """Return the variables that name a server for other programs. Tenure does not read them."""
    return [name for name in _OF_OTHER_STORES if environ.get(name)]


def is_in_kubernetes(environ: Mapping[str, str]) -> bool:
    """Whether this process runs in a pod."""
    return bool(environ.get("KUBERNETES_SERVICE_HOST"))


def default_store_problem(environ: Mapping[str, str], *, is_terminal: bool) -> str | None:
    """Return why the default URL is wrong here; None at a terminal or in a test.

    In a pod it is always wrong, because each pod has its own file.
    """
    if "PYTEST_CURRENT_TEST" in environ or (is_terminal and not is_in_kubernetes(environ)):
        return None
    others = " and ".join(other_stores(environ))
    ignored = f" {others} is set, but Tenure reads TENURE_URL only." if others else ""
    return (
        f"No store is configured, so this process uses the default, {URL_DEFAULT}. Locks, timers "
        "and jobs are shared by the processes of this host only: replicas on other hosts run the "
        f"same timers and take the same locks.{ignored} Set TENURE_URL, to {URL_DEFAULT} if one "
        "host is all you have."
    )


def reaches(scope: Scope, required: Scope) -> bool:
    """Return whether a store of this scope reaches as far as required."""
    return SCOPES.index(scope) >= SCOPES.index(required)


def scope_problem(url: str, scope: Scope, required: Scope) -> str:
    """Return a message that a store does not reach far enough, and what to use."""
    reach = {
        "process": "is seen by this process only",
        "host": "is shared by the processes of one host only",
        "fleet": "is shared by many hosts",
    }[scope]
    means = {
        "process": "one process",
        "host": "all processes of a host, such as sqlite:///file.db",
        "fleet": "all hosts of a fleet: redis://host:6379/0 or postgresql://user@host/database",
    }[required]
    return f"{url} {reach}, but scope={required!r} asks for a store that reaches {means}."
