"""Slow reports over HTTP: a complete service with durable jobs and timers, in one file.

`make run` serves it with a worker in the same process. See README.md beside this file.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Annotated

from fastapi import Depends, FastAPI, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, Field

import tenure.http
from tenure import JobContext, Tenure, Tick
from tenure.dashboard import Dashboard
from tenure.http import AsyncRouter, Limits, Problem

log = logging.getLogger("reports")

# One file, shared by all processes of this host. For many hosts: TENURE_URL=postgresql://...
app = Tenure(os.environ.get("TENURE_URL", "sqlite:///reports.db"))


# Users. A job belongs to the user who submitted it. Other users get 404 for it.

USERS = {"ada-token": "ada", "bob-token": "bob"}
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]


def current_user(bearer: Credentials) -> str:
    user = USERS.get(bearer.credentials) if bearer else None
    if user is None:
        raise Problem(401, "Say who you are", headers={"WWW-Authenticate": "Bearer"})
    return user


# Slow handlers. Each request is stored as a job, then answered with 202 and the job's path.

reports = AsyncRouter(app, prefix="/reports", owner=current_user)


class ReportRequest(BaseModel):
    """The title and the length of a report."""

    title: str = Field(min_length=1, max_length=80)
    pages: int = Field(10, ge=1, le=500)


class Report(BaseModel):
    """A finished report."""

    title: str
    pages: int
    attempt: int


@reports.post("", limits=Limits(running=100))
async def build_report(body: ReportRequest, job: JobContext) -> Report:
    """Write a report, page by page."""
    # The checkpoint of an earlier attempt whose worker died. This attempt resumes there.
    written = job.checkpoint or 0
    log.info("report %s: attempt %d has %d pages", job.id, job.attempt, written)
    while written < body.pages:
        await asyncio.sleep(0.2)  # stands for the work
        written += 1
        await job.save(written)
        job.progress(written / body.pages, f"page {written} of {body.pages}")
    return Report(title=body.title, pages=written, attempt=job.attempt)


@reports.post("/{year}/figures", media_type="text/csv")
def export_figures(year: int, rows: int = 3) -> str:
    """Export the figures of a year. Plain functions run in a thread."""
    if year < 2000:
        # Only the text of a Problem reaches the client. Other errors stay in the log.
        raise Problem(422, "No figures", detail="They begin with the year 2000.")
    return "month,orders\n" + "".join(f"{year}-{row:02},{row * 7}\n" for row in range(1, rows + 1))


# Timers. They tick on the workers, however many there are.

RATES: dict[str, float] = {}


@app.timer(cron=os.environ.get("REPORTS_DIGEST", "*/20 * * * * *"))
async def send_digest(tick: Tick) -> None:
    """Runs once per tick across all replicas. For every night: cron="30 2 * * *", tz=...."""
    log.info("digest of %s", f"{tick.nominal:%H:%M:%S}")


@app.timer(every=os.environ.get("REPORTS_RATES", "30s"), each="replica", limit=2)
async def refresh_rates() -> None:
    """Runs on every replica, but on two at a time, so as not to overload the source."""
    log.info("rates: asking")
    await asyncio.sleep(0.5)  # stands for a request
    RATES["EUR"] = 1.0
    log.info("rates: fresh")


# The API. With REPORTS_WORKER=no it only accepts requests; start workers as other processes.


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    if os.environ.get("REPORTS_WORKER") == "no":
        async with app:
            yield
    else:
        # Jobs still running 3 s after Ctrl-C are handed back; the next worker runs them.
        async with app, app.worker(grace=3):
            yield


async def log_request(request: Request) -> None:
    """Name each request in the log by its id. The router stores the same id with the job."""
    request_id = request.headers.get("x-request-id", "-")
    log.info("%s %s", request.method, request.url.path, extra={"request_id": request_id})


api = FastAPI(title="Reports", lifespan=lifespan, dependencies=[Depends(log_request)])
# Documents the refusal of current_user.
unknown = {"description": "Say who you are", "content": {"application/problem+json": {}}}
api.include_router(reports.router, responses={401: unknown})

# Pages for operators, read-only: with auth=, those who sign in can also requeue, cancel and pause.
api.mount("/dashboard", Dashboard(app, title="reports"))

# For probes and for Prometheus. Serve them where only your monitoring can reach them.
api.mount("/health", tenure.http.health(app))
with suppress(ModuleNotFoundError):  # pip install 'tenure[prometheus]'
    import tenure.prometheus

    api.mount("/metrics", tenure.prometheus.metrics_app(app))
