"""The screen of a worker that logs JSON: everything that it says becomes a log record."""

from __future__ import annotations

import logging

from tenure.cli.screen import Screen

__all__ = ["LogScreen"]

log = logging.getLogger("tenure")


class LogScreen(Screen):
    """Logs remarks, warnings and errors instead of writing them to stderr."""

    def __init__(self) -> None:
        super().__init__(as_json=False)

    def remark(self, text: str) -> None:
        log.info("%s", text)

    def warning(self, text: str) -> None:
        log.warning("%s", text)

    def progress(self, text: str) -> None:
        """Progress is for terminals."""

    def failure(self, kind: str, text: str) -> None:
        log.error("%s: %s", kind, text)
