"""Records that a store came across and could not use: told once in the log, and kept for operators.

Stores call `report` wherever they leave out a record or set it aside. The commands of `tenure` show
what the calls they made have reported.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from tenure.core.bounds import Damaged, Kind
from tenure.core.ids import is_job_id
from tenure.core.safe_text import safe

__all__ = ["Damage"]

Read = TypeVar("Read")

log = logging.getLogger("tenure")

# Of records that come and go, a worker that runs for months must not remember all.
_MOST: Final = 1000

_logged: set[tuple[str, str, Kind, str]] = set()
"""What this process has told already. Each record is read again and again."""


class Damage:
    """The damaged records that one store object has found, without repeats."""

    def __init__(self, url: str, namespace: str) -> None:
        self._url = url
        self._namespace = namespace
        self._found: dict[tuple[Kind, str], Damaged] = {}
        self._latest: dict[tuple[Kind, str], int] = {}
        self.reports = 0
        """How many reports there were so far, repeats included."""

    def __iter__(self) -> Iterator[Damaged]:
        return iter([*self._found.values()])

    def is_reported(self, kind: Kind, name: str, after: int) -> bool:
        """Return whether a record was reported since there were so many `reports`."""
        return self._latest.get((kind, name), 0) > after

    def read(
        self, kind: Kind, where: str, name: str, read: Callable[..., Read], *stored: Any
    ) -> Read | None:
        """Return what `read` makes of what is stored; None, with a report, if it cannot be used."""
        try:
            return read(*stored)
        except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
            self.report(kind, name, error, where)
            return None

    def report(self, kind: Kind, name: str, why: object, where: str) -> None:
        """Take note of a record that cannot be used."""
        reason = str(why)
        known = (kind, name)
        self.reports += 1
        self._latest.pop(known, None)
        self._latest[known] = self.reports
        if len(self._latest) > _MOST:
            del self._latest[next(iter(self._latest))]
        if known not in self._found and len(self._found) < _MOST:
            self._found[known] = Damaged(kind=kind, name=name, why=reason, where=where)
        told = (self._url, self._namespace, kind, name)
        if told in _logged:
            return
        if len(_logged) >= _MOST:
            _logged.clear()
        _logged.add(told)
        log.error(
            "Cannot use %s %s in %s of %s, namespace %s: %s. Everything else works. %s",
            kind,
            safe(repr(name)),
            where,
            self._url,
            self._namespace,
            safe(reason),
            _advice(kind, name),
        )


def _advice(kind: Kind, name: str) -> str:
    if kind == "job" and is_job_id(name):
        return f"'tenure jobs delete {name}' removes it; 'tenure doctor' says more."
    return "'tenure doctor' says what to do."
