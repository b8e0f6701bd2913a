"""The PostgreSQL store: all it keeps are rows, decided by functions in the schema `tenure`.

    postgresql://user:password@host:5432/database

PostgreSQL 13 or later. Each call is one round trip and one short transaction. Opening creates the
schema `tenure` once, which takes the right to CREATE in the database; afterwards a role needs USAGE
on the schema and SELECT, INSERT, UPDATE and DELETE on its tables.

What the query of the URL may say, besides what libpq knows (`sslmode`, `target_session_attrs`) and
settings of the server (`synchronous_commit=on`):

- `statement_cache_size=0`: a pooler such as PgBouncer in transaction mode stands in between. Then
  nothing is prepared and nothing set in a session, and wake-ups are not pushed (LISTEN belongs to
  a session), so that waiters look again by themselves.

A store object uses up to eight connections, opened when needed, and one more to listen once
something waits.
"""

from __future__ import annotations

from tenure.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
