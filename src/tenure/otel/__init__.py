"""OpenTelemetry traces and metrics of an app. Needs `tenure[otel]`.

    tenure.otel.instrument(app)              # before the app is opened

It uses the API of OpenTelemetry alone: your service sets up the SDK and its exporters. Names follow
the conventions for messaging. docs/metrics.md describes all of it. No span and no metric holds an
argument, a result, the message of an error, a lock name or a header. Spans have the request id.
"""

try:
    import opentelemetry.trace as _needed  # noqa: F401
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "opentelemetry":
        raise
    msg = "this needs opentelemetry-api: pip install 'tenure[otel]'"
    raise ModuleNotFoundError(msg, name=error.name) from error

from tenure.otel.instrument import instrument
from tenure.otel.trace_headers import trace_headers

__all__ = ["instrument", "trace_headers"]
