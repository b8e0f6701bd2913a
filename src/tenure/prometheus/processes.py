"""The files through which the processes of `tenure worker --metrics` share their metrics.

prometheus_client keeps one set of files per process id and never removes them, as counters must not
go back when a process ends. A worker that replaces its processes would collect files for weeks. So
its processes are numbered: a process with the number of an ended one goes on with its files.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import prometheus_client.values
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import mark_process_dead

from tenure.prometheus.reserved_file import ReservedFile

__all__ = ["is_damaged", "is_gauge_of_fork", "metrics_folder", "process_ended", "write_metrics_to"]

_FOLDER = "PROMETHEUS_MULTIPROC_DIR"


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

    prometheus_client.values.MmapedDict = ReservedFile  # type: ignore[attr-defined]
    prometheus_client.values.ValueClass = prometheus_client.values.MultiProcessValue(identity)  # type: ignore[no-untyped-call]


def process_ended(folder: str, number: int | str) -> None:
    """Remove gauges that mean nothing after the end of their process. Counters stay."""
    with suppress(OSError):
        mark_process_dead(number, folder)  # type: ignore[no-untyped-call]


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


def _remove_if_damaged(file: Path) -> None:
    """Remove a file that its last process left half-written; else this process could not start."""
    if is_damaged(file):
        file.unlink(missing_ok=True)
