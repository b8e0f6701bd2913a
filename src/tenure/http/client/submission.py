"""Submits a job as a client, free of I/O. Each submission has an idempotency key, so it can be sent
again without creating a second job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias
from uuid import UUID

from msgspec import Struct

from tenure.core.durations import Duration, seconds
from tenure.core.redaction import redact
from tenure.core.values.json import encode
from tenure.errors import ConfigError
from tenure.http.client.conversation import (
    REQUEST_ID,
    Ask,
    Caller,
    Steps,
    on_the_same_host,
    origin,
)
from tenure.http.client.remote_job import KnownJob

__all__ = [
    "Context",
    "Order",
    "headers_about_a_job",
    "headers_of_submission",
    "submitting",
    "whole_url",
]

Context: TypeAlias = Callable[[], Mapping[str, str]]
"""Returns headers with the context of the caller, such as a trace."""


class Order(Struct, frozen=True, kw_only=True):
    """A submission as the caller of `submit` describes it."""

    method: str
    url: str
    json: Any
    headers: Mapping[str, str]
    key: str | None

    def ask(self, caller: Caller) -> Ask:
        """Return the request, with a new idempotency key if the caller passed none."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        if self.key is not None:
            headers["idempotency-key"] = self.key
        headers.setdefault("idempotency-key", str(UUID(hex=caller.clock.token(), version=4)))
        body = None
        if self.json is not None:
            body = encode(self.json)
            headers.setdefault("content-type", "application/json")
        return Ask(method=self.method, url=self.url, headers=headers, body=body)


def headers_about_a_job(
    context: Context | None, headers: Mapping[str, str] | None
) -> dict[str, str]:
    """Return the context of the caller, and the headers that it has passed, which win."""
    every = [*(context() if context is not None else {}).items(), *(headers or {}).items()]
    return {name.lower(): value for name, value in every}


def headers_of_submission(
    caller: Caller, http: Any, context: Context | None, headers: Mapping[str, str] | None
) -> dict[str, str]:
    """Return the same for a submission: with a request id, a new one unless it was passed."""
    sent = headers_about_a_job(context, headers)
    own = http.headers.get(REQUEST_ID)
    sent.setdefault(REQUEST_ID, own or str(UUID(hex=caller.clock.token(), version=4)))
    return sent


def submitting(
    caller: Caller, order: Order, timeout: Duration | None, wait: Duration | None
) -> Steps[KnownJob]:
    """Submit a job, then wait up to `wait` for it to finish.

    Once the server has stored the job this returns its handle, even if the deadline passes before a
    response describes the job.
    """
    # Checked first, so that a wrong `wait` raises before the job exists.
    linger = None if wait is None else seconds(wait, "wait")
    ask = order.ask(caller)
    then = f"{ask} has no answer. Submit it again with key={ask.key!r}: that creates no second job"
    deadline = caller.deadline(timeout, then)
    reply = yield from caller.exchange(ask, deadline)
    job = KnownJob(caller, on_the_same_host(ask, reply.headers.get("location")), order.headers)
    if reply.status == 202:
        job.see(ask, reply.body)
    else:  # the response is the result of a finished job, not the job itself
        yield from job.meeting(deadline)
    if linger is not None:
        yield from job.lingering(max(0.0, min(linger, deadline.left)))
    return job


def whole_url(http: Any, path: str, params: Mapping[str, Any] | None = None) -> str:
    """Return the URL of a path, as httpx joins it. Raises ConfigError if it is on another host."""
    url, base = str(http.build_request("GET", path, params=params).url), str(http.base_url)
    if origin(url) is None or origin(base) not in (None, origin(url)):
        msg = f"{path!r} is not on the server of this client; base_url is {redact(base)!r}."
        raise ConfigError(msg)
    return url
