"""Prometheus metrics of an app, counted from its events. Needs `tenure[prometheus]`.

    metrics = tenure.prometheus.instrument(app)              # before the app is opened
    service.mount("/metrics", tenure.prometheus.metrics_app(app))

`tenure worker --metrics 127.0.0.1:9464` serves one page for all its processes and needs neither.
docs/metrics.md lists all metrics. No label holds an id, an owner, an argument or a whole lock name.
"""

try:
    import prometheus_client as _needed  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "prometheus_client":
        raise
    msg = "this needs prometheus-client: pip install 'tenure[prometheus]'"
    raise ModuleNotFoundError(msg, name=error.name) from error

from tenure.prometheus.instrument import Metrics, instrument
from tenure.prometheus.page import metrics_app

__all__ = ["Metrics", "instrument", "metrics_app"]
