"""Turns a request into a durable job. The client gets a 202 only after the store has the job.

An idempotency key becomes a unique key of the job, with a digest of the arguments: a repeated
request gets the same job, and a different request under the same key is rejected.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import suppress
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from tenure.app.engine import Services
from tenure.core.jobs.records import Unique
from tenure.errors import ArgumentsError, JobNotFound, TooLarge, UniqueMismatch
from tenure.http.problems import Problem, pointer_step
from tenure.http.request import Headers, RequestData, idempotency_key
from tenure.http.server.endpoint import Endpoint, Limits, Submission
from tenure.http.server.parameters import check_json
from tenure.jobs import Job, JobRequest

__all__ = ["check_body", "submit"]

_KEPT_AT_LEAST: Final = 86_400.0
_MINUTE: Final = 60.0
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)


def _every_digit(text: str) -> Decimal | float:
    """Return a number with all digits, which a float may not hold. 1.50 and 1.5 are equal."""
    try:
        return Decimal(text).normalize(_EXACT)
    except ArithmeticError:  # its exponent exceeds what any handler could receive
        return float(text)


_PLAIN = msgspec.json.Decoder(float_hook=_every_digit)
_SAME = msgspec.json.Encoder(decimal_format="number", order="sorted")


def check_body(endpoint: Endpoint, headers: Headers, body: bytes) -> None:
    """Raise a Problem for a body that is not JSON, or has another Content-Type."""
    if endpoint.parameters.body is None or not body:
        return
    kind = headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != "application/json" and not (
        kind.startswith("application/") and kind.endswith("+json")
    ):
        detail = "Send it with Content-Type: application/json."
        raise Problem.of("unsupported-media-type", detail)
    check_json(body)


async def submit(
    services: Services,
    endpoint: Endpoint,
    *,
    owner: str,
    tag: str,
    values: Mapping[str, Any],
    body: bytes,
    request: RequestData,
    job_headers: Mapping[str, str],
) -> Job[Any]:
    """Store the job of a request and return it. The same idempotency key returns the same job.

    `values` are the converted path and query parameters. The caller has checked the body.
    `job_headers` travel with the job, and play no part in whether two requests are the same.
    """
    entry, headers = endpoint.entry, request.headers
    kept = {name: headers[name] for name in entry.headers if name in headers}
    payload = _payload(endpoint, owner, values, body, kept)
    arguments = _arguments(endpoint, payload)
    key = _key(endpoint, headers)
    mark = None if key is None else _scoped(tag, endpoint, request.outer_parameters, key)
    is_checked = entry.limits is not None or entry.before_enqueue is not None
    if is_checked and not await _is_replay(services, mark):
        if entry.limits is not None:
            await _admit(services, endpoint, entry.limits, tag)
        if entry.before_enqueue is not None:
            submission = Submission(
                owner=owner,
                method=endpoint.method,
                path=endpoint.path,
                arguments=MappingProxyType(arguments),
                headers=MappingProxyType(kept),
            )
            looked = entry.before_enqueue(submission)
            if inspect.isawaitable(looked):
                await looked
    return await _store(services, endpoint, payload, tag, mark, job_headers=job_headers)


async def _store(
    services: Services,
    endpoint: Endpoint,
    payload: bytes,
    tag: str,
    mark: str | None,
    *,
    job_headers: Mapping[str, str],
) -> Job[Any]:
    try:
        draft = endpoint.stored.draft(payload, job_headers)
    except TooLarge as error:
        raise Problem.of("body-too-large", f"{error.limit:,} bytes are accepted.") from None
    draft = replace(draft, tags=(*draft.tags, tag))
    if mark is not None:
        digest = _fingerprint(payload)
        unique = Unique(key=mark, digest=digest, keep=_KEPT_AT_LEAST, with_job=True)
        draft = replace(draft, unique=unique, tags=(*draft.tags, mark))
    try:
        job: Job[Any] = await services.jobs.enqueue(JobRequest(draft))
    except UniqueMismatch:
        detail = "Its path, query or body was different. Use a new key."
        raise Problem.of("idempotency-key-reused", detail) from None
    if not job.is_new and not job.record.created:
        with suppress(JobNotFound):
            await services.jobs.record(job.id)  # raises JobUnreadable if the record is damaged
        raise Problem.of("expired", "Use a new key to run it again.")
    return job


def _payload(
    endpoint: Endpoint,
    owner: str,
    values: Mapping[str, Any],
    body: bytes,
    headers: Mapping[str, str],
) -> bytes:
    try:
        return endpoint.parameters.payload(values, body, headers, owner)
    except ValueError as error:
        # The payload nests the body one level deeper, which may exceed the limit.
        raise Problem.of("malformed-request", f"It has {error}.") from None


async def _is_replay(services: Services, mark: str | None) -> bool:
    """Return whether this key has a job already, which passed the limits and hooks then."""
    return mark is not None and bool((await services.store.jobs.find(tag=mark, limit=1)).jobs)


def _arguments(endpoint: Endpoint, payload: bytes) -> dict[str, Any]:
    """Decode the payload as the worker will. Raises a Problem if it does not fit the handler."""
    try:
        return endpoint.stored.arguments(payload)
    except ArgumentsError as error:
        errors = [_located(endpoint, where, message) for where, message in error.problems]
        raise Problem.of("invalid-request", errors=errors) from None


def _located(endpoint: Endpoint, where: tuple[str | int, ...], message: str) -> dict[str, str]:
    """Return an error with its place in the request: a JSON pointer or a parameter."""
    name, *path = where or ("",)
    body = endpoint.parameters.body
    if body is not None and name == body.name:
        return {"pointer": "".join(map(pointer_step, path)), "detail": message}
    for parameter in endpoint.parameters.of("path", "query"):
        if name == parameter.name:
            return {"parameter": parameter.alias, "detail": message}
    missing = body is not None and f"`{body.name}`" in message
    return {"pointer": "", "detail": "A body is required." if missing else message}


def _key(endpoint: Endpoint, headers: Headers) -> str | None:
    if endpoint.entry.idempotency == "off":
        return None
    key = idempotency_key(headers)
    if key is None and endpoint.entry.idempotency == "required":
        detail = "Send a new key for each job, such as a UUID, and the same key in every retry."
        raise Problem.of("idempotency-key-missing", detail)
    return key


def _scoped(tag: str, endpoint: Endpoint, around: Mapping[str, str], key: str) -> str:
    """Return the unique key in the store: it includes the owner, the method and the route."""
    named = msgspec.json.encode((tag, endpoint.method, endpoint.path, key, around))
    return f"http:{sha256(named).hexdigest()}"


def _fingerprint(payload: bytes) -> str:
    """Return a hash that is equal for equal requests, whatever the layout of their JSON."""
    return sha256(_SAME.encode(_PLAIN.decode(payload))).hexdigest()


async def _admit(services: Services, endpoint: Endpoint, limits: Limits, tag: str) -> None:
    """Raise a Problem if a limit is reached. Each limit costs one bounded query."""
    store, pace = services.store, endpoint.pace
    if limits.waiting is not None:
        queue = endpoint.task.options.queue
        waiting = [counts.waiting for counts in await store.jobs.counts() if counts.queue == queue]
        if sum(waiting) >= limits.waiting:
            raise Problem.of("queue-full", headers={"Retry-After": str(pace.usual)})
    if limits.running is None and limits.per_minute is None:
        return
    running, recent = limits.running or 0, limits.per_minute or 0
    count = await store.jobs.count_tagged(tag, unfinished=running, recent=recent, within=_MINUTE)
    if running and count.unfinished >= running:
        raise Problem.of("too-many-jobs", headers={"Retry-After": str(pace.usual)})
    if recent and count.recent >= recent:
        # Until the oldest counted job is a minute old.
        soonest = int(_MINUTE - count.oldest) + 1
        raise Problem.of("too-many-requests", headers={"Retry-After": str(soonest)})
