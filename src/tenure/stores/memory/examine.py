"""What is to be known about a memory store: that it is one."""

from __future__ import annotations

from tenure.core.model import Finding
from tenure.stores.memory.connection import Connection

__all__ = ["Examination"]


class Examination(Connection):
    """The part of the contract that looks after the place itself."""

    async def examine(self) -> list[Finding]:
        grade = self.traits.grade
        return [
            Finding("ok", "store", f"{self.url}, namespace {self.namespace}"),
            Finding("ok", "grade", f"{grade.name}, {grade.value}"),
            Finding(
                "note",
                "scope",
                "this process alone; no other one sees its leases",
                "Good for tests. Replicas need sqlite:// on one host, redis:// or postgresql:// "
                "on several.",
            ),
            Finding("ok", "clock", "this host's own"),
            Finding("ok", "format", "none; it begins empty"),
        ]
