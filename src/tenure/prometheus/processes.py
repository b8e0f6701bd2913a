"""The files through which the processes of `tenure worker --metrics` share their metrics.

prometheus_client keeps one set of files per process id and never removes them, as counters must not
go back when a process ends. A worker that replaces its processes would collect files for weeks. So
its processes are numbered: a process with the number of an ended one goes on with its files.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import prometheus_client.values
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import mark_process_dead

from tenure.prometheus.reserved_file import use_reserved_files

__all__ = [
    "forget_ended",
    "is_damaged",
    "is_gauge_of_fork",
    "kept_labels",
    "metrics_folder",
    "process_ended",
    "write_metrics_to",
]

_FOLDER = "PROMETHEUS_MULTIPROC_DIR"

_kept: list[dict[str, str]] = []


@contextmanager
def metrics_folder() -> Iterator[str]:
    """Make a folder for the files of a supervisor and its processes, and remove it at the end."""
    before = os.environ.get(_FOLDER)
    with tempfile.TemporaryDirectory(prefix="tenure-metrics-", ignore_cleanup_errors=True) as path:
        write_metrics_to(path, "supervisor")
        try:
            yield path
        finally:
            if before is None:
                os.environ.pop(_FOLDER, None)
            else:
                os.environ[_FOLDER] = before


def write_metrics_to(folder: str, number: int | str) -> None:
    """Have all metrics that this process makes from now on written to a folder.

    Call it before the modules of the app are imported: they may make metrics of their own. At most
    one process may use a number at a time.
    """
    os.environ[_FOLDER] = folder
    for file in Path(folder).glob(f"*_{number}.db"):
        _remove_if_damaged(file)
    pid = os.getpid()

    def identity() -> str:
        here = os.getpid()
        return str(number) if here == pid else f"{number}-{here}"  # a handler has forked

    use_reserved_files()
    _kept[:] = _labels_in(Path(folder), number)
    prometheus_client.values.ValueClass = prometheus_client.values.MultiProcessValue(identity)  # type: ignore[no-untyped-call]


def kept_labels() -> Sequence[Mapping[str, str]]:
    """Return the labels with which an ended process of the same number has counted.

    They are in its files for good, so they count for the limits of labels.
    """
    return _kept


def process_ended(folder: str, number: int | str) -> None:
    """Remove gauges that mean nothing after the end of their process. Counters stay."""
    for name in (number, f"{number}-*"):  # of the process, and of what its handlers have forked
        with suppress(OSError):
            mark_process_dead(name, folder)  # type: ignore[no-untyped-call]


def forget_ended(folder: str) -> None:
    """Do the same for all processes that have ended, where files are named by process ids.

    A gunicorn worker that ended in an outage would show an unreachable store for good.
    """
    for file in Path(folder).glob("gauge_live*_*.db"):
        pid = file.stem.rpartition("_")[2]
        if pid.isdecimal() and int(pid) > 0 and not _runs(int(pid)):
            process_ended(folder, pid)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # it is of another user, or no process id
        return True
    return True


def is_gauge_of_fork(file: Path) -> bool:
    """Return whether a file has gauges of a process that a handler has forked."""
    return file.match("gauge_live*-*.db")


def is_damaged(file: Path) -> bool:
    """Return whether a file cannot be read to its end."""
    try:
        for key, *_ in MmapedDict.read_all_values_from_file(file):  # type: ignore[no-untyped-call]
            json.loads(key)
    except Exception:  # noqa: BLE001 - whatever is wrong with it
        return True
    return False


def _labels_in(folder: Path, number: int | str) -> Iterator[dict[str, str]]:
    for file in folder.glob(f"*_{number}.db"):
        for key, *_ in MmapedDict.read_all_values_from_file(file):  # type: ignore[no-untyped-call]
            name, _, labels, _ = json.loads(key)
            if name.startswith("tenure_"):
                yield labels


def _remove_if_damaged(file: Path) -> None:
    """Remove a file that its last process left half-written; else this process could not start."""
    if is_damaged(file):
        file.unlink(missing_ok=True)
