"""The least rights of a role: to read and change the rows of Tenure's tables.

Another role, which may create a schema, owns them and runs the migrations.
"""

from __future__ import annotations

from typing import Final

import asyncpg

__all__ = ["WRITTEN", "grants", "missing"]

WRITTEN: Final = (
    *("space", "lease_key", "lease", "waiter", "mark"),
    *("replica", "replica_claim", "job", "job_done", "job_tag", "job_key", "queue_pause"),
    *("schedule", "schedule_decision", "run_stats"),
)
"""The tables whose rows change."""
_READ: Final = ("format",)

# Through the catalogs, because naming missing tables would fail. Other tables do not matter: a role
# that is called tenure creates its own in this schema, too.
_MISSING = """
SELECT what, array_agg(c.relname::text ORDER BY c.relname) AS tables
FROM pg_class c CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS what
WHERE c.relnamespace = to_regnamespace('tenure') AND c.relkind IN ('r', 'p')
  AND (c.relname = ANY ($1::text[]) OR what = 'SELECT' AND c.relname = ANY ($2::text[]))
  AND NOT has_table_privilege(c.oid, what)
GROUP BY what ORDER BY what
"""


async def missing(connection: asyncpg.Connection) -> dict[str, list[str]]:
    """Return the rights that the role of this connection lacks, with their tables."""
    rows = await connection.fetch(_MISSING, list(WRITTEN), list(_READ))
    return {row["what"]: row["tables"] for row in rows}


def grants(role: str) -> list[str]:
    """Return the statements that grant a role all needed rights."""
    whom = '"' + role.replace('"', '""') + '"'
    written = ", ".join(f"tenure.{table}" for table in WRITTEN)
    return [
        f"GRANT USAGE ON SCHEMA tenure TO {whom}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA tenure TO {whom}",
        f"GRANT INSERT, UPDATE, DELETE ON {written} TO {whom}",
    ]
