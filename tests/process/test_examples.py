"""Every program in examples/ works as documented: on SQLite, without a server."""

import os
import pty
import re
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from tests.rig.wait import wait_until

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, folder: Path, *, within: float = 30, url: str | None = None) -> str:
    """Run an example in an empty folder; any warning is an error, and so is a status but 0."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TENURE_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / name],
        cwd=folder,
        env=environment | ({"TENURE_URL": url} if url else {}),
        capture_output=True,
        encoding="utf-8",
        timeout=within,
        check=False,
    )
    assert done.stderr == ""
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_every_example_has_a_test():
    tested = re.findall(r'run\(\s*"(\w+\.py)"', Path(__file__).read_text("utf-8"))
    assert {path.name for path in EXAMPLES.glob("*.py")} <= set(tested)


def test_without_a_url_the_store_is_a_file_in_the_folder(tmp_path: Path):
    run("lock.py", tmp_path)
    assert (tmp_path / "tenure.db").exists()


@pytest.mark.parametrize("url", [None, "memory://"])
def test_lock(tmp_path: Path, url: str | None):
    out = run("lock.py", tmp_path, url=url)
    charges = re.findall(r"worker (\d) charges, fence (\d+)", out)
    assert [worker for worker, _ in charges] == ["1", "2", "3"]
    fences = [int(fence) for _, fence in charges]
    assert fences == sorted(set(fences))
    assert "try_acquire: None" in out
    assert "'why': 'month end'" in out
    assert "AcquireTimeout: 'invoice:42' was not free within 0.3 s" in out
    assert "never printed" not in out


@pytest.mark.parametrize("url", [None, "memory://"])
def test_jobs(tmp_path: Path, url: str | None):
    out = run("jobs.py", tmp_path, url=url)
    assert "enqueued twice, one job: True" in out
    assert "items packed: 2" in out
    assert "attempts: [(1, 'retry'), (2, 'succeeded')]" in out
    assert "later: succeeded" in out
    assert out.endswith("refused: rejected - Reject: order 9 was never paid\n")


@pytest.mark.parametrize("url", [None, "memory://"])
def test_semaphore(tmp_path: Path, url: str | None):
    out = run("semaphore.py", tmp_path, url=url)
    assert out.count(" runs, ") == 9
    assert out.endswith("never more than 3 at once\n")


@pytest.mark.parametrize("url", [None, "memory://ticks"])
def test_once_per_tick(tmp_path: Path, url: str | None):
    out = run("once_per_tick.py", tmp_path, url=url)
    assert out.count("calculates the penalties") == 1
    # Which replica finds what depends on the machine; that each finds one of these does not.
    outcomes = re.findall(r"replica \d: (\w+)", out)
    assert outcomes.count("done") == 1
    assert sorted(outcomes)[1:] in (
        ["nothing", "nothing"],
        ["nothing", "skipped"],
        ["skipped", "skipped"],
    )


@pytest.mark.parametrize("url", [None, "memory://timers"])
def test_timers(tmp_path: Path, url: str | None):
    out = run("timers.py", tmp_path, url=url)
    ticks = re.findall(r"^replica \d: the tick of (\S+)$", out, re.MULTILINE)
    assert len(ticks) == len(set(ticks)) >= 2
    assert re.search(r"^sweep: every 1 s, next at \d\d:\d\d:\d\d, \d+ run", out, re.MULTILINE)
    assert "while paused: skipped paused\n" in out
    assert "a trigger runs in spite of the pause: succeeded\n" in out
    assert "the job of the schedule: succeeded\n" in out


@pytest.mark.parametrize("url", [None, "memory://"])
def test_fenced_write(tmp_path: Path, url: str | None):
    out = run("fenced_write.py", tmp_path, url=url)
    assert "quick holder writes 120: ok" in out
    assert "slow holder's 150 arrives: refused" in out
    assert out.endswith("balance: 120\n")


def test_the_shop_shows_its_dashboard(tmp_path: Path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TENURE_")}
    shop = subprocess.Popen(
        [sys.executable, "-W", "error", EXAMPLES / "shop", "--port", str(port)],
        cwd=tmp_path,
        env=environment | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
    )

    def is_open() -> bool:
        with suppress(httpx2.HTTPError):
            overview = httpx2.get(f"http://127.0.0.1:{port}/api/overview").json()
            return overview["replicas"]["alive"] == 2 and bool(overview["ticks"])
        return False

    try:
        wait_until(is_open, timeout=30)
        assert "<title>Tenure</title>" in httpx2.get(f"http://127.0.0.1:{port}/locks").text
    finally:
        shop.terminate()
        # Its workers have the same pipe: it ends when all processes have ended.
        out, _ = shop.communicate(timeout=30)
    assert f"The dashboard is at http://127.0.0.1:{port}" in out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(120)
def test_the_tour_keeps_its_promises(tmp_path: Path):
    out = run("tour.py", tmp_path, within=100)
    assert "every promise was kept" in out
    assert "BROKEN" not in out
    assert "\033" not in out  # no colour where there is no terminal
    assert out.count("✓") == 29
    assert re.search(r"jobs of 10 requests with one key +1 ", out)
    assert re.search(r"reports completed +12 ", out)
    assert re.search(r"runs per tick, at most +1 ", out)
    assert not re.search(r"(?<!\d)1 ticks|\d +running", out)
    assert re.search(r"stale writes refused +(\d) of \1 ", out)
    assert max(map(len, out.splitlines())) <= 80
    assert list(tmp_path.iterdir()) == []


def begun(folder: Path, stdout: int, encoding: str = "utf-8") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", EXAMPLES / "tour.py"],
        cwd=folder,
        env={**os.environ, "PYTHONIOENCODING": encoding, "NO_COLOR": ""},
        stdout=stdout,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )


@contextmanager
def served(folder: Path, *, port: int = 0) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the example service; give its first line along."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", EXAMPLES / "reports", "--port", str(port)],
        cwd=folder,
        env={key: value for key, value in os.environ.items() if not key.startswith("TENURE_")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    with process:
        try:
            yield process, process.stdout.readline()
        finally:
            process.kill()


def test_the_service_says_where_to_look_and_what_to_try(tmp_path: Path):
    with served(tmp_path) as (process, greeting):
        url = re.match(r"Reports are served on (http://127\.0\.0\.1:\d+) ", greeting)[1]
        hers = {"Authorization": "Bearer ada-token"}
        with httpx2.Client(base_url=url, headers=hers, timeout=20, trust_env=False) as ada:
            report = {"title": "May", "pages": 1}
            named = {"Prefer": "wait=15", "X-Request-Id": "r-81"}
            done = ada.post("/reports", json=report, headers=named)
            assert done.headers["x-request-id"] == "r-81"
            assert done.json() == report | {"attempt": 1}
            [job] = ada.get("/reports/jobs").json()["jobs"]
            assert job["state"] == "succeeded"
            figures = ada.post("/reports/2025/figures?rows=1", headers={"Prefer": "wait=15"})
            assert figures.text == "month,orders\n2025-01,7\n"
            named["X-Request-Id"] = "r-82"
            late = ada.post("/reports/1999/figures", headers=named)
            assert late.json()["error"]["detail"] == "They begin with the year 2000."
            assert ada.get("/health/live").status_code == 200
            assert ada.get("/health/ready").json()["status"] == "healthy"
            metrics = ada.get("/metrics/").text
            assert 'tenure_jobs_enqueued_total{queue="default",task="build_report"} 1.0' in metrics
            assert ada.get("/reports/jobs", headers={"Authorization": ""}).status_code == 401
            assert "Swagger" in ada.get("/docs").text
            document = ada.get("/openapi.json").json()
            operations = [
                operation for path in document["paths"].values() for operation in path.values()
            ]
            for operation in operations:
                assert "application/problem+json" in operation["responses"]["401"]["content"]

            with served(tmp_path, port=int(url.rpartition(":")[2])) as (second, _):
                taken = second.stderr.read()
                assert re.fullmatch(r"reports: port \d+ is taken\. .* make run PORT=\d+\n", taken)
                assert second.wait(10) == 1

            long = ada.post("/reports", json={"title": "All", "pages": 500}).json()
            with ada.stream("GET", long["links"]["events"]) as events:
                next(events.iter_lines())  # an open stream does not hold up the stop for long
                process.send_signal(signal.SIGINT)
                assert process.wait(20) == 0
        assert process.stderr.read() == ""
        log = process.stdout.read()
    assert "Traceback" not in log
    # One id finds a request, its job and what the handler has logged, and nothing else.
    assert lines_with("r-81", log) == [
        "reports [r-81]: POST /reports",
        f"reports [r-81]: report {job['id']}: attempt 1 has 0 pages",
    ]
    request, failure = lines_with("r-82", log)
    assert request == "reports [r-82]: POST /reports/1999/figures"
    assert re.match(r"tenure \[r-82\]: job .*'?export_figures'?.*No figures", failure)


def lines_with(word: str, log: str) -> list[str]:
    """Return the lines of a log that have a word, without their time and the greeting."""
    lines = [line for line in log.splitlines() if word in line and "curl" not in line]
    return [line.split(" ", 1)[1] for line in lines]


def test_a_worker_of_the_service_stops_on_sigint(tmp_path: Path):
    process = subprocess.Popen(
        [sys.executable, "-W", "error", EXAMPLES / "reports", "worker"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    with process:
        output = ""
        while "takes jobs from" not in output:
            output += process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""
    assert "the timers refresh_rates, send_digest" in output


def running(output: str) -> list[int]:
    """Return which of the processes in the tour's output are still there."""
    pids = [int(pid) for pid in re.findall(r"pid (\d+)", output)]
    assert len(pids) == 5
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@pytest.mark.proof("another tour, of which the gate has two")
def test_a_tour_whose_output_is_closed_ends_quietly(tmp_path: Path):
    with begun(tmp_path, subprocess.PIPE) as process:
        output = ""
        while "work." not in output:  # the first act has begun
            output += process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(20) == 141
    assert running(output) == []


def test_a_tour_that_is_killed_leaves_no_process_behind(tmp_path: Path):
    with begun(tmp_path, subprocess.PIPE) as process:
        output = ""
        while "worker-3" not in output:
            output += process.stdout.readline()
        process.kill()
    wait_until(lambda: not running(output), timeout=20, what="its processes end")


def test_a_tour_reports_a_broken_promise(tmp_path: Path):
    with begun(tmp_path, subprocess.PIPE) as process:
        output = ""
        while "worker-3" not in output:
            output += process.stdout.readline()
        os.kill(int(re.search(r"api-1 .* pid (\d+)", output)[1]), signal.SIGKILL)
        output += process.stdout.read()
        assert process.stderr.read() == ""
        assert process.wait(20) == 1
    assert "BROKEN: " in output
    assert "every promise was kept" not in output
    assert running(output) == []


@pytest.mark.proof("another tour, of which the gate has two")
@pytest.mark.parametrize(("encoding", "bar"), [("utf-8", "░░░"), ("ascii", "...")])
def test_the_tour_in_a_narrow_terminal_until_ctrl_c(tmp_path: Path, encoding: str, bar: str):
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, 30))
    with begun(tmp_path, slave, encoding) as process:
        os.close(slave)
        seen = b""
        while b" prog" not in seen:  # "progress", cut: the first step is running
            seen += os.read(master, 65536)
        process.send_signal(signal.SIGINT)
        with suppress(OSError):  # how Linux says that the other end is closed
            while piece := os.read(master, 65536):
                seen += piece
        assert process.stderr.read() == ""
        assert process.wait(20) == 130
    os.close(master)
    output = seen.decode(encoding)
    moves = re.findall(r"\r\033\[K( [^\r\n]*)(?=\r\033)", output)
    assert all(move.endswith("\033[0m") for move in moves)
    assert {len(re.sub(r"\033\[[\d;]*m", "", move)) for move in moves} == {29}
    assert bar in moves[0]
    assert output.endswith("\n")
    assert running(output) == []
