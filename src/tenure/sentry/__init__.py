"""Sentry for the jobs of an app: reports of failures, and traces. Needs `tenure[sentry]`.

    sentry_sdk.init(dsn=...)
    tenure.sentry.instrument(app)            # before the app is opened

It is built on `app.around_attempt`, `app.around_enqueue` and `app.on_event`. docs/metrics.md
describes all of it. No report holds an argument or a result, unless the text of an error does.
"""

try:
    import sentry_sdk as _needed  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "sentry_sdk":
        raise
    msg = "this needs sentry-sdk: pip install 'tenure[sentry]'"
    raise ModuleNotFoundError(msg, name=error.name) from error

from tenure.sentry.instrument import instrument
from tenure.sentry.trace_headers import trace_headers

__all__ = ["instrument", "trace_headers"]
