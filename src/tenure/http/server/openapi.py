"""Describes the routes for FastAPI's OpenAPI document: every status, header and body."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Union

from tenure.core.jobs.states import STATES
from tenure.http.job_resource import JobList, JobResource
from tenure.http.problems import KINDS, PROBLEM_JSON
from tenure.http.server.endpoint import Endpoint
from tenure.http.server.event_stream import EVENT_STREAM
from tenure.http.server.response import JSON
from tenure.http.server.routes import PAGE, PAGE_MAX

__all__ = ["describe", "describe_submit"]

_PREFER: Final = {
    "name": "Prefer",
    "in": "header",
    "schema": {"type": "string"},
    "description": "`wait=10`: respond when the job has finished, or after 10 s.",
}
_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "schema": {"type": "string", "maxLength": 255, "pattern": "^[!-~]([ -~]*[!-~])?$"},
    "description": "New for each job, the same in every retry: a retry returns the same job.",
}
_JOB_ID: Final = {
    "name": "job_id",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "format": "uuid"},
}
_REVISION: Final = {"name": "If-None-Match", "in": "header", "schema": {"type": "string"}}
_LAST_EVENT: Final = {"name": "Last-Event-ID", "in": "header", "schema": {"type": "string"}}
_LIST: Final = [
    {"name": "state", "in": "query", "schema": {"type": "string", "enum": list(STATES)}},
    {"name": "cursor", "in": "query", "schema": {"type": "string", "format": "uuid"}},
    {
        "name": "limit",
        "in": "query",
        "schema": {"type": "integer", "minimum": 1, "maximum": PAGE_MAX, "default": PAGE},
    },
]
_TAKES: Final[Mapping[str, list[dict[str, Any]]]] = {
    "get": [_JOB_ID, _PREFER, _REVISION],
    "result": [_JOB_ID, _PREFER],
    "events": [_JOB_ID, _LAST_EVENT],
    "cancel": [_JOB_ID],
    "list": _LIST,
}
"""The parameters of job routes. The routes read them, so FastAPI only documents them."""

_PROBLEM: Final = {
    "type": "object",
    "title": "Problem",
    "description": "RFC 9457.",
    "required": ["type", "title", "status"],
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "errors": {"type": "array", "items": {"type": "object"}},
    },
}
_TEXT: Final = {"schema": {"type": "string"}}
_RETRY_AFTER: Final = {"schema": {"type": "integer"}, "description": "Seconds."}
_HEADERS: Final = {
    "ETag": {**_TEXT, "description": "The revision of the job."},
    "Location": {**_TEXT, "description": "The job."},
    "Retry-After": _RETRY_AFTER,
    "Idempotency-Replayed": {**_TEXT, "description": "`true`: the job existed already."},
    "Preference-Applied": _TEXT,
    "Content-Location": {**_TEXT, "description": "The result."},
}


_SAYS: Final[Mapping[str, tuple[str, str]]] = {
    "list": ("Your jobs", "The jobs that you have submitted here, newest first."),
    "get": (
        "A job",
        "The state and progress of a job. `Prefer: wait=10` waits until it has finished.",
    ),
    "result": ("Its result", "What the handler returned; a problem before that or on failure."),
    "events": ("Its events", "Server-sent events: the job at each change, until it has finished."),
    "cancel": ("Cancel it", "Request cancellation. A waiting job is cancelled at once."),
}
"""Summary and description of each route."""


def describe_submit(endpoint: Endpoint, get: str, *, owned: bool) -> dict[str, Any]:
    """Return FastAPI's arguments for an endpoint. `get` is the operation id of the job route."""
    entry = endpoint.entry
    problems = ["malformed-request", "body-too-large", "unsupported-media-type"]
    if endpoint.parameters.body is None:
        problems = []
    if entry.idempotency != "off":
        problems += ["idempotency-key-malformed", "idempotency-key-reused", "expired"]
        problems.append("job-unreadable")
    if entry.idempotency == "required":
        problems.append("idempotency-key-missing")
    if entry.limits is not None:
        problems += ["too-many-jobs", "too-many-requests", "queue-full"]
    if owned:
        problems.append("unknown-owner")
    link = {"operationId": get, "parameters": {"job_id": "$response.body#/id"}}
    accepted = _headers("Location", "Retry-After", "Idempotency-Replayed")
    responses: dict[int | str, dict[str, Any]] = {
        202: {
            "description": "Stored as a job; it runs soon",
            "model": _job_of(endpoint.parameters.returns),
            "headers": accepted,
            "links": {"job": link},
        },
        **_problems(*problems, "invalid-request", "store-unavailable", "store-full"),
    }
    if entry.max_wait:
        applied = _headers("Location", "Content-Location", "Preference-Applied")
        responses[200] = {"description": "The result, in time", "headers": applied}
        responses[200] |= _result(endpoint.parameters.returns, entry.media_type)
    takes: list[dict[str, Any]] = [_PREFER] if entry.max_wait else []
    if entry.idempotency != "off":
        takes.append({**_KEY, "required": entry.idempotency == "required"})
    return {
        "status_code": 202,
        "response_model": None,
        "responses": responses,
        "openapi_extra": {"parameters": takes},
    }


def describe(what: str, endpoints: Sequence[Endpoint], *, owned: bool) -> dict[str, Any]:
    """Return FastAPI's arguments for one of the job routes."""
    job = _job_of(_either(endpoint.parameters.returns for endpoint in endpoints))
    state = _headers("ETag", "Retry-After")
    shown: dict[str, dict[int | str, dict[str, Any]]] = {
        "list": {
            200: {"description": "A page of jobs, newest first", "model": JobList},
            **_problems("invalid-request"),
        },
        "get": {
            200: {"description": "The job", "model": job, "headers": state},
            304: {"description": "It has not changed", "headers": state},
        },
        "cancel": {
            200: {"description": "It has finished, now or earlier", "model": job},
            202: {"description": "Cancellation was requested", "model": job},
        },
        "result": {
            200: {
                "description": "What the handler returned",
                "headers": _headers("ETag"),
                **_results(endpoints),
            },
            **_problems("not-ready", "cancelled", "not-acceptable"),
            **_problems("job-failed", "job-lost", "result-unavailable", "job-unreadable"),
            **_problems("job-timed-out"),
            "4XX": _problem_response("A problem that the handler raised"),
            "5XX": _problem_response("A problem that the handler raised"),
        },
        "events": {
            200: {
                "description": "Snapshots of the job by revision, until it has finished",
                # Without a schema: OpenAPI 3.1 cannot describe a stream of events.
                "content": {EVENT_STREAM: {}},
            },
            204: {"description": "The client has seen the last event: do not reconnect"},
        },
    }
    responses = {**_problems("job-unreadable"), **shown[what], **_problems("store-unavailable")}
    if what == "list":
        del responses[KINDS["job-unreadable"].status]
    else:
        responses |= _problems("not-found")
    if what == "cancel":
        responses |= _problems("store-unavailable", "store-full")
    if owned:
        responses |= _problems("unknown-owner")
    summary, description = _SAYS[what]
    return {
        "summary": summary,
        "description": description,
        "response_model": None,
        "responses": responses,
        "openapi_extra": {"parameters": _TAKES[what]},
    }


def _job_of(returns: Any) -> Any:
    generic: Any = JobResource
    return generic[returns]


def _either(results: Iterable[Any]) -> Any:
    types = tuple(results)
    return Union[types] if types else Any  # noqa: UP007 - of a variable number of types


def _headers(*names: str) -> dict[str, Any]:
    return {name: _HEADERS[name] for name in names}


def _result(returns: Any, media_type: str) -> dict[str, Any]:
    if media_type == JSON:
        return {"model": returns}
    return {"content": {media_type: {"schema": {"type": "string"}}}}


def _results(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Return the responses of the result route, which serves the jobs of all endpoints."""
    plain = [
        endpoint.parameters.returns for endpoint in endpoints if endpoint.entry.media_type == JSON
    ]
    others = {endpoint.entry.media_type for endpoint in endpoints} - {JSON}
    content = {kind: {"schema": {"type": "string"}} for kind in sorted(others)}
    return {**({"model": _either(plain)} if plain else {}), "content": content}


def _problems(*kinds: str) -> dict[int | str, dict[str, Any]]:
    """Return the responses of these kinds of problems. Kinds with the same status share one."""
    titles: dict[int, list[str]] = {}
    for kind in kinds:
        titles.setdefault(KINDS[kind].status, []).append(KINDS[kind].title)
    return {status: _problem_response("; or: ".join(all_)) for status, all_ in titles.items()}


def _problem_response(description: str) -> dict[str, Any]:
    return {
        "description": description,
        "headers": {"Retry-After": _RETRY_AFTER},
        "content": {PROBLEM_JSON: {"schema": _PROBLEM}},
    }
