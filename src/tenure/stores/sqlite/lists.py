"""Searches jobs in SQLite by state, queue, task, tag or replica, and counts tags."""

from __future__ import annotations

from tenure.core.durations import micros
from tenure.core.jobs.records import TAGGED_MAX, Page, Tagged
from tenure.core.jobs.search import TEXT_MAX, search_bytes
from tenure.stores.sqlite.records import RECORD, as_records
from tenure.stores.sqlite.statements import Transaction

__all__ = ["count_tagged", "find"]

# How many jobs one search visits. Most are rejected quickly: it takes a few milliseconds, in which
# this process serves no other call.
LOOKS_MAX = 5_000
# Errors take longer to look through. The ends of ids are in the indexes.
TEXTS_MAX = 2_000
IDS_MAX = 20_000

# A search visits the jobs of one of these, newest first, and filters them. Numbers and blobs are no
# ids: all text comes after '' and before all blobs.

# By tenure_job_id.
_ALL = """
    SELECT number, id
    FROM tenure_job INDEXED BY tenure_job_id
    WHERE namespace = :namespace AND id >= :after AND id < :before
    ORDER BY id DESC
    LIMIT :looks
"""

# By primary key.
_TAGGED = """
    SELECT number, id
    FROM tenure_tag
    WHERE namespace = :namespace AND tag = :tag AND id >= :after AND id < :before
    ORDER BY id DESC
    LIMIT :looks
"""

# By tenure_done_state.
_UNLUCKY = """
    SELECT number, id
    FROM tenure_done INDEXED BY tenure_done_state
    WHERE namespace = :namespace AND state = :state AND state <> 'succeeded' AND id >= :after
      AND id < :before
    ORDER BY id DESC
    LIMIT :looks
"""

# By tenure_replica_id and tenure_live_held; it sorts all running jobs of the replica.
_RUNNING = """
    SELECT l.number, l.id
    FROM tenure_replica AS r INDEXED BY tenure_replica_id
    CROSS JOIN tenure_live AS l INDEXED BY tenure_live_held
    WHERE r.namespace = :namespace AND l.holder = r.number AND l.id >= :after AND l.id < :before
    ORDER BY l.id DESC
    LIMIT :looks
"""

# By number, in the order of the visited jobs.
_FITTING = f"""
    SELECT {RECORD}
    FROM (@) AS s
    CROSS JOIN tenure_job AS j
    LEFT JOIN tenure_live AS l ON l.number = s.number
    LEFT JOIN tenure_replica AS r ON r.number = l.holder
    LEFT JOIN tenure_done AS d ON d.number = s.number
    WHERE j.number = s.number AND (l.number IS NOT NULL OR d.number IS NOT NULL)
      AND (:state IS NULL
           OR :state = coalesce(d.state, iif(l.holder IS NULL, 'waiting', 'running')))
      AND (:queue IS NULL OR j.queue = :queue)
      AND (:task IS NULL OR j.task = :task)
      AND (:replica IS NULL OR coalesce(r.id, '') = :replica)
      AND (:id_end IS NULL OR substr(s.id, -length(:id_end)) = :id_end)
      AND (:text IS NULL
           OR instr(lower(CAST(substr(coalesce(l.error, d.error), 1, {TEXT_MAX}) AS TEXT)), :text)
           OR instr(lower(substr(coalesce(l.reason, d.reason), 1, {TEXT_MAX})), :text))
      AND (:tag IS NULL
           OR EXISTS (SELECT 1
                      FROM tenure_tag
                      WHERE namespace = :namespace AND tag = :tag AND id = s.id))
    LIMIT :limit
"""  # noqa: S608 - put together from constants

# How many jobs were visited, and where that ended.
_LOOKED_AT = "SELECT count(*), min(id) FROM (@)"

# The statements of each kind of search: the matches, and the visited range.
FIND, FIND_TAGGED, FIND_UNLUCKY, FIND_RUNNING = (
    _FITTING.replace("@", way_in) for way_in in (_ALL, _TAGGED, _UNLUCKY, _RUNNING)
)
LOOKED_AT, LOOKED_AT_TAGGED, LOOKED_AT_UNLUCKY, LOOKED_AT_RUNNING = (
    _LOOKED_AT.replace("@", way_in) for way_in in (_ALL, _TAGGED, _UNLUCKY, _RUNNING)
)

# Of the newest with a tag, by primary key, and then by number.
COUNT_TAGGED = f"""
    SELECT count(*)
    FROM (SELECT 1
          FROM ({_TAGGED}) AS s
          CROSS JOIN tenure_live AS l
          WHERE l.number = s.number
          LIMIT :limit)
"""  # noqa: S608 - put together from constants

# The same for recent jobs. Payloads come after the columns that are read, and are not read.
COUNT_RECENT = f"""
    SELECT count(*), min(created)
    FROM (SELECT j.created
          FROM ({_TAGGED}) AS s
          CROSS JOIN tenure_job AS j
          WHERE j.number = s.number AND typeof(j.created) = 'integer' AND j.created > :since
            AND j.created <= :wall
          LIMIT :limit)
"""  # noqa: S608 - put together from constants


def find(tx: Transaction, limit: int, cursor: str | None, **filters: str | None) -> Page:
    """Return a page of jobs. `filters` are those of the contract, each of them."""
    error, id_end = filters.pop("error"), filters["id_end"]
    text = None if error is None else search_bytes(error).decode()
    fitting, looked_at = _way_in(filters["tag"], filters["state"], filters["replica"])
    looks = LOOKS_MAX if id_end is None else IDS_MAX
    looks = looks if text is None else TEXTS_MAX
    # SQLite orders all text before all blobs.
    values = {**filters, "text": text, "before": b"" if cursor is None else cursor, "looks": looks}
    rows = tx.rows(fitting, limit=limit + 1, after="", **values)
    jobs = as_records(tx, rows[:limit])
    if len(rows) > limit:
        last = rows[limit - 1][0] if limit else ""
        looked = 0
        if id_end is not None or text is not None:
            ((looked, _),) = tx.rows(looked_at, after=last, **values)
        return Page(jobs, _next(last, cursor) if limit else None, visited=looked)
    ((looked, last),) = tx.rows(looked_at, after="", **values)
    return Page(jobs, _next(last, cursor) if looked == looks else None, visited=looked)


def _next(last: str | bytes, before: str | None) -> str | None:
    """Return where the next page begins. For an id that is not UTF-8 that is a smaller text."""
    cursor = last if isinstance(last, str) else last.decode(errors="ignore")
    return cursor if before is None or cursor < before else None


def _way_in(tag: str | None, state: str | None, replica: str | None) -> tuple[str, str]:
    """Return the statements that visit the fewest jobs."""
    if replica or state == "running":
        return FIND_RUNNING, LOOKED_AT_RUNNING
    if tag is not None:
        return FIND_TAGGED, LOOKED_AT_TAGGED
    if state in ("failed", "cancelled"):
        return FIND_UNLUCKY, LOOKED_AT_UNLUCKY
    return FIND, LOOKED_AT


def count_tagged(tx: Transaction, tag: str, unfinished: int, recent: int, within: float) -> Tagged:
    """Count the newest jobs with a tag: unfinished ones, and recent ones."""
    looks = {"tag": tag, "after": "", "before": b"", "looks": TAGGED_MAX}
    ((live,),) = tx.rows(COUNT_TAGGED, limit=unfinished, **looks)
    since = tx.wall - micros(within)
    ((young, first),) = tx.rows(COUNT_RECENT, limit=recent, since=since, **looks)
    return Tagged(live, young, (tx.wall - first) / 1e6 if young else 0.0)
