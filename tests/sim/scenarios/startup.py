"""How a program of a simulation begins: it tries until the store answers, like a service would."""

from __future__ import annotations

from functools import cache
from typing import Any

from tenure.app import Tenure, engine_of
from tenure.core.schedules.definition import Plan
from tenure.errors import StoreUnavailable
from tests.sim.fleet import Process

__all__ = ["open_app"]


async def open_app(app: Tenure, process: Process) -> bool:
    """Open the app; False if the process is asked to end before that works.

    Its timers are written down first: checkers compare the store with what was declared.
    """
    for plan in engine_of(app).registry.plans.values():
        process.record("declares", **_facts(plan))
    while not process.stopping.is_set():
        try:
            await app.open()
        except StoreUnavailable:
            await process.clock.sleep(0.2)
        else:
            return True
    return False


@cache
def _facts(plan: Plan) -> dict[str, Any]:
    definition = plan.definition
    return {
        "key": plan.name,
        "ids": list(plan.renamed_from),
        "answer": definition.calendar,
        "detail": definition.digest,
        "definition": definition.encode().decode(),
    }
