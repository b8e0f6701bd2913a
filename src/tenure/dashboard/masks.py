"""Which parts of a job's contents a viewer gets: arguments, checkpoint, result, headers.

Everything is masked unless the viewer may reveal it. Rules by task say more: `"always"` for tasks
without secrets, `"never"` for those that nobody shall see here, or the arguments that may be seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from tenure.core.jobs.options import read_options
from tenure.core.jobs.records import JobRecord
from tenure.core.jobs.results import shown_result
from tenure.core.values.json import shown_value
from tenure.dashboard.viewer import Viewer
from tenure.errors import ConfigError

__all__ = ["Masks", "Reveal", "Rule", "argument_names", "plain_headers"]

Rule: TypeAlias = Literal["always", "never"] | Sequence[str]
Reveal: TypeAlias = Mapping[str, Rule]
"""Rules by the name of a task; "*" stands for all other tasks."""

_OTHERS: Final = "*"
_NAMES_MAX: Final = 50
_NAME_MAX: Final = 200
_SHOWN_MAX: Final = 256 * 1024
_PLAIN_HEADERS: Final = frozenset({"traceparent", "tracestate", "x-request-id"})
"""Headers that logs and traces have as well."""


class Masks:
    """Decides by viewer and task. Raises ConfigError for rules that cannot be meant."""

    def __init__(self, reveal: Reveal) -> None:
        for task, rule in reveal.items():
            is_word = isinstance(rule, str) and rule in ("always", "never")
            is_list = not isinstance(rule, str) and all(isinstance(name, str) for name in rule)
            if not (is_word or is_list):
                msg = (
                    f"reveal={{{task!r}: {rule!r}}} is no rule. Write 'always', 'never', or a list "
                    "of the arguments that may be seen."
                )
                raise ConfigError(msg)
        self._rules = dict(reveal)

    def _rule(self, task: str) -> Rule | None:
        return self._rules.get(task, self._rules.get(_OTHERS))

    def may_reveal(self, viewer: Viewer, task: str) -> bool:
        """Return whether a viewer may see contents of a task's jobs, or some of them."""
        rule = self._rule(task)
        if rule == "never" or not viewer.name:
            return False
        return viewer.may_reveal or rule == "always"

    def may_see_all(self, viewer: Viewer, task: str) -> bool:
        """Return whether nothing of a task's jobs is hidden from a viewer."""
        return self.may_reveal(viewer, task) and self._rule(task) in (None, "always")

    def contents(self, job: JobRecord) -> dict[str, Any]:
        """Return the contents of a job for a viewer who may see them, by the rule of its task.

        `masked` names what the rule hides, and `too_large` what is too large for a page.
        """
        rule = self._rule(job.task)
        names = None if rule is None or isinstance(rule, str) else frozenset(rule)
        result, problem = shown_result(job.result)
        stored = {"arguments": job.payload, "checkpoint": job.checkpoint, "result": result}
        too_large = [part for part, data in stored.items() if data and len(data) > _SHOWN_MAX]
        values = {
            part: None if part in too_large else shown_value(data) for part, data in stored.items()
        }
        masked: list[str] = []
        if names is not None:
            values, masked = _masked(values, names)
        headers: Mapping[str, str | None] = read_options(job.options).headers
        if names is not None:
            headers = plain_headers(headers)
            masked += [f"headers.{name}" for name, value in headers.items() if value is None]
        return {
            **values,
            "headers": headers,
            "result_problem": problem if names is None else "",  # it may quote a key of the result
            "masked": masked,
            "too_large": too_large,
        }


def plain_headers(headers: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the headers of a job as everybody may see them; masked values are None."""
    return {name: value if name in _PLAIN_HEADERS else None for name, value in headers.items()}


def _masked(values: dict[str, Any], names: frozenset[str]) -> tuple[dict[str, Any], list[str]]:
    """Return values with the arguments of these names only, and what is masked."""
    masked = [part for part in ("checkpoint", "result") if values[part] is not None]
    arguments = values["arguments"]
    shown: Any = None
    if isinstance(arguments, dict):
        shown = {name: value if name in names else None for name, value in arguments.items()}
        masked += [f"arguments.{name}" for name in arguments if name not in names]
    elif arguments is not None:
        masked.append("arguments")
    return {"arguments": shown, "checkpoint": None, "result": None}, masked


def argument_names(payload: bytes) -> list[str]:
    """Return the names of a job's arguments, which say nothing of their values."""
    arguments = shown_value(payload)
    if not isinstance(arguments, dict):
        return []
    return [name[:_NAME_MAX] for name in [*arguments][:_NAMES_MAX]]
