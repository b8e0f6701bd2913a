"""How tests speak to either client, with `await` and without."""

import inspect
from collections.abc import AsyncIterator, Iterator

import httpx2

from tenure.http import JobEvent
from tests.http.serving import Server


async def got(value):
    """Return what either client answers; the server has a thread of its own."""
    return await value if inspect.isawaitable(value) else value


async def each(events) -> AsyncIterator[JobEvent]:
    if isinstance(events, Iterator):
        for one in events:
            yield one
    else:
        async for one in events:
            yield one


async def followed(events, server: Server, gate: str) -> list[JobEvent]:
    """Return all events of a job that takes its next step when one was seen."""
    seen = []
    async for one in each(events):
        seen.append(one)
        server.open(gate)
    return seen


def jobs_of(server: Server, user: str) -> list[dict[str, object]]:
    answer = httpx2.get(
        f"{server.url}/reports/jobs?limit=200", headers={"X-User": user}, verify=False
    )
    return answer.json()["jobs"]
