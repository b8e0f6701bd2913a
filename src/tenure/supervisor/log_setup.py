"""Sets up the logging of `tenure worker`: of the supervisor and of its worker processes alike, and
of the child processes of those for handlers with `executor="process"`.

Without `--log`, the logging of the app's module is left alone; if it has none, lines of text go to
stderr. With `--log`, the choice replaces what the module has set up.
"""

from __future__ import annotations

import logging
import os
import select
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Literal, TypeAlias

from tenure.jobs.log_fields import JobFields
from tenure.observe.formatters import JsonFormatter, TextFormatter
from tenure.observe.outage_limiter import OutageLimiter
from tenure.runtime.attempts.processes.preparation import Preparation, prepare_children

try:
    import fcntl
except ModuleNotFoundError:  # on Windows, where there are no workers
    _HAS_LOCKS = False
else:
    _HAS_LOCKS = True


__all__ = [
    "LogForm",
    "is_json",
    "logged_exit",
    "set_up_child_logging",
    "set_up_logging",
    "write_traceback",
]

LogForm: TypeAlias = Literal["json", "text"]

log = logging.getLogger("tenure")

# How long a line waits for the line of another process, which waits for the reader of the pipe.
_LOCK_TRIES = 250
_LOCK_PAUSE = 0.002


def set_up_logging(form: LogForm | None, level: str | None) -> None:
    """Log to stderr in this form; may be called again after the app's module was imported."""
    prepare_children(Preparation(__name__, set_up_child_logging.__name__, (form, level)))
    root = logging.getLogger()
    if form is not None:
        log.disabled = False  # by a dictConfig of the module, which disables loggers by default
        log.propagate = True
        for handler in root.handlers[:]:
            root.removeHandler(handler)
            if _is_ours(handler):
                handler.close()
        _silence_consoles()
    if not root.handlers:
        formatter = JsonFormatter() if form == "json" else TextFormatter()
        target = _StderrHandler()
        target.setFormatter(formatter)
        limited = OutageLimiter(target)
        limited.addFilter(JobFields())
        root.addHandler(limited)
        root.setLevel(logging.INFO)
    if level is not None:
        root.setLevel(level.upper())
    if form == "json":
        logging.captureWarnings(capture=True)
        sys.excepthook = _log_uncaught
        threading.excepthook = _log_uncaught_in_thread
        sys.unraisablehook = _log_unraisable


def set_up_child_logging(form: LogForm | None, level: str | None, *, is_imported: bool) -> None:
    """Do the same in a process of a handler, before and after its module is imported.

    Without a form, that module decides first, as that of the app does in the worker.
    """
    if form is not None or is_imported:
        set_up_logging(form, level)


def is_json() -> bool:
    """Whether everything on stderr has to be a JSON object."""
    return sys.excepthook is _log_uncaught


def write_traceback(text: str) -> None:
    """Show a traceback of the user's code on stderr, in the form of the log."""
    if is_json():
        log.error("the app cannot be imported", extra={"exc": text})
    else:
        sys.stderr.write(text)


def logged_exit(leaving: SystemExit) -> SystemExit:
    """Return how the app's module ends this process. A text that it gives is logged.

    Python would write it to stderr as it is.
    """
    if not is_json() or leaving.code is None or isinstance(leaving.code, int):
        return leaving
    log.error("the app's module ends this process: %s", leaving.code)
    return SystemExit(1)


class _StderrHandler(logging.Handler):
    """Writes each record in one piece: the processes of a supervisor share one stderr.

    A stream with a buffer would write a long line in several pieces, and lines of other processes
    could come in between. So they could while a pipe is full: each process locks it for its line.
    """

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{self.format(record)}\n".encode(errors="backslashreplace")
            if sys.stderr is not None:
                sys.stderr.flush()
            with _locked_pipe():
                while line:
                    line = line[_written(line) :]
        except OSError:
            return  # nobody reads it any more
        except Exception:  # noqa: BLE001 - as all handlers of logging
            self.handleError(record)


def _written(line: bytes) -> int:
    """Write to stderr, and return how many bytes it took; wait while it takes none."""
    while True:
        try:
            return os.write(2, line)
        except BlockingIOError:  # another program has made the pipe non-blocking
            select.select([], [2], [])


@contextmanager
def _locked_pipe() -> Iterator[None]:
    """Keep other processes out of the pipe of stderr, but for no longer than a moment.

    A process that was stopped in the middle of a line must not stop all others.
    """
    is_locked = False
    for _ in range(_LOCK_TRIES if _is_pipe() else 0):
        try:
            fcntl.lockf(2, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # another process writes
            select.select([], [], [], _LOCK_PAUSE)
        except OSError:  # it has no locks
            break
        else:
            is_locked = True
            break
    try:
        yield
    finally:
        if is_locked:
            fcntl.lockf(2, fcntl.LOCK_UN)


def _is_pipe() -> bool:
    try:
        return _HAS_LOCKS and stat.S_ISFIFO(os.fstat(2).st_mode)
    except OSError:
        return False


def _silence_consoles() -> None:
    """Have loggers that the module lets write to the console write to the root logger instead.

    Their lines would come twice, and in another form.
    """
    for logger in logging.root.manager.loggerDict.values():
        if not isinstance(logger, logging.Logger):  # a place in a dotted name
            continue
        for handler in logger.handlers[:]:
            stream = getattr(handler, "stream", None)
            if stream is not None and stream in (sys.stderr, sys.stdout):
                logger.removeHandler(handler)
                logger.propagate = True


def _is_ours(handler: logging.Handler) -> bool:
    return isinstance(handler, OutageLimiter)


def _log_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    log.critical("the process ends with an error", exc_info=(kind, error, trace))


def _log_uncaught_in_thread(arguments: threading.ExceptHookArgs) -> None:
    if arguments.exc_value is not None and arguments.exc_type is not SystemExit:
        info = (arguments.exc_type, arguments.exc_value, arguments.exc_traceback)
        log.error("a thread has ended with an error", exc_info=info)


def _log_unraisable(arguments: sys.UnraisableHookArgs) -> None:
    error = arguments.exc_value
    info = None if error is None else (arguments.exc_type, error, arguments.exc_traceback)
    log.error("%s", arguments.err_msg or "an error was ignored", exc_info=info)
