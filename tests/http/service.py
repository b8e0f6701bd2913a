"""The service under test: slow reports behind every kind of route, on both frameworks."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from fastapi import FastAPI
from pydantic import BaseModel, SecretStr
from starlette.exceptions import HTTPException
from starlette.requests import Request

from tenure import JobContext, Tenure
from tenure.http import AsyncRouter, Headers, Problem

Face = Literal["fastapi", "starlette"]
FACES: tuple[Face, ...] = ("fastapi", "starlette")

HIDDEN = "hidden-5c3e, which no client may read"


class Ask(BaseModel):
    month: int
    secret: SecretStr | None = None
    note: str = ""


class Report(BaseModel):
    lines: int
    secret: str = ""
    spoken: str = ""


def user(request: Request) -> str:
    """Return the user, as a FastAPI dependency and as a function of the request."""
    name = request.headers.get("x-user")
    if not name:
        raise HTTPException(401, "Who are you?")
    return name


@dataclass
class Stage:
    """What the handlers of all replicas record, and the events they wait for."""

    ran: list[str] = field(default_factory=list)
    go: asyncio.Event = field(default_factory=asyncio.Event)


class Service:
    """One replica: an app, its router, and the handlers."""

    def __init__(
        self,
        app: Tenure,
        stage: Stage | None = None,
        *,
        owner: Callable[..., Any] | None = user,
        **options: Any,
    ) -> None:
        self.app = app
        self.stage = stage or Stage()
        self.router = AsyncRouter(
            app, prefix="/reports", owner=owner, headers=["Accept-Language"], **options
        )
        _declare_plain(self.router, self.stage)
        _declare_endings(self.router)

    def face(self, kind: Face) -> Any:
        return as_face(self.router, kind)


def as_face(router: AsyncRouter, kind: Face) -> Any:
    """Return an application that serves a router."""
    if kind == "starlette":
        return router.asgi
    api = FastAPI()
    api.include_router(router.router)
    return api


async def stored(app: Tenure) -> list[str]:
    """Return the ids of the jobs of all owners."""
    return [job.id for job in await app.jobs(limit=200)]


def _declare_plain(reports: AsyncRouter, stage: Stage) -> None:
    @reports.post("")
    async def build(body: Ask, job: JobContext, headers: Headers, loud: bool = False) -> Report:
        """Build a report."""
        stage.ran.append(job.id)
        secret = body.secret.get_secret_value() if body.secret else ""
        spoken = headers.get("accept-language", "")
        return Report(lines=body.month, secret=secret, spoken=spoken.upper() if loud else spoken)

    @reports.post("/slow")
    async def slow(job: JobContext, steps: int = 0) -> str:
        """Report progress, and end when the stage lets it."""
        stage.ran.append(job.id)
        for step in range(steps):
            if stage.go.is_set():
                break
            job.progress(step / steps, f"step {step}")
            await asyncio.sleep(0.02)
        await stage.go.wait()
        return "done"

    @reports.put("/years/{year}")
    async def redo(year: int, body: Ask | None = None) -> list[int]:
        return [year, body.month if body else 0]

    @reports.patch("/years/{year}")
    async def mend(year: int, body: list[int]) -> int:
        return year + sum(body)

    @reports.delete("/years/{year}", media_type="text/csv")
    def drop(year: int, q: int = 3) -> str:
        return f"a,{year},{q}"


def _declare_endings(reports: AsyncRouter) -> None:
    @reports.post("/failing", retry=None)
    async def failing() -> None:
        raise ValueError(HIDDEN)

    @reports.post("/refusing")
    async def refusing() -> None:
        raise Problem(451, "Not here", detail="The law", type="https://x.test/law", month=13)

    @reports.post("/timing-out", timeout=0.05, retry=None)
    async def timing_out() -> None:
        await asyncio.sleep(60)

    @reports.post("/brief", retention="100ms")
    async def brief() -> int:
        return 1
