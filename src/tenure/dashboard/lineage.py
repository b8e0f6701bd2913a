"""The job that has enqueued a job, and the jobs that a job has enqueued: tags outside the user's.

The one place that knows how such a tag is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tenure.core.ids import is_job_id

__all__ = ["children_tag", "is_of_lineage", "parent_of"]

_PARENT: Final = "@parent:"


def children_tag(id_: str) -> str:
    """Return the tag of the jobs that a job has enqueued."""
    return f"{_PARENT}{id_}"


def parent_of(tags: Iterable[str]) -> str | None:
    """Return the id of the job that has enqueued a job; None if none has."""
    ids = (tag.removeprefix(_PARENT) for tag in tags if is_of_lineage(tag))
    return next(filter(is_job_id, ids), None)


def is_of_lineage(tag: str) -> bool:
    """Return whether a tag names a parent."""
    return tag.startswith(_PARENT)
