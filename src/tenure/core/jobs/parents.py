"""The parent of a job: the job whose handler has enqueued it, as a tag of the child.

Stores find jobs by tag, so both directions need no column and no call: the child names its parent,
and the parent's children are those with its tag. Callers never see this tag among the job's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tenure.core.ids import is_job_id

__all__ = ["RESERVED", "own_tags", "parent_of", "parent_tag"]

RESERVED: Final = "@parent:"
"""How the tag begins. Callers cannot use such tags."""


def parent_tag(parent: str) -> str:
    """Return the tag of the children of a job."""
    return f"{RESERVED}{parent}"


def parent_of(tags: Sequence[str]) -> str | None:
    """Return the id of the job that has enqueued a job with these tags; None if no job has."""
    for tag in tags:
        if tag.startswith(RESERVED) and is_job_id(parent := tag.removeprefix(RESERVED)):
            return parent
    return None


def own_tags(tags: tuple[str, ...]) -> tuple[str, ...]:
    """Return the tags that the caller gave to a job."""
    return tuple(tag for tag in tags if not tag.startswith(RESERVED))
