"""The operator's view of an app: pages about its jobs, queues, timers, locks and replicas.

    api.mount("/tenure", Dashboard(app, auth=who))      # FastAPI and Starlette

`tenure dashboard URL|MODULE:APP` serves the same without a service.
"""

from __future__ import annotations

from tenure.dashboard.asgi import Dashboard
from tenure.dashboard.viewer import BasicAuth, Viewer

__all__ = ["BasicAuth", "Dashboard", "Viewer"]
