"""Claims in SQLite: which jobs a replica starts, and how a repeated claim is recognised."""

from __future__ import annotations

from typing import NamedTuple

from tenure.core.jobs.records import Claimed, JobRecord
from tenure.stores.sqlite.records import RUNNING, as_records
from tenure.stores.sqlite.settlements import set_aside
from tenure.stores.sqlite.statements import Row, Transaction, as_json
from tenure.stores.sqlite.tables import JOB, LIVE, REPLICA

__all__ = ["Claim", "EmptyClaims", "claim", "start", "starting_replica"]

# The served queues in their order, and the priorities of each. SQLite nests the tables of a CROSS
# JOIN in the order in which they are written, so the rows come in the order of the outer tables.
_LANES = """
    json_each(:queues) AS q
    CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS p
"""
_NOT_PAUSED = """
    NOT EXISTS (SELECT 1
                FROM tenure_pause
                WHERE namespace = :namespace AND queue = q.value
                  AND (until IS NULL OR typeof(until) = 'integer' AND until > :wall))
"""

# When the first delayed job is due. Each queue and each priority is a separate look-up, by
# tenure_live_ready.
NEXT_DUE = f"""
    SELECT min((SELECT due
                FROM tenure_live INDEXED BY tenure_live_ready
                WHERE namespace = :namespace AND queue = q.value
                  AND (since IS NOT NULL) = 1 AND priority = p.column1 AND holder IS NULL
                  AND typeof(due) = 'integer'
                ORDER BY due / 1000, id
                LIMIT 1))
    FROM {_LANES}
    WHERE {_NOT_PAUSED}
"""  # noqa: S608 - put together from constants

# By tenure_replica_id.
CLAIMING_REPLICA = f"""
    SELECT number, claim_no, boot_id = :boot_id AND expires > :now, ({NEXT_DUE})
    FROM tenure_replica
    WHERE namespace = :namespace AND id = :replica AND dead = 0
      AND {REPLICA.of("tenure_replica")}
"""  # noqa: S608 - put together from constants

# Delayed jobs whose time has come join the other jobs of their queue, in the order in which they
# are served; see DUE. By tenure_live_ready, and then by number.
END_PAUSES = f"""
    UPDATE OR IGNORE tenure_live
    SET since = NULL
    WHERE number IN (SELECT l.number
                     FROM {_LANES}
                     CROSS JOIN tenure_live AS l INDEXED BY tenure_live_ready
                     WHERE {_NOT_PAUSED}
                       AND l.namespace = :namespace AND l.queue = q.value
                       AND (l.since IS NOT NULL) = 1 AND l.priority = p.column1
                       AND l.holder IS NULL AND l.due / 1000 <= :wall / 1000 AND l.due <= :wall
                     LIMIT :limit)
"""  # noqa: S608 - put together from constants

# The due jobs in the order in which they are served. Each queue and priority is a separate look-up
# by tenure_live_ready.
DUE = f"""
    SELECT l.number, l.id, {LIVE.of("l")} AND {JOB.of("j")}
    FROM {_LANES}
    CROSS JOIN tenure_live AS l INDEXED BY tenure_live_ready
    CROSS JOIN tenure_job AS j
    WHERE {_NOT_PAUSED}
      AND l.namespace = :namespace AND l.queue = q.value AND (l.since IS NOT NULL) = 0
      AND l.priority = p.column1 AND l.holder IS NULL
      AND j.number = l.number
    LIMIT :limit
"""  # noqa: S608 - put together from constants

# By number. The fence is above the last one of the job, and not below `:least`.
START = """
    UPDATE tenure_live
    SET holder = :holder, claim_no = :claim_no, fence = max(fence + 1, :least),
        revision = revision + 1, attempt = attempt + 1, started = :wall,
        deadline = :now + allowed
    WHERE number IN (SELECT value FROM json_each(:numbers))
"""

# By number.
COUNT_CLAIM = "UPDATE tenure_replica SET claim_no = :claim_no WHERE number = :holder"

# By number, in the order of the list.
STARTED = f"""
    SELECT {RUNNING}
    FROM json_each(:numbers) AS n
    CROSS JOIN tenure_live AS l
    CROSS JOIN tenure_job AS j
    CROSS JOIN tenure_replica AS r
    WHERE l.number = n.value AND j.number = l.number AND r.number = l.holder
"""  # noqa: S608 - put together from constants

# The jobs of a claim that still run, by tenure_live_held.
CLAIMED = """
    SELECT number
    FROM tenure_live INDEXED BY tenure_live_held
    WHERE holder = :holder AND claim_no = :claim_no
    ORDER BY id
"""

# How many replicas a store object remembers an empty claim of. A worker has one replica at a time.
_REMEMBERED = 100


class EmptyClaims(dict[str, int]):
    """The numbers of the last empty claims, by replica.

    They are not in the file, because idle workers would write to the disk at every poll. All claims
    of a replica go through one store object, so a repeat after a lost reply finds its number here.
    If the process has ended, no repeat comes.
    """

    def remember(self, replica: str, claim_no: int) -> None:
        """Record that this claim was empty. Older ones of the replica get nothing either."""
        self.pop(replica, None)
        self[replica] = claim_no
        if len(self) > _REMEMBERED:
            del self[next(iter(self))]


class Claim(NamedTuple):
    """The arguments of a claim."""

    replica: str
    number: int
    queues: str
    """The queues in the order in which they are served, as JSON."""
    limit: int


def starting_replica(tx: Transaction, replica: str, queues: str = "[]") -> Row | None:
    """Return what a claim needs to know of a replica; None if it is unknown or dead.

    That is its number, the number of its last claim, whether it is alive, and when the first
    delayed job in the queues is due.
    """
    return tx.row(CLAIMING_REPLICA, replica=replica, queues=queues)


def claim(tx: Transaction, empty: EmptyClaims, request: Claim) -> Claimed | None:
    """Start due jobs. A claim that gets nothing writes nothing.

    In a transaction that only reads, it finds out whether there may be jobs to start. If so,
    `tx.lasting` makes the writer run it again with the write lock, and this answer is dropped.
    """
    record = starting_replica(tx, request.replica, request.queues)
    if record is None:
        return None
    holder, stored, lives, later = record
    last = max(stored, empty.get(request.replica, 0))
    if request.number == last:
        numbers = [number for (number,) in tx.rows(CLAIMED, holder=holder, claim_no=last)]
        return Claimed(as_records(tx, tx.rows(STARTED, numbers=as_json(numbers))))
    if request.number < last or not lives:
        return Claimed([])
    # A job of the current millisecond may be due slightly earlier.
    has_come = later is not None and later // 1000 <= tx.wall // 1000
    if tx.is_reading and (has_come or tx.rows(DUE, queues=request.queues, limit=1)):
        tx.lasting = True
        return None
    jobs: list[JobRecord] = []
    if not tx.is_reading:
        if has_come:
            tx.change(END_PAUSES, queues=request.queues, limit=request.limit)
        jobs = _started(tx, request, holder)
    if not jobs:
        empty.remember(request.replica, request.number)
    if len(jobs) == request.limit:
        return Claimed(jobs)
    if has_come:
        ((later,),) = tx.rows(NEXT_DUE, queues=request.queues)
    return Claimed(jobs, None if later is None else (later - tx.wall) / 1e6)


def _started(tx: Transaction, request: Claim, holder: int) -> list[JobRecord]:
    """Start due jobs, and return their new records.

    An unreadable job is set aside. Otherwise it would stay first in its queue, or seem to run on
    this replica as long as that lives.
    """
    jobs: list[JobRecord] = []
    while rows := tx.rows(DUE, queues=request.queues, limit=request.limit - len(jobs)):
        tx.lasting = True
        tx.change(COUNT_CLAIM, holder=holder, claim_no=request.number)
        sound = [number for number, _, is_sound in rows if is_sound]
        start(tx, sound, holder, claim_no=request.number, least=tx.wall)
        started = as_records(tx, tx.rows(STARTED, numbers=as_json(sound)))
        readable = {job.id for job in started}
        broken = {number: id_ for number, id_, _ in rows if id_ not in readable}
        jobs += started
        if not broken:
            break
        set_aside(tx, broken)
    tx.ring(*(("job", job.id) for job in jobs))
    return jobs


def start(tx: Transaction, numbers: list[int], holder: int, *, claim_no: int, least: int) -> None:
    """Let jobs run on the replica with this number, under fences that are not below `least`."""
    values = {"holder": holder, "claim_no": claim_no, "least": least}
    tx.change(START, numbers=as_json(numbers), **values)
