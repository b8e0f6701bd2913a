"""Finds jobs in SQLite whose replica is dead, that are past their deadline, or are stranded."""

from __future__ import annotations

from tenure.core.bounds import UNREADABLE
from tenure.core.durations import micros
from tenure.core.jobs.records import JobRecord, Stranded
from tenure.core.jobs.replicas import RESERVED_FOR, Orphans
from tenure.stores.sqlite.records import HEAD, as_records
from tenure.stores.sqlite.replicas import GONE, NUMBER_OF, clamp
from tenure.stores.sqlite.settlements import set_aside
from tenure.stores.sqlite.statements import Transaction
from tenure.stores.sqlite.tables import LIVE, REPLICA

__all__ = ["Look", "stranded"]

# Dead or expired replicas in the order in which they joined, except for those that are reserved for
# another replica. By tenure_replica_end. First, by tenure_replica_id and as damaged: the store
# rejects the beats of such a replica, so its jobs must be recovered.
EXPIRED = f"""
    SELECT number, id, 'damaged' FROM tenure_replica INDEXED BY tenure_replica_id
    WHERE namespace = :namespace AND NOT {REPLICA.of("tenure_replica")}
    UNION ALL
    SELECT number, id, 'dead' FROM tenure_replica INDEXED BY tenure_replica_end
    WHERE namespace = :namespace AND dead = 1
      AND (taker = :taker OR taken_until NOT BETWEEN :now + 1 AND :now + :reserved)
    UNION ALL
    {GONE}
    ORDER BY number
"""  # noqa: S608 - put together from constants

# By number.
MARK_DEAD = """
    UPDATE OR IGNORE tenure_replica
    SET dead = 1, taker = :taker, taken_until = :now + :reserved
    WHERE number = :holder
"""

# By number, and by tenure_live_held: whether it runs anything.
REMOVE_IDLE = """
    DELETE FROM tenure_replica
    WHERE number = :holder
      AND NOT EXISTS (SELECT 1 FROM tenure_live INDEXED BY tenure_live_held
                      WHERE holder = :holder)
"""

# The job's number and id, its replica, whether it can be moved, and its record.
_ORPHANS = f"""
    SELECT l.number, l.id, r.id, {LIVE.of("l")}, {HEAD}
    FROM tenure_live AS l INDEXED BY @index
    LEFT JOIN tenure_replica AS r ON r.number = l.holder AND r.namespace = l.namespace
    LEFT JOIN tenure_job AS j ON j.number = l.number
    WHERE @found
    LIMIT :limit
"""  # noqa: S608 - put together from constants

# By tenure_live_held, in its order: any other order reads all jobs of a replica for each slice.
HELD = _ORPHANS.replace("@index", "tenure_live_held").replace(
    "@found", "l.holder = :holder ORDER BY l.number"
)

OVERDUE = _ORPHANS.replace("@index", "tenure_live_deadline").replace(
    "@found",
    """
    l.namespace = :namespace AND l.deadline <= :since AND l.holder IS NOT NULL
    ORDER BY l.deadline, l.id
    """,
)

# Jobs that run on a missing replica; only a change by hand creates such rows. It visits all running
# jobs, by tenure_live_held: no more than one host can run.
ORPHANS = _ORPHANS.replace("@index", "tenure_live_held").replace(
    "@found",
    """
    l.namespace = :namespace AND l.holder IS NOT NULL AND r.number IS NULL
    ORDER BY l.id
    """,
)

# Jobs that were set aside. By tenure_aside_end; it sorts the result.
ASIDE = """
    SELECT id, kept_until
    FROM tenure_aside
    WHERE namespace = :namespace
    ORDER BY kept_until, id
    LIMIT :limit
"""


class Look:
    """One search for jobs of dead replicas, or past their deadline."""

    def __init__(self, tx: Transaction, by: str, limit: int) -> None:
        self._tx = tx
        self._taker = {"taker": by, "reserved": micros(RESERVED_FOR)}
        self._limit = limit
        self._jobs: dict[str, JobRecord] = {}
        self._aside: list[tuple[str, str]] = []
        self._dead: list[str] = []

    @property
    def _room(self) -> int:
        return self._limit - len(self._jobs) - len(self._aside)

    def at_all(self, until: int, grace: int) -> Orphans:
        """Visit the replicas that had expired at an instant, and overdue jobs."""
        tx = self._tx
        clamp(tx)
        for holder, id_, kind in tx.rows(EXPIRED, by=until, **self._taker):
            if not self._room:
                return self._answer()  # replicas that were not visited may still revive
            if kind == "damaged":
                why = f"{UNREADABLE}; its jobs run elsewhere, and the record is removed"
                tx.damage.report("replica", str(id_), why, "tenure_replica")
            elif kind == "expired":
                self._dead.append(id_)
            self._at_holder(holder)
        self._find(OVERDUE, since=until - grace)
        self._find(ORPHANS)
        return self._answer()

    def at_replica(self, replica: str) -> Orphans:
        """Visit one replica, whether it has expired or not."""
        row = self._tx.row(NUMBER_OF, replica=replica)
        if row is not None:
            holder, is_dead = row
            self._dead += [] if is_dead else [replica]
            self._at_holder(holder)
        return self._answer()

    def _at_holder(self, holder: int) -> None:
        """Visit a replica by its number. It is dead from now on."""
        self._tx.change(MARK_DEAD, holder=holder, **self._taker)
        self._find(HELD, holder=holder)
        self._tx.change(REMOVE_IDLE, holder=holder)

    def _find(self, statement: str, **values: int) -> None:
        broken: dict[int, object] = {}
        for number, id_, replica, is_sound, *record in self._tx.rows(
            statement, limit=self._room, **values
        ):
            jobs = as_records(self._tx, [tuple(record)]) if is_sound else []
            if jobs:
                self._jobs.setdefault(jobs[0].id, jobs[0])
                continue
            broken[number] = id_
            name = replica if isinstance(replica, str) else ""
            self._aside.append((id_ if isinstance(id_, str) else repr(id_), name))
        set_aside(self._tx, broken)

    def _answer(self) -> Orphans:
        return Orphans(self._tx.wall, [*self._jobs.values()], self._aside, self._dead)


def stranded(tx: Transaction, limit: int) -> list[Stranded]:
    """Return unfinished jobs that no worker can finish."""
    jobs = [
        Stranded(
            id=id_ if isinstance(id_, str) else repr(id_),
            why="unreadable",
            where="tenure_aside",
            left=max(0, kept_until - tx.wall) / 1e6,
        )
        for id_, kept_until in tx.rows(ASIDE, limit=limit)
    ]
    for _, id_, *_ in tx.rows(ORPHANS, limit=limit - len(jobs)):
        jobs.append(Stranded(id=str(id_), why="orphan", where="tenure_live"))
    return jobs
