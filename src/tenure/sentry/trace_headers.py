"""The trace context of Sentry as headers: `sentry-trace` and `baggage`."""

from __future__ import annotations

import sentry_sdk

__all__ = ["BAGGAGE", "TRACE", "trace_headers"]

TRACE = "sentry-trace"
BAGGAGE = "baggage"


def trace_headers() -> dict[str, str]:
    """Return the headers that continue the current trace elsewhere; none without a client.

    For `context=` of `tenure.http.Client`, and for requests of your own.
    """
    if not sentry_sdk.is_initialized():
        return {}
    headers = {TRACE: sentry_sdk.get_traceparent(), BAGGAGE: sentry_sdk.get_baggage()}
    return {name: value for name, value in headers.items() if value}
