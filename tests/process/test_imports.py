"""What a fresh interpreter imports."""

import subprocess
import sys


def test_no_driver_is_imported_before_a_url_asks_for_it():
    program = (
        "import sys, tenure.stores.connect as c, tenure.core.clock as k; "
        "c.connect('memory://', namespace='app', clock=k.SystemClock()); "
        "sys.exit(len({'redis', 'asyncpg', 'sqlite3'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
