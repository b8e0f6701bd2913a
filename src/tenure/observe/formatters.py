"""How log records are written: as lines for people, or as JSON objects for log collectors.

`tenure worker` uses them; `--log` chooses. Programs that set up their logging themselves can use
them too, from `tenure.logs`.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any, Final

__all__ = ["JsonFormatter", "TextFormatter"]

# What every record has. Everything else was passed as `extra`.
_STANDARD: Final = vars(logging.makeLogRecord({})).keys() | {"message", "asctime", "taskName"}
# Tracebacks are indented for lines of text, where a line of their own could pass for a record.
_INDENTATION: Final = "  | "


class TextFormatter(logging.Formatter):
    """Writes local time with its zone, level, process, logger and message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(process)d %(name)s: %(message)s")

    def formatTime(  # noqa: N802 - the name in logging
        self, record: logging.LogRecord, datefmt: str | None = None
    ) -> str:
        """Return the instant of a record: "2026-11-15 12:53:54.077+01:00"."""
        del datefmt
        at = datetime.fromtimestamp(record.created, UTC).astimezone()
        return at.isoformat(sep=" ", timespec="milliseconds")


class JsonFormatter(logging.Formatter):
    """Writes one JSON object in one line, of ASCII characters only.

    `time` (UTC), `level`, `logger`, `message` and `process`, then what the record has as `extra`,
    such as `job` or `lock`, then `exc`, the traceback as text. Never raises: a value that JSON does
    not know, such as NaN, is written as its `repr`.
    """

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        document: dict[str, Any] = {
            "time": at.isoformat(timespec="microseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": _message_of(record),
            "process": record.process,
        }
        for name, value in vars(record).items():
            if name not in _STANDARD and value is not None:
                document.setdefault(name, value)
        if trace := self._trace_of(record):
            document["exc"] = trace
        if record.stack_info:
            document["stack"] = record.stack_info
        try:
            return json.dumps(document, default=_text_of, allow_nan=False)
        except Exception:  # noqa: BLE001 - NaN, a circle, a key that is no text, a list that raises
            return json.dumps({name: _plain(value) for name, value in document.items()})

    def _trace_of(self, record: logging.LogRecord) -> str:
        text = record.exc_text
        if not text and record.exc_info and record.exc_info[0] is not None:
            try:
                text = self.formatException(record.exc_info)
            except Exception:  # noqa: BLE001 - an error that cannot be shown
                text = _text_of(record.exc_info[1])
        return "\n".join(line.removeprefix(_INDENTATION) for line in (text or "").splitlines())


def _message_of(record: logging.LogRecord) -> str:
    """Return the message; if its arguments do not fit, the text and the arguments."""
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - the record of a program must not get lost
        text = record.msg if isinstance(record.msg, str) else _text_of(record.msg)
        return f"{text} {_text_of(record.args)}"


def _plain(value: object) -> object:
    if not isinstance(value, str | int | float | bool):
        return _text_of(value)
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:  # NaN, infinity, a number of more digits than Python shows
        return _text_of(value)
    return value


def _text_of(value: object) -> str:
    """Return the `repr` of a value; its type if it has none."""
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - it is code of the program
        return f"<{type(value).__name__} that cannot be shown>"
