"""Parts for programs that set up their logging themselves. `tenure worker` sets them up by itself.

    stderr = logging.StreamHandler()
    stderr.setFormatter(JsonFormatter())
    stderr.addFilter(JobFields())
    logging.basicConfig(handlers=[OutageLimiter(stderr)], level="INFO")

With `logging.config.dictConfig`, name them by their path: `{"()": "tenure.logs.JsonFormatter"}`.
docs/monitoring.md describes the fields.
"""

from tenure.jobs.log_fields import JobFields
from tenure.observe.formatters import JsonFormatter, TextFormatter
from tenure.observe.outage_limiter import OutageLimiter

__all__ = ["JobFields", "JsonFormatter", "OutageLimiter", "TextFormatter"]
