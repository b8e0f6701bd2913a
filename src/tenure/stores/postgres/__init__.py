"""The PostgreSQL store: all it keeps are rows, decided by functions in the schema `tenure`.

    postgresql://user:password@host:5432/database

PostgreSQL 13 or later. Each call is one round trip and one short transaction. The first opening
creates the schema `tenure`, which needs the right to CREATE in the database. Afterwards a role
needs USAGE on the schema and SELECT, INSERT, UPDATE and DELETE on its tables.

The query of the URL takes the options of libpq (`sslmode`, `target_session_attrs`), settings of the
server (`synchronous_commit=on`), and:

- `statement_cache_size=0`: for a pooler in transaction mode, such as PgBouncer. Then the store
  prepares no statements, sets nothing in a session, and gets no wake-ups (LISTEN belongs to a
  session), so waiters poll.

A store object uses up to eight connections, opened when needed, and one more to listen once a
caller waits.
"""

from __future__ import annotations

from tenure.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
