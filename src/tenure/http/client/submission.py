"""What a client sends to have a job; free of I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from msgspec import Struct

from tenure.core.durations import Duration, seconds
from tenure.core.redaction import redact
from tenure.core.values.json import encode
from tenure.errors import ConfigError
from tenure.http.client.conversation import Ask, Caller, Steps, on_the_same_host, origin
from tenure.http.client.remote_job import KnownJob

__all__ = ["Order", "submitting", "whole_url"]


class Order(Struct, frozen=True, kw_only=True):
    """What is to be submitted."""

    method: str
    url: str
    json: Any
    headers: Mapping[str, str]
    key: str | None

    def ask(self, caller: Caller) -> Ask:
        """Return it with a key, by which the server knows it when it is sent again."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        if self.key is not None:
            headers["idempotency-key"] = self.key
        headers.setdefault("idempotency-key", str(UUID(hex=caller.clock.token(), version=4)))
        body = None
        if self.json is not None:
            body = encode(self.json)
            headers.setdefault("content-type", "application/json")
        return Ask(method=self.method, url=self.url, headers=headers, body=body)


def submitting(
    caller: Caller, order: Order, timeout: Duration | None, wait: Duration | None
) -> Steps[KnownJob]:
    """Submit a job, and wait for it a little if that is wanted.

    Once it is stored, its handle is returned, however little is known of it by the deadline.
    """
    # Read first: a mistake is told before there is a job.
    linger = None if wait is None else seconds(wait, "wait")
    ask = order.ask(caller)
    then = f"{ask} has no answer. Submit it again with key={ask.key!r}: there is one job of both"
    deadline = caller.deadline(timeout, then)
    reply = yield from caller.exchange(ask, deadline)
    job = KnownJob(caller, on_the_same_host(ask, reply.headers.get("location")), order.headers)
    if reply.status == 202:
        job.see(ask, reply.body)
    else:  # the plain result of a job that has finished already
        yield from job.meeting(deadline)
    if linger is not None:
        yield from job.lingering(max(0.0, min(linger, deadline.left)))
    return job


def whole_url(http: Any, path: str, params: Mapping[str, Any] | None = None) -> str:
    """Return the URL of a path as an httpx client reads it; it is one of the client's server."""
    url, base = str(http.build_request("GET", path, params=params).url), str(http.base_url)
    if origin(url) is None or origin(base) not in (None, origin(url)):
        msg = f"{path!r} is not on the server of this client; base_url is {redact(base)!r}."
        raise ConfigError(msg)
    return url
