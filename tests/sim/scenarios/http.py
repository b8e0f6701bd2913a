"""Replicas that take requests in and run their jobs, and clients that ask whichever they reach."""

from __future__ import annotations

import random
from contextlib import AsyncExitStack
from functools import cache, partial

from msgspec.structs import replace

from tenure.app import Tenure, engine_of
from tenure.http.job_resource import Pace
from tenure.http.request import Headers, RequestData
from tenure.http.server.endpoint import Endpoint
from tenure.http.server.response import ResponseData, respond
from tenure.http.server.router import AsyncRouter
from tenure.http.server.submission import check_body
from tenure.runtime.attempts.handler import Handler
from tests.sim.client_network import ClientNetwork, ClientRequest, Listener
from tests.sim.fleet import Fleet, Process
from tests.sim.scenarios import jobs
from tests.sim.scenarios.http_clients import HttpClient, http_clients
from tests.sim.scenarios.startup import open_app

__all__ = ["begin", "is_done", "program"]

_PREFIX = "/work"
_MAX_WAIT = 3


async def program(process: Process) -> None:
    """Serve requests, and on most machines work, until it is asked to stop."""
    machine, rng, plan = process.machine, process.machine.rng, process.fleet.plan
    app = Tenure(process.connect(), replica_ttl=plan.ttl, loss_budget=jobs.loss_budget(plan))
    router = _router(app)
    app.on_event(process.record_event)
    if not await open_app(app, process):
        return
    try:
        async with AsyncExitStack() as stack:
            if machine.disk["works"]:
                concurrency, grace = rng.choice((1, 2, 8)), rng.choice((0.0, 0.5, 5.0))
                worker = app.worker(concurrency=concurrency, grace=grace)
                machine.disk["worker"] = await stack.enter_async_context(worker)
            listener = machine.disk["listener"] = Listener(process, partial(_serve, router))
            await process.stopping.wait()
            await listener.close()
    finally:
        await app.close()


def _router(app: Tenure) -> AsyncRouter:
    """Return the routes as they are behind any framework; nothing of one is imported.

    The endpoint is that of the first process, as in clones: declaring it anew takes long.
    """
    router = AsyncRouter(app, prefix=_PREFIX, max_wait=_MAX_WAIT)
    endpoint, engine_of(app).registry.handlers = _declared()
    router.operations.endpoints[endpoint.task.name] = replace(endpoint, pace=Pace())
    return router


@cache
def _declared() -> tuple[Endpoint, dict[str, Handler]]:
    app = Tenure("memory://")
    router = AsyncRouter(app, prefix=_PREFIX, max_wait=_MAX_WAIT)
    router.post(idempotency="required", retry=jobs.BACKOFF)(jobs.work)
    [endpoint] = router.endpoints
    return endpoint, engine_of(app).registry.handlers


async def _serve(router: AsyncRouter, ask: ClientRequest) -> ResponseData:
    routes, request = router.operations, RequestData(headers=Headers(ask.headers), base=_PREFIX)

    async def route() -> ResponseData:
        match ask.verb:
            case "submit":
                [endpoint] = router.endpoints
                check_body(endpoint, request.headers, ask.body)
                return await routes.submit(endpoint, request, ask.owner, values={}, body=ask.body)
            case "list":
                return await routes.page(request, ask.owner)
            case verb:
                about = {
                    "get": routes.get,
                    "result": routes.result,
                    "events": routes.events,
                    "cancel": routes.cancel,
                }
                return await about[verb](request, ask.owner, ask.job)

    return await respond(route, router.responses)


def begin(fleet: Fleet) -> None:
    """Let clients come, and machines work: one of three only serves."""
    for place, machine in enumerate(fleet.machines):
        machine.disk["works"] = place < 2
    network = ClientNetwork(fleet, random.Random(f"wire {fleet.plan.seed}"))
    come = fleet.machines[0].disk["clients"] = http_clients(fleet, network)
    for client in come:
        fleet.loop.create_task(client.run())


def is_done(fleet: Fleet) -> bool:
    """Return whether all clients have what they came for, and all jobs have ended."""
    come: list[HttpClient] = fleet.machines[0].disk["clients"]
    return all(client.is_done for client in come) and jobs.have_ended(fleet)
