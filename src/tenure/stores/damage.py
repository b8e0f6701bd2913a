"""Reports stored records that cannot be used: each is logged once and listed for operators.

A damaged record never makes a call fail for the others. Stores call `read` or `report` where they
leave out a record or set it aside. The commands of `tenure` show what their own calls reported.
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

# A worker that runs for months must not remember every record that came and went.
_MOST: Final = 1000

_logged: set[tuple[str, str, Kind, str]] = set()
"""What this process has logged: a damaged record is read again and again."""


class Damage:
    """The damaged records that a store object has come across, without repeats."""

    def __init__(self, url: str, namespace: str) -> None:
        self._url = url
        self._namespace = namespace
        self._records: dict[tuple[Kind, str], Damaged] = {}
        self._latest: dict[tuple[Kind, str], int] = {}
        self.reports = 0
        """The number of reports so far, repeats included."""

    def __iter__(self) -> Iterator[Damaged]:
        return iter([*self._records.values()])

    def is_reported(self, kind: Kind, name: str, after: int) -> bool:
        """Return whether a record was reported after the report number `after`; see `reports`."""
        return self._latest.get((kind, name), 0) > after

    def read(
        self, kind: Kind, where: str, name: str, read: Callable[..., Read], *stored: Any
    ) -> Read | None:
        """Return what `read` makes of stored values; None, with a report, if it cannot."""
        try:
            return read(*stored)
        except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
            self.report(kind, name, error, where)
            return None

    def report(self, kind: Kind, name: str, why: object, where: str) -> None:
        """Record, and log the first time, that a record cannot be used."""
        reason = str(why)
        subject = (kind, name)
        self.reports += 1
        self._latest.pop(subject, None)
        self._latest[subject] = self.reports
        if len(self._latest) > _MOST:
            del self._latest[next(iter(self._latest))]
        if subject not in self._records and len(self._records) < _MOST:
            self._records[subject] = Damaged(kind=kind, name=name, why=reason, where=where)
        entry = (self._url, self._namespace, kind, name)
        if entry in _logged:
            return
        if len(_logged) >= _MOST:
            _logged.clear()
        _logged.add(entry)
        log.error(
            "Cannot use %s %s in %s of %s, namespace %s: %s. All other records work. %s",
            kind,
            safe(repr(name)),
            where,
            self._url,
            self._namespace,
            safe(reason),
            _advice(kind, name),
            extra=_fields(kind, name),
        )


def _fields(kind: Kind, name: str) -> dict[str, str]:
    """Return the `extra` of the log record: the field that names a record of this kind."""
    return {kind: safe(name)} if kind in ("job", "lock", "replica", "queue", "timer") else {}


def _advice(kind: Kind, name: str) -> str:
    if kind == "job" and is_job_id(name):
        return f"Run 'tenure jobs delete {name}' to remove it, or 'tenure doctor' for details."
    return "Run 'tenure doctor' to see what to do."
