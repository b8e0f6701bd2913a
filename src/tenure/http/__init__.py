"""Slow handlers as durable jobs over HTTP: 202, status, result, events, cancel; see AsyncRouter.

Processes that serve routes need `tenure[http]` (Starlette) or `tenure[fastapi]`. A worker that only
runs the handlers, and `health`, need neither. Creating a `Client` or `AsyncClient` needs
`tenure[client]`.
"""

from __future__ import annotations

from tenure.errors import RequestRefused, ServerUnreachable, UnusableAnswer
from tenure.http.client.client import AsyncClient, AsyncRemoteJob, Client, RemoteJob
from tenure.http.client.remote_job import JobEvent
from tenure.http.health import health
from tenure.http.job_resource import JobResource, Responses
from tenure.http.problems import Problem
from tenure.http.request import Headers, Owner
from tenure.http.server.endpoint import Limits, Submission
from tenure.http.server.router import AsyncRouter

__all__ = [
    "AsyncClient",
    "AsyncRemoteJob",
    "AsyncRouter",
    "Client",
    "Headers",
    "JobEvent",
    "JobResource",
    "Limits",
    "Owner",
    "Problem",
    "RemoteJob",
    "RequestRefused",
    "Responses",
    "ServerUnreachable",
    "Submission",
    "UnusableAnswer",
    "health",
]
