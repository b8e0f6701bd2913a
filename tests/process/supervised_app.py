"""The app of the tests with a supervisor; where it works is in the environment."""

import os
from pathlib import Path

from tenure import Tenure
from tests.process.job_ledger import JobLedger
from tests.process.job_tasks import Tasks

app = Tenure()
tasks = Tasks(app, JobLedger(Path(os.environ["TENURE_TEST_LEDGER"])))
