"""Deleting jobs in SQLite, also those that cannot be read."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from tenure.core.records import Deleted
from tenure.core.states import JobState, may_delete
from tenure.stores.sqlite import job_statements as sql
from tenure.stores.sqlite import look_statements as look_sql
from tenure.stores.sqlite.looking import as_record
from tenure.stores.sqlite.transaction import Transaction, as_json

__all__ = ["delete"]

# The row of the job goes last: the others are found by it.
_REMOVALS: Final = (
    sql.REMOVE_TAGS,
    sql.REMOVE_KEYS,
    sql.REMOVE_LIVE,
    sql.REMOVE_DONE,
    sql.REMOVE_ASIDE,
    sql.REMOVE_JOB,
)


def delete(tx: Transaction, ids: Sequence[str]) -> list[Deleted | None]:
    """Remove jobs with all that belongs to them, and answer for each."""
    listed = as_json(ids)
    numbers: dict[str, int] = dict(tx.rows(sql.TO_DELETE, ids=listed))
    states: dict[str, JobState] = {}
    for row in tx.rows(look_sql.GET, ids=listed):
        with suppress(ValueError, TypeError, ArithmeticError, RecursionError):
            states[row[0]] = as_record(row).state
    going = {id_: number for id_, number in numbers.items() if may_delete(states.get(id_))}
    if going:
        for statement in _REMOVALS:
            tx.change(statement, numbers=as_json([*going.values()]))
    answers: list[Deleted | None] = []
    for id_ in ids:
        known = numbers.get(id_)
        answers.append(None if known is None else "deleted" if id_ in going else "unfinished")
        if id_ in going:
            del numbers[id_]  # named twice, it is gone the second time
            del going[id_]
    return answers
