"""`tenure worker`: as a program on every store, and what it says when it cannot start."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenure import blocking
from tenure.cli.worker.command import worker
from tenure.cli.worker.reloader import source_files
from tests.cli.conftest import Place, Run
from tests.rig.processes import Child, Fleet
from tests.rig.wait import wait_until

MODULE = """
import asyncio
from tenure import Tenure

app = Tenure(replica_ttl=2)

@app.task
async def double(number: int) -> int:
    return 2 * number

@app.task(queue="slow")
async def stay(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "stayed"

class Nested:
    app = app

class Timed:
    app = Tenure(replica_ttl=2)

@Timed.app.task
async def quick() -> None: ...

@Timed.app.timer(every="1h")
async def sweep() -> None: ...
"""

Write = Callable[[str, str], str]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, namespace: str) -> Write:
    """Write a module of this test's own into the current directory; return its name."""
    monkeypatch.setattr(sys, "path", [*sys.path])

    def write(code: str, name: str = "tasks") -> str:
        folder = tmp_path / namespace
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(code)
        return f"{namespace}.{name}"

    return write


@pytest.fixture
def start(fleet: Fleet, place: Place, module: Write, tmp_path: Path) -> Callable[..., Child]:
    """Start the program, without what `python -m` adds to the path, and wait until it works."""
    name = module(MODULE)

    def start(*options: str, app: str = "app") -> Child:
        worker = fleet.start(
            *("-W", "error", "-P", "-m", "tenure", "worker", f"{name}:{app}", *options),
            env={"TENURE_URL": place.url, "TENURE_NAMESPACE": place.namespace},
            cwd=tmp_path,
        )
        works = ("takes jobs from", "runs the timers")
        wait_until(lambda: any(map(worker.stderr.__contains__, works)) or not worker.running, 20)
        return worker

    return start


def enqueue(place: Place, module: Write, task: str, *arguments: object) -> str:
    """Ask for a job as another process would; return its id."""
    scope: dict[str, object] = {}
    exec(MODULE.replace("Tenure(", f"Tenure({place.url!r}, namespace={place.namespace!r}, "), scope)
    with blocking.Tenure(scope["app"]) as sync:
        return sync.enqueue(scope[task].request(*arguments)).id


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_runs_jobs_until_a_signal(start, place: Place, module: Write, number):
    first = enqueue(place, module, "double", 21)
    worker = start()
    with place.app() as app:
        assert app.job(first).result(timeout=20) == 42
        second = enqueue(place, module, "stay", 0.5)
        wait_until(lambda: app.job(second).state == "running", 20)
        [replica] = app.replicas()  # that of its only child
        assert replica.meta["pid"] != str(worker.pid)
        worker.send_signal(number)
        assert worker.wait() == 0
        assert app.job(second).result(timeout=0) == "stayed"
        assert app.replicas() == []


def test_a_burst_drains_the_queues_and_ends(fleet: Fleet, place: Place, module: Write, tmp_path):
    name = module(MODULE)
    for number in range(3):
        enqueue(place, module, "double", number)
    worker = fleet.start(
        *("-W", "error", "-P", "-m", "tenure", "worker", f"{name}:app", "--burst"),
        env={"TENURE_URL": place.url, "TENURE_NAMESPACE": place.namespace},
        cwd=tmp_path,
    )
    assert worker.wait() == 0
    assert "No job is due any more. Attempts: 3 succeeded." in worker.stderr
    with place.app() as app:
        assert app.replicas() == []


def test_a_burst_that_is_stopped_says_that_jobs_may_be_left(
    fleet: Fleet, place: Place, module: Write, tmp_path
):
    name = module(MODULE)
    long = enqueue(place, module, "stay", 300)
    due = enqueue(place, module, "double", 1)
    worker = fleet.start(
        *("-W", "error", "-P", "-m", "tenure", "worker", f"{name}:app", "--burst"),
        *("--queues", "slow,default", "--concurrency", "1", "--grace", "100ms"),
        env={"TENURE_URL": place.url, "TENURE_NAMESPACE": place.namespace},
        cwd=tmp_path,
    )
    with place.app() as app:
        wait_until(lambda: app.job(long).state == "running", 20)
        worker.terminate()
        assert worker.wait() == 1
        assert app.job(due).state == "waiting"
    line = worker.stderr.splitlines()[-1]
    assert line == "Stopped early: due jobs may be left. Attempts: 1 handed back."


@pytest.mark.parametrize("connect", ["lazy", "eager", None])
def test_a_burst_does_not_wait_for_its_store(
    cli: Run, module: Write, monkeypatch: pytest.MonkeyPatch, connect: str | None
):
    if connect is not None:
        monkeypatch.setenv("TENURE_CONNECT", connect)
    name = module("from tenure import Tenure\napp = Tenure('redis://127.0.0.1:1/0')")
    result = cli("worker", f"{name}:app", "--burst", "--log-level", "error")
    assert result.code == 2
    assert "cannot be reached" in result.err.splitlines()[-1]


def test_it_says_what_it_works_on(start, place: Place):
    worker = start()
    log = worker.stderr
    where = place.url.removeprefix("sqlite:///")
    assert log.splitlines()[0] == f"Worker {worker.pid} on {where}, namespace {place.namespace}"
    assert "takes jobs from default, slow in turn; it knows the tasks double, stay" in log
    worker.terminate()
    assert worker.wait() == 0
    assert "SIGTERM: stopping" in worker.stderr
    assert worker.noise == []


def test_it_serves_only_the_queues_that_are_named(start, place: Place, module: Write):
    start("--queues", "slow", "--concurrency", "3", app="Nested.app")
    quick = enqueue(place, module, "double", 21)
    slow = enqueue(place, module, "stay", 0)
    with place.app() as app:
        assert app.job(slow).result(timeout=20) == "stayed"
        assert app.job(quick).state == "waiting"


def test_queues_of_no_task_are_served_and_told(start, place: Place):
    worker = start("--queues", "ann=1,bob=1,slow:2=1", "--no-timers")
    assert (
        "No task is declared for ann, bob, slow:2. They are served anyway: jobs get there "
        "with task.using(queue=...)." in worker.stderr
    )
    assert "slow:2 is served as a queue of that name. For a weight, write slow=2." in worker.stderr
    assert "bob is served as" not in worker.stderr
    scope: dict[str, Any] = {}
    exec(MODULE.replace("Tenure(", f"Tenure({place.url!r}, namespace={place.namespace!r}, "), scope)
    with blocking.Tenure(scope["app"]) as app:
        job = app.enqueue(scope["double"].using(queue="bob").request(21))
        assert job.result(timeout=20) == 42


def test_a_star_is_no_queue(cli: Run):
    refused = cli("worker", "no_such_module:app", "--queues", "slow,*")
    assert refused.code == 2
    assert "'*' does not mean all queues. Name each queue" in refused.err


def test_queues_with_weights_reach_the_processes(start):
    worker = start("--queues", "slow=3, default")
    assert "takes jobs from slow (weight 3), default (weight 1) in turn" in worker.stderr


@pytest.mark.parametrize(
    ("option", "takes_jobs", "runs_timers"),
    [("--no-timers", True, False), ("--timers-only", False, True), ("--grace=1s", True, True)],
)
def test_jobs_and_timers_of_a_worker(start, option: str, takes_jobs: bool, runs_timers: bool):
    log = start(option, app="Timed.app").stderr
    assert ("takes jobs from default" in log) is takes_jobs
    assert ("runs the timers sweep" in log) is runs_timers


def test_what_does_not_finish_within_the_grace_is_handed_back(start, place: Place, module: Write):
    long = enqueue(place, module, "stay", 300)
    worker = start("--grace", "200ms", "--log-level", "debug")
    with place.app() as app:
        wait_until(lambda: app.job(long).state == "running", 20)
        worker.terminate()
        assert worker.wait() == 0
        job = app.job(long)
        assert (job.state, job.failures, job.losses) == ("waiting", 0, 0)
    assert "SIGTERM: stopping within 200 ms" in worker.stderr
    assert "has stopped; jobs handed back: 1" in worker.stderr


def test_a_second_signal_hands_back_at_once(start, place: Place, module: Write):
    long = enqueue(place, module, "stay", 300)
    worker = start("--grace", "5m")
    with place.app() as app:
        wait_until(lambda: app.job(long).state == "running", 20)
        worker.terminate()
        wait_until(lambda: "SIGTERM: stopping" in worker.stderr, 20)
        worker.send_signal(signal.SIGINT)  # an echo: a shell that sends to the group as well
        time.sleep(0.6)
        assert worker.running
        assert "handing back" not in worker.stderr
        worker.terminate()
        assert worker.wait() == 0
        assert app.job(long).state == "waiting"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}.tasks", "'{}.tasks' names no app. Write MODULE:APP, such as {}.tasks:app."),
        ("{}.tasks:", "Write MODULE:APP, such as {}.tasks:app."),
        ("./{}/tasks.py:app", "Write MODULE:APP, such as {}.tasks:app."),
        ("tasks.py:app", "Write MODULE:APP, such as tasks:app."),
        ("a b:app", "Write MODULE:APP, such as shop.tasks:app."),
        ("{}.other:app", "there is no module '{}.other', neither in "),
        ("nowhere_at_all.tasks:app", "there is no module 'nowhere_at_all', neither in "),
        ("nowhere_at_all:app", "Run this in the folder that has nowhere_at_all.py, or name that"),
        ("{}.tasks:ap", "has no 'ap'. Did you mean {}.tasks:app?"),
        ("{}.tasks:double", "is no tenure.Tenure but a Task. Did you mean {}.tasks:app?"),
        ("{}.bare:x", "is no tenure.Tenure but a str. There is no Tenure in {}.bare."),
    ],
)
def test_what_is_no_app_is_told_in_one_line(
    cli: Run, module: Write, namespace: str, text: str, words: str
):
    module(MODULE)
    module("x = '1'", "bare")
    result = cli("worker", text.replace("{}", namespace))
    assert (result.code, result.out) == (2, "")
    [line] = result.err.splitlines()
    assert line.startswith("Error: ")
    assert words.replace("{}", namespace) in line


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redsi://localhost", "'redsi://localhost' is not a store URL. Use sqlite:///file.db"),
        ("redis://ann:hunter2@localhost:port", "is not a Redis URL that can work"),
        ("postgresql://ann:hunter2@localhost:port/shop", "has a port that is no number"),
    ],
)
@pytest.mark.parametrize("by_environment", [False, True])
def test_a_wrong_url_is_told_in_one_line(
    cli: Run,
    module: Write,
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    words: str,
    by_environment: bool,
):
    monkeypatch.setenv("TENURE_URL", url)
    source = "" if by_environment else repr(url)
    name = module(f"from tenure import Tenure\n\napp = Tenure({source})\n")
    result = cli("worker", f"{name}:app")
    assert (result.code, result.out) == (2, "")
    [line] = result.err.splitlines()
    assert line.startswith("Error: ")
    assert f"tasks.py, line 3: {'TENURE_URL' if by_environment else 'url'}: " in line
    assert words in line
    assert "hunter2" not in line


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import no_such_thing", "ModuleNotFoundError: No module named 'no_such_thing'"),
        ("x = 1 / 0", "ZeroDivisionError: division by zero"),
        ("x = (", "SyntaxError: '(' was never closed"),
        ("raise ValueError('No.')", "ValueError: No."),
    ],
)
def test_a_module_that_fails_shows_where(cli: Run, module: Write, code: str, words: str):
    name = module(f"\n{code}\n")
    result = cli("worker", f"{name}:app")
    assert (result.code, result.out) == (2, "")
    [*_, last] = result.err.splitlines()
    assert last.startswith(f"Error: module {name!r} cannot be imported: {words}")
    assert not last.endswith("..")
    assert "tasks.py" in result.err
    assert "line 2" in result.err
    assert "importlib" not in result.err
    assert "cli/worker.py" not in result.err.replace(os.sep, "/")


def test_modules_that_the_app_names_are_imported(
    fleet: Fleet, module: Write, tmp_path: Path, namespace: str
):
    module(f"from {namespace}.tasks import app\n@app.task\ndef late() -> None: ...", "more")
    name = module(f"from tenure import Tenure\napp = Tenure(imports=['{namespace}.more'])")
    worker = fleet.start(
        *("-m", "tenure", "worker", f"{name}:app"), env={"TENURE_URL": "memory://"}, cwd=tmp_path
    )
    wait_until(lambda: "it knows the tasks late" in worker.stderr, 20)
    assert "has no tasks" not in worker.stderr


def test_a_module_that_the_app_names_and_is_not_there_is_told(cli: Run, module: Write):
    name = module(
        "from tenure import Tenure\napp = Tenure('memory://', imports=['shop_of_nobody'])"
    )
    result = cli("worker", f"{name}:app")
    assert result.code == 2
    assert result.err.startswith("Error: there is no module 'shop_of_nobody', neither in ")


def test_an_app_without_tasks_is_told(fleet: Fleet, module: Write, tmp_path: Path):
    name = module("from tenure import Tenure\napp = Tenure('memory://')")
    worker = fleet.start("-m", "tenure", "worker", f"{name}:app", cwd=tmp_path)
    wait_until(lambda: "The app has no tasks and no timers, so there is" in worker.stderr, 20)


def test_a_store_in_memory_has_no_supervisor(fleet: Fleet, module: Write, tmp_path: Path):
    path = tmp_path / "health"
    worker = fleet.start(
        *("-m", "tenure", "worker", f"{module(MODULE)}:app", "--processes", "4"),
        *("--health", str(path)),
        env={"TENURE_URL": "memory://"},
        cwd=tmp_path,
    )
    wait_until(lambda: "takes jobs from" in worker.stderr, 20)
    assert "So there is no supervisor" in worker.stderr
    assert worker.stderr.count("takes jobs from") == 1
    assert f" {worker.pid} tenure: worker" in worker.stderr
    assert not path.exists()


def test_a_store_that_cannot_be_reached_is_told_in_one_line(
    cli: Run, module: Write, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TENURE_CONNECT", "eager")  # else the worker waits for it
    name = module("from tenure import Tenure\napp = Tenure('redis://:secret@127.0.0.1:1/0')")
    result = cli("worker", f"{name}:app", "--log-level", "error")
    assert result.code == 2
    assert "cannot be reached" in result.err.splitlines()[-1]
    assert "Traceback" not in result.err
    assert "secret" not in result.err


def test_a_health_path_that_is_a_file_is_left_alone(
    cli: Run, module: Write, file_place: Place, tmp_path: Path
):
    taken = tmp_path / "precious"
    taken.write_text("mine")
    name = module(f"from tenure import Tenure\napp = Tenure({file_place.url!r})")
    result = cli("worker", f"{name}:app", "--health", taken, "--log-level", "error")
    assert result.code == 2
    assert "precious is there already and is no socket." in result.err.splitlines()[-1]
    assert taken.read_text() == "mine"


def test_a_health_path_without_its_folder_is_told(
    cli: Run, module: Write, file_place: Place, tmp_path: Path
):
    name = module(f"from tenure import Tenure\napp = Tenure({file_place.url!r})")
    result = cli("worker", f"{name}:app", "--health", tmp_path / "no" / "health")
    assert result.code == 2
    assert result.err.splitlines()[-1].endswith("cannot be made: No such file or directory.")


def test_settings_that_are_wrong_are_told_in_one_line(cli: Run, module: Write):
    name = module("from tenure import Tenure\napp = Tenure('memory://', replica_ttl='soon')")
    result = cli("worker", f"{name}:app")
    assert result.code == 2
    assert "replica_ttl must be seconds" in result.err.splitlines()[-1]


@pytest.mark.parametrize(
    "options",
    [
        ["--queues", " , "],
        ["--queues", "a=,b=1"],
        ["--queues", "a=0"],
        ["--queues", "=3"],
        ["--queues", "a=1.5"],
        ["--timers-only", "--no-timers"],
        ["--timers-only", "--queues", "a"],
        ["--timer-concurrency", "0"],
        ["--concurrency", "0"],
        ["--processes", "0"],
        ["--processes", "257"],
        ["--max-jobs", "0"],
        ["--max-memory", "much"],
        ["--metrics", "here"],
        ["--metrics", "127.0.0.1:65536"],
        ["--metrics", "127.0.0.1:9464", "--burst"],
        ["--max-memory", "0"],
        ["--max-memory", "-1MB"],
        ["--grace", "soon"],
        ["--json"],
    ],
)
def test_senseless_options_are_refused(cli: Run, module: Write, options: list[str]):
    result = cli("worker", f"{module(MODULE)}:app", *options)
    assert result.code == 2
    assert options[0] in result.err + result.out


@pytest.mark.parametrize("text", ["much", "500"])
def test_what_is_no_size_is_told_with_an_example(cli: Run, module: Write, text: str):
    result = cli("worker", f"{module(MODULE)}:app", "--max-memory", text)
    assert (
        f"{text!r} is not the memory of a process. Write 500MB or 1.5GiB, at least 40MB."
        in result.err
    )


def test_its_help_names_every_option(cli: Run):
    result = cli("worker", "--help")
    assert result.code == 0
    shown = [parameter for parameter in worker.params if not getattr(parameter, "hidden", False)]
    options = [
        option for parameter in shown for option in parameter.opts if option.startswith("--")
    ]
    assert {"--processes", "--max-jobs", "--max-memory", "--health"} <= {*options}
    assert [option for option in options if f"  {option}" not in result.out] == []


def test_the_app_says_which_store(cli: Run, module: Write):
    name = f"{module(MODULE)}:app"
    for line in (("--url", "memory://", "worker", name), ("worker", name, "--namespace", "shop")):
        result = cli(*line)
        assert result.code == 2
        assert "TENURE_URL" in result.err
    result = cli("--url", "memory://", "worker", "tasks.py:app")
    assert "TENURE_URL" not in result.err, "first things first"
    assert "such as tasks:app." in result.err


def test_logging_that_the_app_has_set_up_is_left_alone(fleet: Fleet, module: Write, tmp_path: Path):
    code = f"import logging\nlogging.basicConfig(format='mine: %(message)s', level=20)\n{MODULE}"
    worker = fleet.start(
        *("-m", "tenure", "worker", f"{module(code)}:app"),
        env={"TENURE_URL": "memory://"},
        cwd=tmp_path,
    )
    wait_until(lambda: "mine: worker " in worker.stderr, 20)
    assert "jobs of other processes are not in it" in worker.stderr
    worker.terminate()
    assert worker.wait() == 0
    assert worker.stderr.count("takes jobs from") == 1


RELOADED = """
from tenure import Tenure
app = Tenure(replica_ttl=2)

@app.task
async def double(number: int) -> str:
    return "{answer}"
"""


def test_a_change_of_a_file_starts_the_worker_anew(fleet: Fleet, place: Place, tmp_path: Path):
    file = tmp_path / "changing.py"
    file.write_text(RELOADED.format(answer="old"))
    worker = fleet.start(
        *("-W", "error", "-P", "-m", "tenure", "worker", "changing:app", "--reload"),
        env={"TENURE_URL": place.url, "TENURE_NAMESPACE": place.namespace},
        cwd=tmp_path,
    )
    wait_until(lambda: "takes jobs from" in worker.stderr, 30)
    (tmp_path / "changing.py").write_text("def broken(:")
    wait_until(lambda: "The next change restarts it" in worker.stderr, 30)
    assert "changing.py has changed" in worker.stderr
    assert "SIGTERM: stopping within 3 s" in worker.stderr
    assert "SyntaxError" in worker.stderr
    job = enqueue(place, file, "double", 1)
    file.write_text(RELOADED.format(answer="quite new"))
    with place.app() as app:
        assert app.job(job).result(timeout=30) == "quite new"
        worker.terminate()
        assert worker.wait() == 0
        assert app.replicas() == []


def test_reload_is_refused_where_it_makes_no_sense(cli: Run, module: Write, monkeypatch):
    name = module(MODULE)
    refused = cli("worker", f"{name}:app", "--reload", "--burst")
    assert "nothing to reload" in refused.err
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    refused = cli("worker", f"{name}:app", "--reload")
    assert "--reload is for development" in refused.err


def test_a_burst_keeps_to_its_grace(fleet, place, module, tmp_path):
    name = module(MODULE)
    long = enqueue(place, module, "stay", 300)
    worker = fleet.start(
        *("-W", "error", "-P", "-m", "tenure", "worker", f"{name}:app", "--burst"),
        *("--grace", "200ms"),
        env={"TENURE_URL": place.url, "TENURE_NAMESPACE": place.namespace},
        cwd=tmp_path,
    )
    with place.app() as app:
        wait_until(lambda: app.job(long).state == "running", 20)
        worker.terminate()
        worker.wait(15)  # the grace of an app is longer by default
        assert app.job(long).state == "waiting"


def test_only_the_programs_own_files_are_watched(tmp_path: Path):
    for name in ("app.py", "notes.txt", "shop/tasks.py", ".git/hook.py", "node_modules/a.py",
                 "env/lib/library.py", "env/pyvenv.cfg"):  # fmt: skip
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    watched = {Path(file).relative_to(tmp_path).as_posix() for file, *_ in source_files(tmp_path)}
    assert watched == {"app.py", "shop/tasks.py"}
