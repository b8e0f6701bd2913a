"""Decides when to copy the write-ahead log into the file, and reports failures to do so.

A full disk makes the copy fail. A transaction that stays open for reading prevents a restart of the
log, which then grows with every write. Each is logged once, and again when it is over. Only the
writer's thread uses this module.
"""

from __future__ import annotations

import logging
import math
from pathlib import Path

from tenure.core.clock import Clock
from tenure.stores.sqlite.database import Database

__all__ = ["Checkpoints", "Trouble"]

log = logging.getLogger("tenure")

# The pause after a copy that failed or was blocked: not with every commit.
_AGAIN = 1.0

# A reader that takes longer is reported. No query of Tenure does.
_SLOW_READER = 30.0


class Trouble:
    """A lasting failure in the background, logged once, and again when it is over."""

    def __init__(self, path: Path, what: str) -> None:
        self._path = path
        self._what = what
        self.is_told = False

    def tell(self, line: str) -> None:
        if not self.is_told:
            log.warning("%s", line)
        self.is_told = True

    def end(self) -> None:
        if self.is_told:
            log.info("%s %s works again.", self._what, self._path)
        self.is_told = False


class Checkpoints:
    """The copies of the log by one open store."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._trouble = Trouble(path, "copying the log of")
        self._again_at = -math.inf
        self._held_since: float | None = None
        self._is_reader_told = False

    def is_due(self, db: Database) -> bool:
        """Return whether to copy now: much was written, or it is time to try again."""
        has_come = self._clock.boot() >= self._again_at
        if self._trouble.is_told:
            return has_come
        return db.log_is_long() or (self._held_since is not None and has_come)

    def run(self, db: Database) -> Exception | None:
        """Copy the log. Returns the error, which is logged already."""
        now = self._clock.boot()
        try:
            is_whole = db.copy_log()
        except Exception as error:  # noqa: BLE001 - no caller waits for it, so it is logged
            self._again_at = now + _AGAIN
            self._trouble.tell(
                f"the log of {self._path} cannot be copied into the file, and grows with every "
                f"write until it can. Nothing is lost. Check the disk ({error})."
            )
            return error
        self._trouble.end()
        if is_whole is not None:
            self._note_reader(db, now, is_whole=is_whole)
        return None

    def _note_reader(self, db: Database, now: float, *, is_whole: bool) -> None:
        if is_whole:
            if self._is_reader_told:
                log.info("the log of %s is copied again, and shrinks.", self._path)
            self._held_since, self._is_reader_told, self._again_at = None, False, -math.inf
            return
        self._again_at = now + _AGAIN
        if self._held_since is None:
            self._held_since = now
        elif now - self._held_since >= _SLOW_READER and not self._is_reader_told:
            self._is_reader_told = True
            log.warning(
                "the log of %s cannot be emptied and has grown to %.1f MB: a connection has had a "
                "transaction open for reading for at least %.0f s. It may be one of this program, "
                "another one or an sqlite3 shell. End that transaction; until then the log grows "
                "with every write.",
                self._path,
                db.log_size / 1e6,
                now - self._held_since,
            )
