"""Whether rows can be used, as conditions in SQL: for constraints, and for what statements ask.

SQLite stores any type in any column, and constraints do not hold for rows that somebody wrote with
`ignore_check_constraints`, or that a damaged disk has changed. So statements that count a row up
or move it to another table ask whether it is sound. The bounds are those of `core.soundness`.
"""

from __future__ import annotations

from typing import Final

from tenure.core.soundness import COUNTER_MAX, INSTANT_MAX, SPAN_MAX

__all__ = [
    "DECISION",
    "DONE",
    "JOB",
    "LEASE",
    "LIVE",
    "MACHINE",
    "REPLICA",
    "RUN",
    "SCHEDULE",
    "SEMAPHORE",
    "WAITER",
    "WATCH",
    "Condition",
]

_MICROS: Final = round(SPAN_MAX * 1e6)


class Condition:
    """A condition on the columns of a table."""

    def __init__(self, *parts: str) -> None:
        self._text = " AND ".join(f"({part})" for part in parts)

    def of(self, alias: str) -> str:
        """Return it for a table that a statement calls so."""
        return f"({self._text.replace('@', f'{alias}.')})"

    @property
    def check(self) -> str:
        """Return it as a constraint of the table."""
        # One more than what may be counted up, so that counting up never violates it.
        room = self._text.replace(str(INSTANT_MAX), str(INSTANT_MAX + 1))
        room = room.replace(str(COUNTER_MAX), str(COUNTER_MAX + 1))
        return f"CHECK ({room.replace('@', '')})"


def _each(columns: str, condition: str) -> str:
    """Return a condition for several columns, which stand for # in it."""
    names = (f'"{name}"' for name in columns.split())
    return " AND ".join(condition.replace("#", f"@{name}") for name in names)


def _whole(columns: str, least: int, most: int) -> str:
    return _each(columns, f"typeof(#) = 'integer' AND # BETWEEN {least} AND {most}")


def _instants(columns: str) -> str:
    return _whole(columns, -INSTANT_MAX, INSTANT_MAX)


def _fences(columns: str) -> str:
    return _whole(columns, 0, INSTANT_MAX)


def _counters(columns: str) -> str:
    return _whole(columns, 0, COUNTER_MAX)


def _lengths(columns: str) -> str:
    """Microseconds."""
    return _whole(columns, 0, _MICROS)


def _flags(columns: str) -> str:
    return _whole(columns, 0, 1)


def _texts(columns: str) -> str:
    return _each(columns, "typeof(#) = 'text'")


def _maybe(kind: str, columns: str) -> str:
    return _each(columns, f"typeof(#) IN ('{kind}', 'null')")


def _or_null(condition: str, column: str) -> str:
    return f'@"{column}" IS NULL OR ({condition})'


LEASE: Final = Condition(
    _texts("namespace key holder meta boot_id"),
    _fences("fence"),
    _whole("limit", 1, 1_000_000),
    _lengths("ttl"),
    _instants("granted renewed expires"),
)

WAITER: Final = Condition(
    _texts("namespace key holder meta boot_id"),
    _fences("place"),
    _whole("limit", 1, 1_000_000),
    _lengths("ttl"),
    _instants("arrived renewed expires"),
)

MACHINE: Final = Condition(_texts("id host"), _instants("wall boot"), _fences("turn"))

WATCH: Final = Condition(_instants("since"), _fences("turn"), _flags("was_there"))

JOB: Final = Condition(
    _texts("namespace id task queue options tags"),
    _whole("priority", 0, 9),
    _instants("created"),
    f"typeof(@retention) = 'real' AND @retention BETWEEN 0 AND {SPAN_MAX}",
    f"typeof(@retention_failed) = 'real' AND @retention_failed BETWEEN 0 AND {SPAN_MAX}",
    _or_null(f"typeof(@timeout) = 'real' AND @timeout BETWEEN 0 AND {SPAN_MAX}", "timeout"),
    _maybe("text", "unique_key digest"),
    _or_null(f"typeof(@keep) = 'real' AND @keep BETWEEN -{SPAN_MAX} AND {SPAN_MAX}", "keep"),
    "(@unique_key IS NULL) = (@digest IS NULL) AND (@unique_key IS NULL) = (@keep IS NULL)",
    "typeof(@payload) = 'blob'",
)

LIVE: Final = Condition(
    _texts("namespace id queue settled_as message reason"),
    _whole("priority", 0, 9),
    _instants("due started"),
    _lengths("retained retained_failed"),
    _or_null(_lengths("allowed"), "allowed"),
    _or_null(_fences("since"), "since"),
    _flags("keyed cancelling"),
    _maybe("integer", "holder deadline"),
    _fences("claim_no fence revision settled_fence"),
    _counters("attempt failures losses"),
    _maybe("real", "progress"),
    _maybe("blob", "error checkpoint"),
    "typeof(@history) = 'blob'",
)

# The column that jobs and unfinished ones got later.
RUN: Final = Condition(_maybe("text", "schedule"))

DONE: Final = Condition(
    _texts("namespace message reason"),
    "@state IN ('succeeded', 'failed', 'cancelled')",
    _instants("due started finished expires"),
    _fences("fence revision"),
    _counters("attempt failures losses"),
    _or_null(_fences("settled_fence"), "settled_fence"),
    _maybe("text", "id settled_as"),
    _maybe("real", "progress"),
    _maybe("blob", "result error checkpoint"),
    "typeof(@history) = 'blob'",
)

REPLICA: Final = Condition(
    _texts("namespace id meta boot_id taker"),
    _instants("joined renewed expires taken_until"),
    _lengths("ttl"),
    _fences("claim_no"),
    _flags("dead"),
)

SEMAPHORE: Final = Condition(
    _texts("namespace key boot_id"),
    _whole("live lowest highest", 1, 1_000_000),
)

SCHEDULE: Final = Condition(
    _texts("namespace name version last_job ruler standing definition"),
    _instants("declared last_run"),
    _fences("last_fence"),
)

DECISION: Final = Condition(
    _texts("namespace name like body"),
    _fences("number ticks"),
    _instants("first last at"),
)
