"""Logs how a process was set up, where the environment makes that look like a mistake.

Each warning is logged once per process, when the first app that it concerns is opened.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Final

from tenure.core.environment import default_store_problem, unknown_variables

__all__ = ["keep_quiet", "warn_about_setup"]

log = logging.getLogger("tenure")

_DEFAULT_STORE: Final = "the default store"
_EVERYTHING: Final = "everything"

_logged: set[str] = set()


def warn_about_setup(*, is_default_store: bool) -> None:
    """Warn about a default store that looks accidental, and about variables that are not read."""
    if _EVERYTHING in _logged:
        return
    if is_default_store and _DEFAULT_STORE not in _logged:
        _logged.add(_DEFAULT_STORE)
        problem = default_store_problem(os.environ, is_terminal=_is_terminal())
        if problem is not None:
            log.warning("%s", problem)
    for variable, meant in unknown_variables(os.environ).items():
        if variable not in _logged:
            _logged.add(variable)
            advice = f"Did you mean {meant}?" if meant else "Tenure has no such setting."
            log.warning("%s is set, but has no effect. %s", variable, advice)


def keep_quiet() -> None:
    """Log no warnings here: for a worker process, whose supervisor has logged them."""
    _logged.add(_EVERYTHING)


def _is_terminal() -> bool:
    """Whether a person sees what this process writes."""
    return hasattr(sys, "ps1") or (sys.stderr is not None and sys.stderr.isatty())
