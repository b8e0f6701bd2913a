"""A service: python -m tests.process.http_service URL NAMESPACE LEDGER ROLE [PORT], until a signal.

Roles: `api` serves the routes and runs nothing, `worker` runs the handlers and serves nothing.
"""

import asyncio
import logging
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request

from tenure import Tenure, current_job
from tenure.http import AsyncRouter
from tests.process.job_ledger import JobLedger
from tests.rig.stdio import tell

TTL = 1.5


@dataclass
class Ask:
    """What a client sends."""

    number: int


def owner(request: Request) -> str:
    return request.headers["x-user"]


def declare(app: Tenure, ledger: JobLedger) -> AsyncRouter:
    """Declare one endpoint, whose handler leaves a line in the ledger."""
    router = AsyncRouter(app, prefix="/rows", owner=owner)

    @router.post("")
    async def build(body: Ask) -> int:
        job = current_job()
        ledger.write("ran", job=job.id, number=body.number, attempt=job.attempt)
        await asyncio.sleep(0.02)
        return 2 * body.number

    return router


def main(url: str, namespace: str, ledger: str, role: str, port: str = "0") -> None:
    app = Tenure(url, namespace=namespace, replica_ttl=TTL, grace=5)
    router = declare(app, JobLedger(Path(ledger)))
    if role == "worker":
        asyncio.run(work(app))
    else:
        serve(router, int(port))


def serve(router: AsyncRouter, port: int) -> None:
    """Serve until a signal."""
    # Workers are without: each import takes them a second.
    import uvicorn
    from fastapi import FastAPI

    class Server(uvicorn.Server):
        """Says when it listens."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            tell("ready")

    api = FastAPI()
    api.include_router(router.router)
    Server(uvicorn.Config(api, port=port, log_level="warning")).run()


async def work(app: Tenure) -> None:
    """Work until a signal."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with app, app.worker():
        tell("ready")
        await stopped.wait()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    main(*sys.argv[1:])
