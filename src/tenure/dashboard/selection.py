"""Which jobs a list or a bulk action is about: reads the filter of a request.

`matches` finds these jobs. The store decides what it has a filter for, `Criteria.fits` the rest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, get_args

from msgspec import Struct
from msgspec.structs import replace

from tenure.core.jobs.records import JobRecord
from tenure.core.jobs.states import STATES, JobState
from tenure.core.schedules.records import TIMERS_QUEUE
from tenure.dashboard.answer import Refusal
from tenure.dashboard.owners import is_of_http, tags_of
from tenure.dashboard.request import checked_name
from tenure.dashboard.site import Site
from tenure.dashboard.viewer import Viewer
from tenure.jobs import report_of

__all__ = ["Criteria", "read_criteria"]

_ERROR_MAX: Final = 200
_END: Final = re.compile(r"[0-9a-f-]{4,36}")
# In JSON these are as they are. A line of an error has a colon and a space that its JSON has not.
_LITERAL: Final = re.compile(r"[ !#-9;-\[\]-~]+")
# A job that has succeeded has no error. Most of what is looked for has failed.
_WITH_ERRORS: Final[tuple[JobState, ...]] = ("failed", "waiting", "running", "cancelled")
_FIELDS: Final = frozenset({"state", "queue", "task", "tag", "owner", "id", "error", "timers"})


class Criteria(Struct, frozen=True, kw_only=True):
    """What jobs have in common. None and "": anything."""

    state: JobState | None = None
    queue: str | None = None
    task: str | None = None
    tag: str | None = None
    owners: tuple[str, ...] | None = None
    """The tags of an owner, of which a job has one."""
    id: str = ""
    """An id, or its end."""
    error: str = ""
    timers: bool = False
    """Whether runs of timers count, too."""

    @property
    def is_empty(self) -> bool:
        return replace(self, timers=False) == Criteria()

    @property
    def hides_timers(self) -> bool:
        # Runs of timers have a queue and tasks of their own: other names leave them out.
        return not (self.timers or self.queue or self.task or self.id)

    @property
    def is_search(self) -> bool:
        """Whether it looks for what the store has no index for."""
        return bool(self.id or self.error)

    @property
    def is_exact(self) -> bool:
        """Whether the store finds exactly these jobs by itself."""
        return not (self.error or self.hides_timers or (self.owners and self.tag))

    @property
    def states(self) -> tuple[JobState | None, ...]:
        """The states to look at, one after the other; None: all of them in one list."""
        if not self.error:
            return (self.state,)
        states = _WITH_ERRORS if self.state is None else (self.state,)
        return tuple(state for state in states if state in _WITH_ERRORS)

    @property
    def literal(self) -> str | None:
        """A part of the error text that stands in stored errors as it is; None if there is none."""
        if "\\" in self.error:  # it stands for a character that is not printable
            return None
        parts = [part.strip() for part in _LITERAL.findall(self.error)]
        return max(parts, key=len, default="") or None

    def fits(self, job: JobRecord) -> bool:
        """Return whether a job is one of these, as far as the store does not decide it."""
        if self.hides_timers and job.queue == TIMERS_QUEUE:
            return False
        if self.owners is not None and self.tag and self.tag not in job.tags:
            return False
        if not job.id.endswith(self.id):
            return False
        return not self.error or self.error in _error_of(job).lower()


def read_criteria(site: Site, viewer: Viewer, fields: Mapping[str, Any]) -> Criteria:
    """Return the filter that a request describes. Raises Refusal."""
    if unknown := sorted(set(fields) - _FIELDS):
        raise Refusal(400, f"There is no filter {unknown[0]!r}.")
    texts = {name: fields.get(name) or "" for name in _FIELDS - {"timers"}}
    if not all(isinstance(text, str) for text in texts.values()):
        raise Refusal(400, "Filters are texts.")
    names = {
        name: checked_name(texts[name], name) if texts[name] else None
        for name in ("queue", "task", "tag")
    }
    if names["tag"] is not None and is_of_http(names["tag"]):
        raise Refusal(403, "This tag stands for an owner. Search for the owner instead.")
    if texts["state"] and texts["state"] not in STATES:
        raise Refusal(400, f"state must be one of {', '.join(get_args(JobState))}.")
    if texts["id"] and not _END.fullmatch(texts["id"].lower()):
        raise Refusal(400, "id must be the id of a job, or at least the last 4 characters of it.")
    return Criteria(
        state=texts["state"] or None,
        **names,
        owners=_owners(site, viewer, texts["owner"]),
        id=texts["id"].lower(),
        error=texts["error"][:_ERROR_MAX].lower(),
        timers=fields.get("timers") in (True, "1", "true"),
    )


def _owners(site: Site, viewer: Viewer, owner: str) -> tuple[str, ...] | None:
    if not owner:
        return None
    if not viewer.may_see_owners:
        raise Refusal(403, "You may not search for owners.")
    checked_name(owner, "owner")
    tags = tags_of(owner, site.routers)
    if not tags:
        detail = "This process has no AsyncRouter. Name the routers: Dashboard(routers=[...])."
        raise Refusal(400, detail)
    return tuple(tags)


def _error_of(job: JobRecord) -> str:
    report = report_of(job)
    return job.reason if report is None else report.line
