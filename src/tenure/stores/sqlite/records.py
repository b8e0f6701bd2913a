"""Records of jobs in SQLite: their columns, and how rows become records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from tenure.core.bounds import SET_ASIDE, sound
from tenure.core.jobs.records import JobRecord
from tenure.stores.sqlite.statements import Row, Transaction, as_json
from tenure.stores.sqlite.tables import JOB

__all__ = ["GET", "HEAD", "RECORD", "RUNNING", "as_record", "as_records", "get"]

_FIELDS: Final = JobRecord.__struct_fields__
_TAGS: Final = _FIELDS.index("tags")
_CANCELLING: Final = _FIELDS.index("cancelling")

_tags = msgspec.json.Decoder(tuple[str, ...])


def _columns(elsewhere: str, special: Mapping[str, str]) -> str:
    """Return the columns of a record in the order of its fields.

    The inserted columns are in `j`, the others `elsewhere`, where # stands for the name.
    """
    ordinary = {
        field: f"j.{field}" if field in JOB.columns else elsewhere.replace("#", field)
        for field in _FIELDS
    }
    return ", ".join({**ordinary, **special}.values())


# The columns of any job, which is in one of the tables `l` and `d`. `r` is its replica.
RECORD: Final = _columns(
    "coalesce(l.#, d.#)",
    {
        "state": "coalesce(d.state, iif(l.holder IS NULL, 'waiting', 'running'))",
        "replica": "coalesce(r.id, '')",
        "cancelling": "coalesce(l.cancelling, 0)",
        "finished": "coalesce(d.finished, 0)",
        "result": "d.result",
    },
)

_RUNNING = {
    "state": "'running'",
    "replica": "coalesce(r.id, '')",
    "finished": "0",
    "result": "NULL",
}

# The columns of a running job.
RUNNING: Final = _columns("l.#", _RUNNING)

# The columns of a running job without large ones. Its row in `j` may be missing.
HEAD: Final = _columns(
    "l.#", {**_RUNNING, "id": "l.id", "payload": "x''", "checkpoint": "NULL", "error": "NULL"}
)

# By tenure_job_id, and then by the job's number.
GET = f"""
    SELECT {RECORD}
    FROM json_each(:ids) AS i
    CROSS JOIN tenure_job AS j INDEXED BY tenure_job_id
    LEFT JOIN tenure_live AS l ON l.number = j.number
    LEFT JOIN tenure_replica AS r ON r.number = l.holder
    LEFT JOIN tenure_done AS d ON d.number = j.number
    WHERE j.namespace = :namespace AND j.id = i.value
      AND (l.number IS NOT NULL OR d.number IS NOT NULL)
"""  # noqa: S608 - put together from constants

# Which of some jobs were set aside. By tenure_job_id and tenure_aside_number.
ASIDE_OF = """
    SELECT j.id
    FROM json_each(:ids) AS i
    CROSS JOIN tenure_job AS j INDEXED BY tenure_job_id
    CROSS JOIN tenure_aside AS a INDEXED BY tenure_aside_number
    WHERE j.namespace = :namespace AND j.id = i.value AND a.number = j.number
"""


def get(tx: Transaction, ids: Sequence[str]) -> list[JobRecord | None]:
    """Return jobs by id."""
    jobs = {job.id: job for job in as_records(tx, tx.rows(GET, ids=as_json(ids)))}
    missing = [id_ for id_ in ids if id_ not in jobs]
    if missing:
        for (id_,) in tx.rows(ASIDE_OF, ids=as_json(missing)):
            tx.damage.report("job", id_, SET_ASIDE, "tenure_aside")
    return [jobs.get(id_) for id_ in ids]


def as_records(tx: Transaction, rows: Sequence[Row]) -> list[JobRecord]:
    """Return the readable jobs of these rows, and report the others."""
    read = (tx.damage.read("job", "tenure_job", str(row[0]), as_record, row) for row in rows)
    return [job for job in read if job is not None]


def as_record(row: Row) -> JobRecord:
    """Return a job from the columns of its record. Raises ValueError if they are damaged."""
    values = list(row)
    tags, cancelling = values[_TAGS], values[_CANCELLING]
    values[_TAGS] = _tags.decode(tags) if tags else ()
    values[_CANCELLING] = {0: False, 1: True}.get(cancelling, cancelling)
    return sound(JobRecord, values)
