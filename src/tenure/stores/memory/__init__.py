"""The memory store: the contract in plain Python, for tests and for one process.

`memory://` is private to its app; `memory://name` is shared by all apps of the process that use
that name. You may call it from several threads, each with its own event loop.

Read it as the specification: where the contract leaves a question open, this code answers it, and
tests compare the other stores with it. It is written to be read, not to be fast: most calls look at
every job. One lock around each call makes the call atomic.
"""

from __future__ import annotations

from tenure.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
