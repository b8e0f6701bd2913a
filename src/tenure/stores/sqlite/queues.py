"""Queues in SQLite: their counts and pauses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tenure.core.durations import micros
from tenure.core.jobs.records import COUNT_MAX, QueueCounts
from tenure.stores.sqlite.statements import Row, Transaction

__all__ = ["counts", "pause"]

# How many running jobs are counted: more than one host can run.
_RUNNING_MAX = 10 * COUNT_MAX

# By primary key.
PAUSE = """
    INSERT OR REPLACE INTO tenure_pause (namespace, queue, until, reason)
    VALUES (:namespace, :queue, :until, :reason)
"""

# By primary key.
RESUME = "DELETE FROM tenure_pause WHERE namespace = :namespace AND queue = :queue"

# By primary key.
PAUSED = """
    SELECT queue, until, reason
    FROM tenure_pause
    WHERE namespace = :namespace AND (until IS NULL OR typeof(until) <> 'integer' OR until > :wall)
"""

# The queues with waiting jobs. Each step is one look-up by tenure_live_ready, which skips all jobs
# of the previous queue.
WAITING_QUEUES = """
    WITH RECURSIVE known (queue) AS (
        SELECT min(queue)
        FROM tenure_live INDEXED BY tenure_live_ready
        WHERE namespace = :namespace AND holder IS NULL
        UNION ALL
        SELECT (SELECT min(queue)
                FROM tenure_live INDEXED BY tenure_live_ready
                WHERE namespace = :namespace AND holder IS NULL AND queue > known.queue)
        FROM known
        WHERE known.queue IS NOT NULL
    )
    SELECT queue, 0 FROM known WHERE queue IS NOT NULL
"""

# By tenure_live_ready, no further than the limit.
COUNT_WAITING = """
    SELECT count(*)
    FROM (SELECT 1
          FROM tenure_live INDEXED BY tenure_live_ready
          WHERE namespace = :namespace AND queue = :queue AND holder IS NULL
          LIMIT :limit)
"""

# The first due job of each priority, by tenure_live_ready: of jobs without a delay, which are due
# whatever the clock shows, and of delayed jobs. Within its millisecond another job may be due
# slightly earlier.
OLDEST = """
    SELECT min((SELECT min(due, :wall)
                FROM tenure_live INDEXED BY tenure_live_ready
                WHERE namespace = :namespace AND queue = :queue
                  AND (since IS NOT NULL) = 0 AND priority = p.column1 AND holder IS NULL
                ORDER BY due / 1000, id
                LIMIT 1)),
           min((SELECT due
                FROM tenure_live INDEXED BY tenure_live_ready
                WHERE namespace = :namespace AND queue = :queue
                  AND (since IS NOT NULL) = 1 AND priority = p.column1 AND holder IS NULL
                  AND due / 1000 <= :wall / 1000 AND due <= :wall
                ORDER BY due / 1000, id
                LIMIT 1))
    FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS p
"""

# By tenure_replica_id and tenure_live_held, no further than the limit.
COUNT_RUNNING = """
    SELECT queue, count(*)
    FROM (SELECT l.queue
          FROM tenure_replica AS r INDEXED BY tenure_replica_id
          CROSS JOIN tenure_live AS l INDEXED BY tenure_live_held
          WHERE r.namespace = :namespace AND l.holder = r.number
          LIMIT :limit)
    GROUP BY queue
"""


def counts(tx: Transaction) -> list[QueueCounts]:
    """Return the counts of each queue that is paused or has unfinished jobs."""
    pauses = _by_queue(tx, [(queue, pause) for queue, *pause in tx.rows(PAUSED)])
    paused = {queue: _read_pause(tx, queue, *pause) for queue, pause in pauses.items()}
    running = _by_queue(tx, tx.rows(COUNT_RUNNING, limit=_RUNNING_MAX))
    waiting = {
        queue: tx.rows(COUNT_WAITING, queue=queue, limit=COUNT_MAX)[0][0]
        for queue in _by_queue(tx, tx.rows(WAITING_QUEUES))
    }
    return [
        QueueCounts(
            queue=queue,
            waiting=waiting.get(queue, 0),
            running=min(COUNT_MAX, running.get(queue, 0)),
            oldest=_oldest(tx, queue) if queue in waiting else None,
            paused_for=paused[queue][0] if queue in paused else None,
            pause_reason=paused[queue][1] if queue in paused else "",
        )
        for queue in sorted({*paused, *running, *waiting})
    ]


def _by_queue(tx: Transaction, rows: Sequence[Row]) -> dict[str, Any]:
    """Return values by the name of their queue, without unreadable names."""
    for queue, _ in rows:
        if not isinstance(queue, str):
            tx.damage.report("queue", repr(queue), "its name is not text", "tenure_live")
    return {queue: value for queue, value in rows if isinstance(queue, str)}


def _read_pause(
    tx: Transaction, queue: str, until: object, reason: object
) -> tuple[float | None, str]:
    """Return the remaining seconds of a pause, and its reason. A damaged end counts as none."""
    text = reason if isinstance(reason, str) else repr(reason)
    if until is None:
        return math.inf, text
    if isinstance(until, int):
        return (until - tx.wall) / 1e6, text
    why = f"its pause ends at {until!r}, so it counts as none"
    tx.damage.report("queue", queue, why, "tenure_pause")
    return None, ""


def _oldest(tx: Transaction, queue: str) -> float | None:
    (oldest,) = tx.rows(OLDEST, queue=queue)
    ages = ((tx.wall - due) / 1e6 for due in oldest if isinstance(due, int))
    return max(ages, default=None)


def pause(tx: Transaction, queue: str, seconds: float | None, reason: str) -> None:
    """Pause a queue. With 0 seconds, end its pause and wake its watchers."""
    if seconds == 0:
        tx.change(RESUME, queue=queue)
        tx.ring(("queue", queue))
    else:
        until = None if seconds is None else tx.wall + micros(seconds)
        tx.change(PAUSE, queue=queue, until=until, reason=reason)
