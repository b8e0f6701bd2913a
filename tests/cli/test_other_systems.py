"""Without what only Unix has: everything can be imported, and what needs Unix says so."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

EVERY_MODULE = """
import tests.rig.without_unix
import importlib, pkgutil
import tenure

for module in pkgutil.walk_packages(tenure.__path__, "tenure."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""

LOCKS_AND_JOBS = """
import tests.rig.without_unix
import asyncio
from tenure import Tenure, blocking

app = Tenure("sqlite:///service.db")


@app.task
async def add(a: int, b: int) -> int:
    return a + b


@app.task
def multiply(a: int, b: int) -> int:
    return a * b


async def main() -> None:
    async with app, app.lock("x", ttl=1) as hold, app.worker():
        jobs = [await add.enqueue(3, 4), await multiply.enqueue(3, 4)]
        print(*[await job.result(20) for job in jobs])
        await asyncio.sleep(1.5)
        hold.check()


asyncio.run(main())
with blocking.Tenure(app) as sync, sync.lock("x") as hold:
    print(hold.is_held)
"""

COMMAND = """
import tests.rig.without_unix
import sys
from tenure.cli.commands import tenure

sys.path.insert(0, "")
tenure()
"""


def python(code: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}",
            *arguments,
        ],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        timeout=50,
        check=False,
    )


def test_everything_can_be_imported(tmp_path: Path):
    result = python(EVERY_MODULE, tmp_path)
    assert (result.returncode, result.stderr) == (0, "")


def test_locks_and_jobs_work_on_sqlite(tmp_path: Path):
    result = python(LOCKS_AND_JOBS, tmp_path)
    assert (result.returncode, result.stdout) == (0, "7 12\nTrue\n"), result.stderr


def test_commands_that_look_at_a_store_work(tmp_path: Path):
    for command in (["migrate"], ["locks", "ls"], ["jobs", "ls"], ["timers", "ls"], ["doctor"]):
        result = python(COMMAND, tmp_path, "--url", "sqlite:///service.db", *command)
        assert result.returncode == 0, result.stderr


def test_a_supervisor_says_that_it_needs_unix_and_what_to_do(tmp_path: Path):
    (tmp_path / "shop.py").write_text(
        'import tenure\napp = tenure.Tenure("sqlite:///service.db")\n'
    )
    result = python(COMMAND, tmp_path, "worker", "shop:app")
    assert result.returncode == 2
    assert "needs Linux, macOS or another Unix" in result.stderr
    assert "app.run_worker()" in result.stderr
    assert "Traceback" not in result.stderr


def test_ping_says_that_it_needs_unix(tmp_path: Path):
    result = python(COMMAND, tmp_path, "ping", "--health", "here")
    assert result.returncode == 1
    assert "Unix" in result.stderr
    assert "Traceback" not in result.stderr
