"""Works: python -m tests.process.job_worker URL NAMESPACE LEDGER, with the settings of a worker.

It tells every event, and logs to stderr as a service would.
"""

import argparse
import asyncio
import logging
import sys
from pathlib import Path

from msgspec.structs import asdict

from tenure import Tenure
from tests.process.job_ledger import JobLedger
from tests.process.job_tasks import Tasks
from tests.rig.stdio import tell


def parsed() -> argparse.Namespace:
    """Return what the test wants."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("namespace")
    parser.add_argument("ledger", type=Path)
    parser.add_argument("--replica-ttl", type=float)
    parser.add_argument("--loss-budget", type=int)
    parser.add_argument("--concurrency", type=int, default=100)
    parser.add_argument("--grace", type=float)
    return parser.parse_args()


def main() -> None:
    """Work until a signal."""
    options = parsed()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    app = Tenure(
        options.url,
        namespace=options.namespace,
        replica_ttl=options.replica_ttl,
        loss_budget=options.loss_budget,
        grace=options.grace,
    )
    Tasks(app, JobLedger(options.ledger))
    app.on_event(lambda event: tell(type(event).__name__, **asdict(event)))
    asyncio.run(app.run_worker(concurrency=options.concurrency))


if __name__ == "__main__":
    main()
