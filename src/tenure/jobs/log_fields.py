"""`JobFields`: a logging filter that names the running job in records of its handler.

Records of Tenure have these fields already. With the filter, those of your own loggers do as well,
and one request id finds both.
"""

from __future__ import annotations

import logging

from tenure.observe.log_records import fields_of
from tenure.runtime.attempts.running_job import current

__all__ = ["JobFields"]


class JobFields(logging.Filter):
    """Adds `job`, `task`, `queue`, `attempt`, `replica` and `request_id` to records of a handler.

        stderr.addFilter(JobFields())        # of a logging handler, not of a logger

    `request_id` is the header `x-request-id` of the job. Fields that a record has stay, and records
    from outside of a job are not changed. Works on the event loop and in threads.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        # Tenure names jobs in its own records. Its background tasks may have begun within a job,
        # and their records are about other jobs.
        running = current.get(None) if record.name != "tenure" else None
        if running is not None:
            for name, value in fields_of(running.record).items():
                vars(record).setdefault(name, value)
        return True
