"""`instrument`: connects an app with the Sentry SDK of a service, once per app."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from sentry_sdk.scope import global_event_processors

from tenure.app import Tenure
from tenure.errors import ConfigError
from tenure.sentry.attempts import Attempts
from tenure.sentry.enqueues import sending
from tenure.sentry.local_variables import without_local_variables

if TYPE_CHECKING:
    from sentry_sdk.types import Event, Hint

__all__ = ["instrument"]

_instrumented: weakref.WeakKeyDictionary[Tenure, Attempts] = weakref.WeakKeyDictionary()


def instrument(app: Tenure, *, retries: bool = False, local_variables: bool = False) -> None:
    """Report the jobs of an app that fail, and trace them. Call it before you open the app.

    The trace context travels in the headers of a job, so instrument the app in processes that
    enqueue and in workers. Until `sentry_sdk.init` was called, nothing is sent.

    Args:
        app: the app. Its clones for other event loops are instrumented as well.
        retries: whether failures that are tried again are reported as well, as warnings. By
            default, a job is reported once, when it has failed for good.
        local_variables: whether reports may hold the local variables of each frame. They contain
            the arguments of your handlers.

    Raises ConfigError if the app is instrumented already.
    """
    if app in _instrumented:
        msg = f"{app!r} is instrumented already. Call tenure.sentry.instrument() once."
        raise ConfigError(msg)
    if _of_our_log not in global_event_processors:
        # The first one: that of Sentry's DedupeIntegration would take the error of a record that is
        # dropped here for reported, and drop the report.
        global_event_processors.insert(0, _of_our_log)
    attempts = Attempts(retries=retries, local_variables=local_variables)
    _instrumented[app] = attempts
    app.around_enqueue(sending)
    app.around_attempt(attempts.processing)
    app.on_event(attempts.ended)


def _of_our_log(event: Event, hint: Hint) -> Event | None:
    """Filter what Sentry's logging integration makes of records of Tenure.

    A failed job is logged as an ERROR, and reported by `Attempts` in the scope of its attempt: one
    of the two is enough. Other records, such as those of lost jobs, pass without local variables.
    """
    if event.get("logger") != "tenure":
        return event
    record = hint.get("log_record")
    job = getattr(record, "job", None)
    if getattr(record, "tenure_event", "") == "JobFailed" and any(
        attempts.knows(str(job)) for attempts in list(_instrumented.values())
    ):
        return None
    return without_local_variables(event, hint)
