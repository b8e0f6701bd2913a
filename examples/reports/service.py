"""Reports that take a while, over HTTP: a service with durable jobs and timers, whole in this file.

`make run` serves it, with a worker inside the same process. See README.md beside this file.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, Field

from tenure import JobContext, Tenure, Tick
from tenure.http import AsyncRouter, Limits, Problem

log = logging.getLogger("reports")

# One file, shared by all processes of this host; TENURE_URL=postgresql://... for many hosts.
app = Tenure(os.environ.get("TENURE_URL", "sqlite:///reports.db"))


# Who asks. A job belongs to whoever submitted it; to everybody else it is not there.

USERS = {"ada-token": "ada", "bob-token": "bob"}
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]


def current_user(given: Credentials) -> str:
    user = USERS.get(given.credentials) if given else None
    if user is None:
        raise Problem(401, "Say who you are", headers={"WWW-Authenticate": "Bearer"})
    return user


# Slow handlers. A request becomes a job before it is answered, with 202 and the job's address.

reports = AsyncRouter(app, prefix="/reports", owner=current_user)


class ReportRequest(BaseModel):
    """What to write about, and how much."""

    title: str = Field(min_length=1, max_length=80)
    pages: int = Field(10, ge=1, le=500)


class Report(BaseModel):
    """What comes of it."""

    title: str
    pages: int
    attempt: int


@reports.post("", limits=Limits(running=100))
async def build_report(body: ReportRequest, job: JobContext) -> Report:
    """Write a report, page by page."""
    # Not 0 if an earlier attempt died with its worker: then it goes on where that one was.
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
        # The only kind of error whose text reaches the client; the rest stays in the log.
        raise Problem(422, "No figures", detail="They begin with the year 2000.")
    return "month,orders\n" + "".join(f"{year}-{row:02},{row * 7}\n" for row in range(1, rows + 1))


# Timers. They tick where workers run, however many there are.

RATES: dict[str, float] = {}


@app.timer(cron=os.environ.get("REPORTS_DIGEST", "*/20 * * * * *"))
async def send_digest(tick: Tick) -> None:
    """Each tick has one run over all replicas. For every night: cron="30 2 * * *", tz=...."""
    log.info("digest of %s", f"{tick.nominal:%H:%M:%S}")


@app.timer(every=os.environ.get("REPORTS_RATES", "30s"), each="replica", limit=2)
async def refresh_rates() -> None:
    """Every replica has rates of its own to keep fresh; their source bears two at a time."""
    log.info("rates: asking")
    await asyncio.sleep(0.5)  # stands for a request
    RATES["EUR"] = 1.0
    log.info("rates: fresh")


# The API. With REPORTS_WORKER=no it only takes requests, and workers are processes of their own.


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    if os.environ.get("REPORTS_WORKER") == "no":
        async with app:
            yield
    else:
        # What is not done 3 s after Ctrl-C is handed back, and goes on with the next worker.
        async with app, app.worker(grace=3):
            yield


api = FastAPI(title="Reports", lifespan=lifespan)
# What current_user refuses is part of the document, too.
unknown = {"description": "Say who you are", "content": {"application/problem+json": {}}}
api.include_router(reports.router, responses={401: unknown})
