"""What `tenure top` shows about one thing: why it is as it is, and what is known about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from rich.console import Console, RenderableType
from rich.text import Text

from tenure.cli.jobs.story import shown
from tenure.cli.jobs.watch import bar
from tenure.cli.locks.table import details as lock_details
from tenure.cli.replicas import SHOWN_META
from tenure.cli.tables import FittingTable, table
from tenure.cli.text import duration, safe, size
from tenure.cli.timers.table import history_table
from tenure.cli.top.data import JobStory, Picture
from tenure.cli.top.state import JOBS, LOCKS, QUEUES, TIMERS
from tenure.core.why import Why, why_job, why_lock, why_queue, why_timer
from tenure.core.worker_info import memory_of, read_serving
from tenure.timers import TickRecord

__all__ = ["Story", "lines_about"]

Story: TypeAlias = JobStory | list[TickRecord] | None
"""What was read about it beside the picture."""

_NARROW = 110
_SHOWN = (*SHOWN_META, "host", "pid")


def lines_about(pane: int, name: str, picture: Picture, story: Story, width: int) -> list[Text]:
    """Return the page about one thing, as lines that fit."""
    return [*_laid_out([*_parts(pane, name, picture, story, width)], width)]


def _parts(
    pane: int, name: str, picture: Picture, story: Story, width: int
) -> Iterator[RenderableType]:
    is_narrow = width < _NARROW
    if pane == JOBS:
        if isinstance(story, JobStory):
            yield from _job(story, is_narrow=is_narrow)
        else:
            yield Text("Asking the store...", "dim")
    elif pane == QUEUES:
        yield from _headed("Queue", name, why_queue(name, picture.around))
    elif pane == TIMERS:
        yield from _timer(name, picture)
        if isinstance(story, list) and story:
            yield Text()
            yield history_table(story, narrow=is_narrow)
    elif pane == LOCKS:
        leases = [lease for lease in picture.leases if lease.key == name]
        yield from _headed("Lock", name, why_lock(name, leases))
        yield Text()
        yield from lock_details(name, leases)
    else:
        yield from _replica(name, picture)


def _headed(noun: str, name: str, why: Why) -> Iterator[RenderableType]:
    yield Text.assemble(f"{noun} ", (safe(name), "bold"))
    yield Text()
    yield Text(why.text)
    if why.next:
        yield Text(why.next, "bold")


def _job(story: JobStory, *, is_narrow: bool) -> Iterator[RenderableType]:
    job = story.job
    if job.state == "running" and job.progress is not None:
        yield Text(f"{bar(job.progress)}{job.progress:.0%} {safe(job.message)}")
        yield Text()
    yield from shown(job, why_job(job.record, story.around), story.around, folded=is_narrow)


def _timer(name: str, picture: Picture) -> Iterator[RenderableType]:
    view = next((view for view in picture.timers.timers if view.info.name == name), None)
    if view is None:
        yield Text(f"The timer {safe(name)} is no longer there.")
        return
    yield from _headed("Timer", name, why_timer(view.facts, picture.around))
    yield Text(safe(view.info.rule), "dim")


def _replica(name: str, picture: Picture) -> Iterator[RenderableType]:
    replica = next((each for each in picture.replicas if each.id == name), None)
    if replica is None:
        yield Text(f"The replica {safe(name)} is no longer there.")
        return
    serving = read_serving(replica.meta)
    is_late = replica.dead or replica.expires_in <= 0
    expires = f"in {duration(replica.expires_in)}, unless it beats"
    yield Text.assemble("Replica ", (safe(name), "bold"))
    yield Text()
    facts = [
        ("process", picture.around.fleet.where(name)),
        ("version", safe(replica.meta.get("version", ""))),
        ("memory", size(memory_of(replica, picture.memory))),
        ("joined", f"{duration((picture.now - replica.joined) / 1e6)} ago"),
        ("expires", "it has stopped beating; its jobs are recovered" if is_late else expires),
        ("holds", f"{replica.held:,} jobs and runs of timers"),
    ]
    if serving is not None:
        facts += [
            ("slots", f"{serving.slots:,} for jobs, {serving.timer_slots:,} for timers"),
            ("queues", _names(serving.queues, serving.more_queues)),
            ("timers", _names(serving.timers, serving.more_timers)),
        ]
    others = {key: text for key, text in replica.meta.items() if key not in _SHOWN}
    facts += [(safe(key), safe(text)) for key, text in others.items()]
    yield table([fact, Text(value)] for fact, value in facts if value)


def _names(names: Sequence[str], more: int) -> str:
    return safe(", ".join(names)) + (f" and {more:,} more" if more else "")


def _laid_out(parts: Sequence[RenderableType], width: int) -> Iterator[Text]:
    """Yield the lines of what commands print, as the terminal would fold them."""
    console = Console(width=width, highlight=False, markup=False, emoji=False, color_system=None)
    for part in parts:
        for segments in console.render_lines(_fitting(part, width), pad=False):
            line = Text(no_wrap=True)
            for segment in segments:
                line.append(segment.text, segment.style or "")
            line.truncate(width)
            yield line


def _fitting(part: RenderableType, width: int) -> RenderableType:
    if isinstance(part, FittingTable) and part.show_header:
        return part.fitted(width)
    return part
