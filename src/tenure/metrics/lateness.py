"""Warns of an app that was opened before it was instrumented: metrics of its store stay empty."""

from __future__ import annotations

import logging

from tenure.app import Tenure, engine_of

__all__ = ["warn_if_open"]

log = logging.getLogger("tenure")


def warn_if_open(app: Tenure) -> None:
    """Log a warning if the calls of the app's store are not reported until it is opened again.

    `tenure_store_up` would stay 1 in an outage.
    """
    if engine_of(app).hides_calls:
        log.warning(
            "%r was instrumented after it was opened, so calls of its store are not measured, and "
            "tenure_store_up stays 1. Call instrument() or metrics_app() where you make the app.",
            app,
        )
