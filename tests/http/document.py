"""The OpenAPI document of a service with endpoints of every kind; `document.json` is its text.

Write it again after a change, and read the difference:
    python -m tests.http.document > tests/http/document.json
"""

import json
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from tenure import Tenure
from tenure.http import AsyncRouter, Limits


class Ask(BaseModel):
    month: int


class Report(BaseModel):
    lines: int


def make_document() -> dict[str, Any]:
    """Return the document, without what FastAPI says about itself."""
    app, api = Tenure("memory://"), FastAPI()
    _add_reports(app, api)
    _add_root(app, api)
    document = api.openapi()
    problem = _problem_of(document)
    return {
        "paths": _shortened(document["paths"], problem),
        "problem": problem,
        "schemas": sorted(document["components"]["schemas"]),
    }


def _problem_of(document: dict[str, Any]) -> Any:
    missing = document["paths"]["/jobs/{job_id}"]["get"]["responses"]["404"]
    return missing["content"]["application/problem+json"]["schema"]


def _shortened(part: Any, problem: Any) -> Any:
    """Return a part of the document that names the schema of problems instead of repeating it."""
    if part == problem:
        return "problem"
    if isinstance(part, dict):
        return {str(name): _shortened(value, problem) for name, value in part.items()}
    if isinstance(part, list):
        return [_shortened(value, problem) for value in part]
    return part


def _add_reports(app: Tenure, api: FastAPI) -> None:
    reports = AsyncRouter(app, prefix="/all/reports", owner=lambda: "ann")

    @reports.post("", limits=Limits(running=1))
    async def build(body: Ask, loud: bool = False) -> Report:
        """Build a report."""

    @reports.put("/{year}", idempotency="required", max_wait=0)
    async def redo(year: int) -> int: ...

    @reports.delete("/{year}", idempotency="off", media_type="text/csv")
    async def drop(year: int) -> str: ...

    api.include_router(reports.router)


def _add_root(app: Tenure, api: FastAPI) -> None:
    root = AsyncRouter(app)

    @root.patch("/chores", media_type="image/png")
    async def chore() -> bytes: ...

    api.include_router(root.router)


if __name__ == "__main__":
    print(json.dumps(make_document(), indent=1, sort_keys=True))  # noqa: T201 - it is asked for
