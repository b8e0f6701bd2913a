"""The tables of the SQLite store: their columns, the allowed values, and the indexes.

SQLite stores any type in any column, and constraints do not hold for rows that were written with
`ignore_check_constraints`, or that a damaged disk has changed. So each column has a domain with two
uses: as a constraint of the table, and in statements that increment a row or move it to another
table, which check that it is sound. The bounds are those of `core.bounds`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tenure.core.bounds import COUNTER_MAX, INSTANT_MAX, SPAN_MAX

__all__ = [
    "DECISION",
    "DONE",
    "INDEXES",
    "JOB",
    "LEASE",
    "LIVE",
    "MACHINE",
    "REPLICA",
    "SCHEDULE",
    "SEMAPHORE",
    "TABLES",
    "WAITER",
    "WATCH",
    "Table",
]

# The type of a domain, and the bounds of its values.
_DOMAINS: Final = {
    "row": ("INTEGER PRIMARY KEY", ""),
    "text": ("TEXT", ""),
    "blob": ("BLOB", ""),
    "integer": ("INTEGER", ""),
    "real": ("REAL", ""),
    "flag": ("INTEGER", "BETWEEN 0 AND 1"),
    "priority": ("INTEGER", "BETWEEN 0 AND 9"),
    "limit": ("INTEGER", "BETWEEN 1 AND 1000000"),
    "counter": ("INTEGER", f"BETWEEN 0 AND {COUNTER_MAX}"),
    # Microseconds, as fences are.
    "instant": ("INTEGER", f"BETWEEN -{INSTANT_MAX} AND {INSTANT_MAX}"),
    "fence": ("INTEGER", f"BETWEEN 0 AND {INSTANT_MAX}"),
    "length": ("INTEGER", f"BETWEEN 0 AND {round(SPAN_MAX * 1e6)}"),
    "seconds": ("REAL", f"BETWEEN 0 AND {SPAN_MAX}"),
    "outcome": ("TEXT", "IN ('succeeded', 'failed', 'cancelled')"),
}


class _Column(NamedTuple):
    name: str
    domain: str
    options: str
    """`or null`, `default` and a value, or nothing."""

    @property
    def declaration(self) -> str:
        kind, _ = _DOMAINS[self.domain]
        if self.options == "or null":
            return f'"{self.name}" {kind}'
        return f'"{self.name}" {kind} NOT NULL {self.options}'

    @property
    def condition(self) -> str:
        """The condition for a sound value; @ stands for the table."""
        kind, bounds = _DOMAINS[self.domain]
        value = f'@"{self.name}"'
        sound = f"typeof({value}) = '{kind.lower()}'"
        if bounds:
            sound += f" AND {value} {bounds}"
        return f"{value} IS NULL OR {sound}" if self.options == "or null" else sound


class Table:
    """A table, and the condition for a sound row.

    `columns` is a list of names with their domains. `key` is the primary key of a table without row
    ids: the rows of one key lie side by side, and a commit writes few pages. Without it the first
    column is the number of the row.
    """

    def __init__(self, name: str, columns: str, *, key: str = "") -> None:
        words = [column.strip().split(maxsplit=2) for column in columns.split(",")]
        self._columns = [_Column(name, domain, "".join(rest)) for name, domain, *rest in words]
        self._name = name
        self._key = key
        conditions = [column.condition for column in self._columns if column.domain != "row"]
        self._sound = " AND ".join(f"({condition})" for condition in conditions)

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        return [column.name for column in self._columns]

    def of(self, alias: str) -> str:
        """Return the condition for a sound row, under the alias of a statement."""
        return f"({self._sound.replace('@', f'{alias}.')})"

    @property
    def statement(self) -> str:
        """The statement that creates the table."""
        # One more than the soundness bound, so that an increment never violates it.
        room = self._sound.replace("@", "").replace(str(INSTANT_MAX), str(INSTANT_MAX + 1))
        room = room.replace(str(COUNTER_MAX), str(COUNTER_MAX + 1))
        parts = [column.declaration for column in self._columns]
        parts += [f"PRIMARY KEY ({self._key})"] if self._key else []
        parts += [f"CHECK ({room})"]
        end = ") WITHOUT ROWID" if self._key else ")"
        return "\n".join(["CREATE TABLE", self._name, "(", ",\n".join(parts), end])


# Leases. Instants named granted, arrived, renewed and expires are microseconds of the boot clock,
# valid only together with the row's boot_id.

# One row per namespace: the last fence of all keys. SQLite has one writer at a time, so this row
# costs no concurrency, and an idle key needs no row.
_SPACE: Final = Table("tenure_space", "namespace text, fence integer", key="namespace")

LEASE: Final = Table(
    "tenure_lease",
    """
    namespace text, key text, holder text, fence fence, limit limit, ttl length, meta text,
    boot_id text, granted instant, renewed instant, expires instant, kept flag default 0
    """,
    key="namespace, key, holder",
)

# The fences of leases that ended without a release, and their ends by the wall clock. The next
# grants of the key remove them.
_EXPIRED: Final = Table(
    "tenure_expired",
    "namespace text, key text, fence fence, ended instant",
    key="namespace, key, fence",
)

# A summary of a semaphore's leases, so that calls need not count them: their number, and their
# smallest and largest limit. The row exists exactly while the key has leases with limits above 1.
SEMAPHORE: Final = Table(
    "tenure_semaphore",
    "namespace text, key text, boot_id text, live limit, lowest limit, highest limit",
    key="namespace, key",
)

# The waiters of keys, in order of place.
WAITER: Final = Table(
    "tenure_waiter",
    """
    namespace text, key text, place fence, holder text, limit limit, ttl length, meta text,
    boot_id text, arrived instant, renewed instant, expires instant
    """,
    key="namespace, key, place",
)

_MARK: Final = Table(
    "tenure_mark", "namespace text, key text, value text, fence integer", key="namespace, key"
)

# The machines that use the file, and what each has seen of others; see machines.py.
MACHINE: Final = Table(
    "tenure_machine", "id text, host text, wall instant, boot instant, turn fence", key="id"
)
WATCH: Final = Table(
    "tenure_watch",
    "machine text, other text, turn fence, since instant, was_there flag",
    key="machine, other",
)

# Counts the wake-ups of each bell; a process that polls wakes the watchers of changed bells. A bell
# stands for all topics that hash to it, so there are at most 64 rows per kind of topic.
_WAKE: Final = Table(
    "tenure_wake", "namespace text, bell text, rung integer", key="namespace, bell"
)

# Jobs. All rows of a job share its number in this file. What never changes is written once. The row
# that moves between the unfinished and the finished jobs is small. Instants here are microseconds
# of the wall clock, except in tenure_replica and deadlines.

# The inserted part, which is not written again until the job is pruned. The unique key is empty for
# a job without one, and the schedule for a job that is no run. The payload comes last, so that
# SQLite need not read it for the other columns.
JOB: Final = Table(
    "tenure_job",
    """
    number row, namespace text, id text, task text, queue text, priority priority,
    created instant, retention seconds, retention_failed seconds, timeout seconds or null,
    options text, tags text, schedule text, unique_key text, digest text, keep seconds,
    with_job flag, payload blob
    """,
)

# The unfinished jobs: waiting without a holder, running with one. `allowed` and `retained` are
# timeout and retention in microseconds, `retained_failed` is the retention if it fails; `keyed`
# says whether it has a unique key. `since` is when the delay of a job began, 0 if its due time was
# an instant. It is NULL if the job has no delay, and may start whatever the clock shows. `deadline`
# is of the boot clock, like the end of its replica, so a step of the wall clock ends no attempt.
LIVE: Final = Table(
    "tenure_live",
    """
    number row, namespace text, id text, queue text, priority priority, due instant,
    since fence or null, retained length, retained_failed length default 0,
    allowed length or null, keyed flag default 0, schedule text default '',
    holder integer or null, claim_no fence default 0, fence fence default 0,
    revision fence default 1, attempt counter default 0, failures counter default 0,
    losses counter default 0, started instant default 0, deadline integer or null,
    cancelling flag default 0, settled_fence fence default 0, settled_as text default '',
    progress real or null, message text default '', reason text default '',
    error blob or null, history blob default x'', checkpoint blob or null
    """,
)

# The finished jobs. Successes, by far the most, are kept small: without id, and with NULL for the
# last settlement if that is this end under this fence; 's' is the mark of a success.
DONE: Final = Table(
    "tenure_done",
    """
    number row, namespace text, id text or null, state outcome, due instant, fence fence,
    revision fence, attempt counter, failures counter, losses counter, started instant,
    finished instant, expires instant, settled_fence fence or null, settled_as text or null,
    progress real or null, message text, reason text, result blob or null, error blob or null,
    history blob, checkpoint blob or null
    """,
)

_TAG: Final = Table(
    "tenure_tag", "namespace text, tag text, id text, number integer", key="namespace, tag, id"
)

# Unique keys. `live` until the job that has the key has finished.
_UNIQUE: Final = Table(
    "tenure_unique",
    "namespace text, key text, id text, digest text, until integer, live integer",
    key="namespace, key",
)

# Queues that are paused; without an end if `until` is NULL.
_PAUSE: Final = Table(
    "tenure_pause",
    "namespace text, queue text, until integer or null, reason text default ''",
    key="namespace, queue",
)

# Replicas. `renewed` and `expires` are of the boot clock, as those of leases: a restart of the
# machine ends every record, and a step of the wall clock ends none. Rows of jobs refer to the
# number, so a record is removed only after its last job. The jobs of a dead replica are reserved
# for the `taker` until `taken_until`.
REPLICA: Final = Table(
    "tenure_replica",
    """
    number row, namespace text, id text, meta text, joined instant, ttl length, boot_id text,
    renewed instant, expires instant, claim_no fence default 0, dead flag default 0,
    taker text default '', taken_until instant default 0
    """,
)

# What workers leave for readers, with their beats; see `beat`. By the wall clock.
_STATS: Final = Table(
    "tenure_stats", "namespace text, source text, at instant, body blob", key="namespace, source"
)

# Schedules. `last_fence` is the highest fence of runs that were started at once. The documents may
# be large, so they come last.
SCHEDULE: Final = Table(
    "tenure_schedule",
    """
    namespace text, name text, version text, declared instant, last_run instant, last_job text,
    last_fence fence, ruler text, standing text, definition text
    """,
    key="namespace, name",
)

# The histories of schedules; larger numbers are newer.
DECISION: Final = Table(
    "tenure_decision",
    """
    namespace text, name text, number fence, like text, first instant, last instant, ticks fence,
    at instant, body text
    """,
    key="namespace, name, number",
)

TABLES: Final = (
    *(_SPACE, LEASE, _EXPIRED, SEMAPHORE, WAITER, _MARK, MACHINE, WATCH, _WAKE),
    *(JOB, LIVE, DONE, _TAG, _UNIQUE, _PAUSE, REPLICA, _STATS, SCHEDULE, DECISION),
)

INDEXES: Final = (
    # Unreadable rows of tenure_live, and until when they are kept for inspection. Without types and
    # constraints, so that every row fits.
    "CREATE TABLE tenure_aside AS SELECT *, 0 AS kept_until FROM tenure_live WHERE false",
    "CREATE INDEX tenure_aside_end ON tenure_aside (namespace, kept_until)",
    "CREATE INDEX tenure_aside_number ON tenure_aside (number)",
    # Finds the lease of a semaphore that ends next. A lease with limit 1 is the only one of its
    # key, so locks are left out and cost nothing.
    """
    CREATE INDEX tenure_lease_end ON tenure_lease (namespace, key, expires) WHERE "limit" > 1
    """,
    "CREATE UNIQUE INDEX tenure_job_id ON tenure_job (namespace, id)",
    # In the order of claims, delayed jobs apart. Running jobs are not in it, so claimed jobs do not
    # slow later claims.
    """
    CREATE INDEX tenure_live_ready
    ON tenure_live (namespace, queue, since IS NOT NULL, priority, due / 1000, id)
    WHERE holder IS NULL
    """,
    # Finds each delay that begins in the future, after the clock was set back.
    "CREATE INDEX tenure_live_since ON tenure_live (namespace, since) WHERE since IS NOT NULL",
    # The jobs of a replica. A replica's number belongs to one namespace.
    "CREATE INDEX tenure_live_held ON tenure_live (holder) WHERE holder IS NOT NULL",
    # Most jobs are in none of these three. The last one finds the unfinished runs of a schedule,
    # and those on one replica.
    "CREATE INDEX tenure_live_cancel ON tenure_live (holder, id) WHERE cancelling = 1",
    """
    CREATE INDEX tenure_live_deadline ON tenure_live (namespace, deadline, id)
    WHERE deadline IS NOT NULL
    """,
    """
    CREATE INDEX tenure_live_run ON tenure_live (namespace, schedule, holder, id)
    WHERE schedule <> ''
    """,
    "CREATE INDEX tenure_done_expiry ON tenure_done (namespace, expires)",
    # Operators look for failed jobs, among far more successes.
    """
    CREATE INDEX tenure_done_state ON tenure_done (namespace, state, id)
    WHERE state <> 'succeeded'
    """,
    "CREATE INDEX tenure_unique_free ON tenure_unique (namespace, until) WHERE live = 0",
    "CREATE UNIQUE INDEX tenure_replica_id ON tenure_replica (namespace, id)",
    "CREATE INDEX tenure_replica_end ON tenure_replica (namespace, dead, boot_id, expires)",
)
