"""The five lists of `tenure top` as rows of safe text. Pure: a picture of the store comes in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from rich.text import Text

from tenure.cli.jobs.table import id_of, state_of, summary
from tenure.cli.jobs.watch import bar
from tenure.cli.locks.table import by_name, process_of
from tenure.cli.queues import paused
from tenure.cli.replicas import state_of as replica_state_of
from tenure.cli.tables import Cell as TableCell
from tenure.cli.text import age, duration, joined, safe, size
from tenure.cli.timers.table import last_of, next_of
from tenure.cli.top.data import Picture
from tenure.cli.top.grid import Cell, Column, Row
from tenure.core.jobs.records import COUNT_MAX
from tenure.core.jobs.view import as_datetime
from tenure.core.schedules.records import TIMERS_QUEUE
from tenure.core.why import why_queue
from tenure.core.worker_info import memory_of, read_serving

__all__ = ["PANES", "Pane", "rows_of"]

GOOD: Final = ""
BAD: Final = "red"
WARN: Final = "yellow"
_STATES: Final = {
    "no-worker": ("no worker is alive", BAD),
    "unserved": ("no worker serves it", BAD),
    "busy": ("all slots are taken", WARN),
    "late": ("late", WARN),
}
# Two colours beside the default: the others that lists of commands have say nothing new here.
_COLOURS: Final = {"yellow": WARN, "red": BAD, "bold red": BAD}


class Pane(NamedTuple):
    """One of the lists."""

    title: str
    columns: tuple[Column, ...]
    empty: str
    """What is shown in place of rows."""
    read: Callable[[Picture], Iterator[Row]]


def rows_of(pane: Pane, picture: Picture, text: str = "") -> list[Row]:
    """Return the rows of a list that contain a text."""
    return [row for row in pane.read(picture) if not text or row.has(text)]


def _queues(picture: Picture) -> Iterator[Row]:
    for queue in picture.queues:
        fleet = picture.around.fleet
        workers = fleet.running("") if queue.queue == TIMERS_QUEUE else fleet.serving(queue.queue)
        state = paused(queue, picture.now)
        words, style = _STATES.get(why_queue(queue.queue, picture.around).code, ("", GOOD))
        if state.text:
            words, style = f"paused {state.text}", WARN
        is_late = words and style and queue.oldest is not None
        yield Row(
            queue.queue,
            (
                Cell(safe(queue.queue)),
                Cell(
                    "" if queue.oldest is None else duration(queue.oldest), style if is_late else ""
                ),
                Cell(_number(queue.waiting)),
                Cell(_number(queue.running)),
                Cell(str(len(workers))),
                Cell(words, style),
            ),
            is_paused=queue.paused_for is not None,
        )


def _number(count: int) -> str:
    return f"{count:,}+" if count >= COUNT_MAX else f"{count:,}"


def _jobs(picture: Picture) -> Iterator[Row]:
    for job in picture.jobs:
        record = job.record
        is_running = job.state == "running"
        since = record.started if is_running else record.finished
        length = (picture.now - since) / 1e6
        details = job.message if is_running else summary(job, picture.now)
        if is_running and job.progress is not None:
            details = f"{_bar(job.progress)} {job.progress:4.0%} {details}"
        worker = picture.around.fleet.where(job.replica) if job.replica else ""
        state = state_of(job)
        style = BAD if state == "failed" else WARN if state == "cancelling" else ""
        yield Row(
            job.id,
            (
                Cell(safe(job.task)),
                Cell(id_of(job.id, short=True), "dim"),
                Cell(state, style),
                Cell(duration(length) if is_running else f"{age(length)} ago"),
                Cell(safe(details.strip()), style if state == "failed" else ""),
                Cell(safe(job.queue)),
                Cell(worker),
            ),
        )


def _bar(progress: float) -> str:
    """Return a bar of half the length that `jobs watch` has."""
    return f"[{bar(progress)[1:-2:2]}]"


def _timers(picture: Picture) -> Iterator[Row]:
    now = as_datetime(picture.now)
    for view in picture.timers.timers:
        info = view.info
        coming = _cell(next_of(info, now))
        if picture.timers.pause is not None and info.pause is None:
            coming = Cell("all timers are paused", WARN)
        yield Row(
            info.name,
            (
                Cell(safe(info.name)),
                coming,
                _cell(last_of(info, now)),
                Cell(str(info.running)),
                Cell(safe(info.rule)),
            ),
            is_paused=info.pause is not None,
        )


def _cell(cell: TableCell) -> Cell:
    """Return a cell of the list of a command."""
    if isinstance(cell, str):
        return Cell(cell)
    text = cell.plain if isinstance(cell, Text) else cell.text
    return Cell(text, _COLOURS.get(str(cell.style), GOOD))


def _locks(picture: Picture) -> Iterator[Row]:
    for name, leases in by_name(picture.leases):
        held = [lease for lease in leases if not lease.waiting]
        waiting = len(leases) - len(held)
        first = max(held, key=lambda lease: lease.held_for, default=None)
        others = f" and {len(held) - 1} more" if len(held) > 1 else ""
        slots = f"{len(held)} of {min((lease.limit for lease in held), default=1)}"
        yield Row(
            name,
            (
                Cell(safe(name)),
                Cell("" if first is None else f"{process_of(first)}{others}"),
                Cell("" if first is None else duration(first.held_for)),
                Cell("" if first is None else duration(first.expires_in)),
                Cell(slots),
                Cell(str(waiting), WARN if waiting else ""),
            ),
        )


def _replicas(picture: Picture) -> Iterator[Row]:
    timer_runs = Counter(job.replica for job in picture.jobs if job.queue == TIMERS_QUEUE)
    for replica in picture.replicas:
        state = replica_state_of(replica)
        serving = read_serving(replica.meta)
        slots = serving.slots if serving is not None else 0
        # Runs of timers have slots of their own.
        busy = replica.held - timer_runs[replica.id]
        names = ", ".join(serving.queues) if serving is not None else ""
        more = serving.more_queues if serving is not None else 0
        timers = "" if serving is None else str(len(serving.timers) + serving.more_timers)
        yield Row(
            replica.id,
            (
                Cell(picture.around.fleet.where(replica.id)),
                Cell(state, GOOD if state == "alive" else WARN if state == "expired" else BAD),
                Cell(f"{busy:,} of {slots:,}" if slots else f"{busy:,}"),
                Cell(joined(safe(names), f"{more} more" if more else "")),
                Cell(timers),
                Cell(safe(replica.meta.get("version", ""))),
                Cell(size(memory_of(replica, picture.memory))),
                Cell(duration((picture.now - replica.joined) / 1e6)),
                Cell(safe(replica.id[:8]), "dim"),  # as the logs name it
            ),
        )


PANES: Final = (
    Pane(
        "Queues",
        (
            Column("QUEUE", least=14, tail=4),
            Column("OLDEST", right=True),
            Column("WAITING", right=True),
            Column("RUNNING", right=True),
            Column("WORKERS", right=True, rank=1),
            Column("STATE", least=16),
        ),
        "no queue has jobs, is paused or is served",
        _queues,
    ),
    Pane(
        "Jobs",
        (
            Column("TASK", least=14, tail=4),
            Column("ID"),
            Column("STATE"),
            Column("FOR", right=True),
            Column("DETAILS", least=14),
            Column("QUEUE", least=10, rank=1),
            Column("WORKER", least=12, rank=2, tail=6),
        ),
        "no job runs, and none has failed within the hour",
        _jobs,
    ),
    Pane(
        "Timers",
        (
            Column("TIMER", least=14, tail=4),
            Column("NEXT", least=10),
            Column("LAST", least=20),
            Column("RUNS", right=True, rank=1),
            Column("RULE", least=20, rank=2),
        ),
        "no worker has declared one",
        _timers,
    ),
    Pane(
        "Locks",
        (
            Column("LOCK", least=18, tail=6),
            Column("HOLDER", least=12, tail=6),
            Column("FOR", right=True),
            Column("EXPIRES", right=True, rank=1),
            Column("SLOTS", right=True),
            Column("WAITING", right=True),
        ),
        "none is held",
        _locks,
    ),
    Pane(
        "Replicas",
        (
            Column("PROCESS", least=12, tail=6),
            Column("STATE"),
            Column("JOBS", right=True),
            Column("QUEUES", least=14),
            Column("TIMERS", right=True, rank=3),
            Column("VERSION", least=5, rank=4),
            Column("MEMORY", right=True, rank=1),
            Column("UP", right=True, rank=2),
            Column("ID", rank=5),
        ),
        "no worker has joined: tenure worker MODULE:APP",
        _replicas,
    ),
)
