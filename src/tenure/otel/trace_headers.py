"""The current trace context as headers, for requests to other services."""

from __future__ import annotations

from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

__all__ = ["trace_headers"]

_PROPAGATOR = TraceContextTextMapPropagator()


def trace_headers() -> dict[str, str]:
    """Return `traceparent` and `tracestate` of the current span; none outside of a span.

    For `context=` of `tenure.http.Client`, and for requests of your own.
    """
    headers: dict[str, str] = {}
    _PROPAGATOR.inject(headers)
    return headers
