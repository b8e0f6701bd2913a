"""Owners of jobs that came over HTTP, and the tags that stand for them.

The store has an owner's digest only. A search computes the digest of the name that it is given; no
name can be read back. Digests are hidden from viewers who may not see owners, as one who knows a
name could compute it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from tenure.core.jobs.parents import own_tags
from tenure.http.request import owner_tag

__all__ = ["is_of_http", "owner_of", "tags_of", "tags_to_show"]

_OWNER: Final = re.compile(r"http:[0-9a-f]{40}")
_KEY: Final = re.compile(r"http:[0-9a-f]{64}")  # of an Idempotency-Key: of no use to anybody


def is_of_http(tag: str) -> bool:
    """Return whether a tag stands for an owner, or for the key of a request."""
    return bool(_OWNER.fullmatch(tag) or _KEY.fullmatch(tag))


def owner_of(tags: Iterable[str]) -> str | None:
    """Return the tag of a job's owner; None if it has none."""
    return next((tag for tag in tags if _OWNER.fullmatch(tag)), None)


def tags_to_show(tags: tuple[str, ...]) -> list[str]:
    """Return the tags that the user's code has given a job."""
    return [tag for tag in own_tags(tags) if not is_of_http(tag)]


def tags_of(owner: str, routers: Sequence[str]) -> list[str]:
    """Return the tags of an owner's jobs, one for each router; or the tag itself, if it is one."""
    if _OWNER.fullmatch(owner):
        return [owner]
    return [owner_tag(router, owner) for router in routers]
