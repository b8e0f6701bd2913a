"""Deleting jobs on Redis, also those that cannot be read."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha1
from typing import Final

from tenure.core.records import Deleted
from tenure.core.states import JobState, may_delete
from tenure.stores.redis.jobs import JobScripts, readable, slices
from tenure.stores.redis.scripts import DELETE, GET
from tenure.stores.redis.wire import Word

__all__ = ["Deleting"]

_CHANGED: Final = 2
"""What delete.lua answers for a job that has changed since it was read."""


class Deleting(JobScripts):
    """Reads jobs, decides here, and removes those that are still as they were read."""

    async def delete(self, ids: Sequence[str]) -> list[Deleted | None]:
        answers: dict[str, Deleted | None] = {}
        for some in slices(list(dict.fromkeys(ids))):
            answers |= await self._delete(some)
        # Named twice, it is gone the second time.
        return [
            None if id_ in ids[:at] and answers[id_] == "deleted" else answers[id_]
            for at, id_ in enumerate(ids)
        ]

    async def _delete(self, ids: Sequence[str]) -> dict[str, Deleted | None]:
        records, fixed, _ = await self._job_script(GET, *ids)
        answers: dict[str, Deleted | None] = {}
        words: dict[str, Word] = {}
        for id_, record, rest in zip(ids, records, fixed, strict=True):
            if may_delete(_state(record or b"", rest or b"")):
                stored = (record or b"") + (rest or b"")
                words[id_] = sha1(stored, usedforsecurity=False).hexdigest()
            else:
                answers[id_] = "unfinished"
        if not words:
            return answers
        reply = await self._job_script(DELETE, *(word for pair in words.items() for word in pair))
        told = dict(zip(words, reply, strict=True))
        answers |= {id_: "deleted" if answer else None for id_, answer in told.items()}
        again = [id_ for id_, answer in told.items() if answer == _CHANGED]
        return answers | await self._delete(again) if again else answers


def _state(record: bytes, fixed: bytes) -> JobState | None:
    for job in readable(record, fixed):
        return job.state
    return None
