"""Parts of a supervised child that only a real process shows: how it starts, dies and is seen."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tenure.core.ids import job_id
from tenure.runtime.supervised.scoreboard import Scoreboard
from tenure.supervisor.child import _state
from tenure.supervisor.spec import ChildSpec, encode_spec
from tests.rig.wait import wait_until

SPEC = ChildSpec(app="shop:app", queues=("a", "b"), concurrency=2, grace=1.5, log_level="INFO")
PLACES = 3
JOBS = [job_id(1_800_000_000_000 + number, 0, "0123456789abcdef" * 2) for number in range(3)]

KILLED = """
import os, signal, sys
from tenure.runtime.supervised.scoreboard import Scoreboard
file, first, second, third = int(sys.argv[1]), *sys.argv[2:]
board = Scoreboard(file, 3)
os.close(file)
board.tick(7.0)
board.end(board.begin(first, 0.0))
board.begin(second, 9.0)
board.begin(third, 0.0)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def file() -> Iterator[int]:
    made = Scoreboard.make_file(PLACES)
    yield made
    os.close(made)


def test_a_board_outlives_the_process_that_wrote_it(file: int):
    command = [sys.executable, "-c", KILLED, str(file), *JOBS]
    died = subprocess.run(command, pass_fds=[file], check=False, timeout=20)
    assert died.returncode == -signal.SIGKILL
    with closing(Scoreboard(file, PLACES)) as board:
        assert sorted(board.started()) == JOBS[1:]
        assert board.deadlines() == {JOBS[1]: 9.0}
        assert (board.ended, board.ticked) == (1, 7.0)


@pytest.mark.parametrize(
    ("code", "status", "message"),
    [
        ("raise SystemExit(7)", 7, ""),
        ("app = 1", 2, "ConfigError: 'shop:app' is no tenure.Tenure"),
        ("import missing_module", 2, "missing_module"),
        ("from tenure import Tenure; app = Tenure('memory://')", 1, "ended with an error"),
    ],
    ids=["exit", "no-app", "import", "no-line"],
)
def test_the_exit_status_of_a_worker_that_cannot_work(
    tmp_path: Path, code: str, status: int, message: str
):
    (tmp_path / "shop.py").write_text(code)
    ended = subprocess.run(
        [sys.executable, "-m", "tenure.supervisor.child_main", encode_spec(SPEC)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == status, ended.stderr
    assert message in ended.stderr


def test_the_state_of_a_process_is_read_whatever_its_name_is():
    code = (
        "import ctypes, time; ctypes.CDLL(None).prctl(15, 'äöüäöüäö'.encode(), 0, 0, 0);"
        "print(flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            assert _state(process.pid) in ("S", "R")
        finally:
            process.kill()
    wait_until(lambda: _state(process.pid) == "X")


def test_a_process_without_stderr_survives_the_call_for_stacks():
    code = (
        "import os, signal; from tenure.supervisor.child import show_stacks_at_signal as show;"
        "show(); os.kill(os.getpid(), signal.SIGUSR2); print('alive')"
    )
    command = f'exec "{sys.executable}" -c "{code}" 2>&-'
    completed = subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, text=True, check=False, env=os.environ
    )
    assert (completed.stdout, completed.returncode) == ("alive\n", 0)
