"""The SQLite store: one file, shared by all processes of a host. Needs only the standard library.

`sqlite:///tenure.db` is relative to the working directory, `sqlite:////srv/tenure.db` absolute.
The file may be your own database: all tables here are named `tenure_...`.
"""

from __future__ import annotations

from tenure.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
