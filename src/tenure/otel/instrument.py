"""`instrument`: connects an app with the tracer and the meter of a service, once per app."""

from __future__ import annotations

import weakref
from importlib.metadata import version
from typing import Final

from opentelemetry.metrics import Meter, MeterProvider, get_meter
from opentelemetry.trace import TracerProvider, get_tracer

from tenure.app import Tenure
from tenure.errors import ConfigError
from tenure.metrics.lateness import warn_if_open
from tenure.metrics.recorder import LockLabel, Recorder
from tenure.metrics.snapshot import snapshot_of
from tenure.otel.meters import Instruments, MessagingRecorder
from tenure.otel.traces import Traces

__all__ = ["instrument"]


class _Global:
    """Stands for the global provider, which a service may set later."""


_GLOBAL: Final = _Global()

_instrumented: weakref.WeakSet[Tenure] = weakref.WeakSet()
_instruments: weakref.WeakKeyDictionary[MeterProvider | _Global, Instruments] = (
    weakref.WeakKeyDictionary()
)


def instrument(
    app: Tenure,
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    parent: bool = False,
    lock_label: LockLabel | None = None,
) -> None:
    """Trace the jobs of an app, and count its events. Call it before you open the app.

    The trace context travels in the headers of a job, so instrument the app in processes that
    enqueue and in workers.

    Args:
        app: the app. Its clones for other event loops are traced as well.
        tracer_provider: by default, the global one of OpenTelemetry.
        meter_provider: the same for metrics.
        parent: whether an attempt belongs to the trace of its enqueue. By default it begins a trace
            of its own that links to the enqueue: a job may run days later, and many times.
        lock_label: what to write in the attribute `tenure.lock` for the name of a lock. By default,
            the text before the first colon.

    Raises ConfigError if the app is instrumented already.
    """
    if app in _instrumented:
        msg = f"{app!r} is instrumented already. Call tenure.otel.instrument() once."
        raise ConfigError(msg)
    _instrumented.add(app)
    warn_if_open(app)
    release = version("tenure")
    tracer = get_tracer("tenure", release, tracer_provider)
    meter = get_meter("tenure", release, meter_provider)
    traces = Traces(tracer, has_parent=parent)
    app.around_enqueue(traces.sending)
    app.around_attempt(traces.processing)
    app.on_event(traces.settled)
    app.on_event(MessagingRecorder(meter))
    app.on_event(
        Recorder(_instruments_of(meter_provider, meter).of_app(snapshot_of(app)), lock_label)
    )


def _instruments_of(provider: MeterProvider | None, meter: Meter) -> Instruments:
    """Return the instruments of a provider, made at the first call."""
    key = _GLOBAL if provider is None else provider
    instruments = _instruments.get(key)
    if instruments is None:
        instruments = _instruments[key] = Instruments(meter)
    return instruments
