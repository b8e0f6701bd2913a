"""Forks children that exit normally: python -m tests.process.forking_parent URL NAMESPACE CHILDREN

After each child it makes a call that is not repeated: it fails if the connection has stopped
delivering replies.
"""

import contextlib
import os
import sys

from tenure import JobNotFound, StoreUnavailable
from tenure.blocking import Tenure
from tests.rig.stdio import tell

MISSING = "01890000-0000-7000-8000-000000000000"


def main(url: str, namespace: str, children: str) -> None:
    failures = []
    with Tenure(url, namespace=namespace) as app:
        for number in range(int(children)):
            pid = os.fork()
            if not pid:
                sys.exit(0)  # through the end of the interpreter, where all objects are destroyed
            os.waitpid(pid, 0)
            try:
                with contextlib.suppress(JobNotFound):
                    app.job(MISSING)
            except StoreUnavailable as error:
                failures.append(f"after child {number}: {error}")
        # In the parent alone: a child that exits leaves through the block above.
        tell("calls", failures=failures)


if __name__ == "__main__":
    main(*sys.argv[1:])
