"""`tenure worker --log json`: every line of the supervisor and its children is one object."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.rig.processes import Child, Fleet
from tests.rig.wait import wait_until

APP = """
import logging
import warnings

from tenure import Tenure

app = Tenure("sqlite:///shop.db")
{set_up}

@app.task(retry=0)
def fail() -> None:
    warnings.warn("old", stacklevel=1)
    logging.getLogger("shop").warning("about to fail", extra={{"customer": 7}})
    raise ValueError("x" * 5_000 + "\\nlast line")

@app.timer(every="1s")
async def tick() -> None:
    logging.getLogger("shop").info("y" * 9_000)
"""
ENQUEUE = """
import asyncio, shop

async def main():
    async with shop.app:
        for _ in range(5):
            await shop.fail.enqueue()

asyncio.run(main())
"""


def start(fleet: Fleet, folder: Path, *options: str, set_up: str = "") -> Child:
    (folder / "shop.py").write_text(APP.format(set_up=set_up))
    assert fleet.start("-c", ENQUEUE, cwd=folder, env={"PYTHONPATH": str(folder)}).wait() == 0
    command = ("-m", "tenure", "worker", "shop:app", "--processes", "2", *options)
    return fleet.start(*command, cwd=folder)


def documents(worker: Child) -> list[dict[str, Any]]:
    return [json.loads(line) for line in worker.stderr.splitlines()]


def end_of(worker: Child, enough: str = "last line") -> None:
    wait_until(lambda: worker.stderr.count(enough) >= 5 or not worker.running, 30)
    worker.terminate()
    assert worker.wait(40) == 0, worker.story()


SET_UPS = {
    "none": "",
    "basic": "logging.basicConfig(format='PLAIN %(message)s')",
    # It disables all loggers that exist, and that of Tenure does.
    "dict": "import logging.config; logging.config.dictConfig({'version': 1})",
    "consoles": (
        "import logging.config; logging.config.dictConfig({'version': 1, "
        "'disable_existing_loggers': False, "
        "'handlers': {'console': {'class': 'logging.StreamHandler'}}, 'loggers': {"
        "'shop': {'handlers': ['console'], 'propagate': False}, "
        "'tenure': {'handlers': ['console']}}})"
    ),
    "apart": "logging.getLogger('tenure').propagate = False",
    "unraisable": "Broken = type('Broken', (), {'__del__': lambda self: 1 / 0}); Broken()",
}


@pytest.mark.draw(2)
@pytest.mark.parametrize("set_up", SET_UPS.values(), ids=SET_UPS)
def test_every_line_of_every_process_is_an_object(fleet: Fleet, tmp_path: Path, set_up: str):
    worker = start(fleet, tmp_path, "--log", "json", set_up=set_up)
    end_of(worker)
    lines = documents(worker)
    assert len({line["process"] for line in lines}) == 3
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    assert all(re.search(r"\+00:00$", line["time"]) for line in lines)
    [from_handler, *_] = [line for line in lines if line.get("customer") == 7]
    assert (from_handler["logger"], from_handler["message"]) == ("shop", "about to fail")
    failures = [line for line in lines if line["level"] == "ERROR" and "task" in line]
    assert len(failures) == 5
    assert {line["task"] for line in failures} == {"fail"}
    assert {line["exc"][:9] for line in failures} == {"Traceback"}
    assert {line["exc"][-9:] for line in failures} == {"last line"}
    assert any(line["logger"] == "py.warnings" for line in lines)
    assert any(line["message"].startswith("Worker ") for line in lines)
    assert any(line["message"].startswith("SIGTERM: stopping") for line in lines)


def test_an_app_that_cannot_be_imported_is_logged_in_the_same_form(fleet: Fleet, tmp_path: Path):
    (tmp_path / "broken.py").write_text("raise OSError('no config')")
    worker = fleet.start(*("-m", "tenure", "worker", "broken:app", "--log", "json"), cwd=tmp_path)
    assert worker.wait() == 2
    trace, error = documents(worker)
    assert trace["exc"].rstrip().endswith("OSError: no config")
    assert "cannot be imported" in error["message"]


FAILING = {
    "no app of this name": "nothing = 1",
    "no such folder": "from tenure import Tenure; app = Tenure('sqlite:///nowhere/shop.db')",
    "a wrong setting": "from tenure import Tenure; app = Tenure('memory://', replica_ttl=-1)",
    "it leaves": "raise SystemExit('no license')",
    "only its children fail": """
        import sys, warnings

        from tenure import Tenure

        warnings.warn("old")
        if "supervisor" in sys.orig_argv[2]:
            raise OSError("no config")
        app = Tenure("sqlite:///shop.db")
    """,
}


@pytest.mark.draw(2)
@pytest.mark.parametrize("case", FAILING)
def test_a_start_that_fails_is_logged_in_the_same_form(fleet: Fleet, tmp_path: Path, case: str):
    (tmp_path / "failing.py").write_text(dedent(FAILING[case]))
    worker = fleet.start(*("-m", "tenure", "worker", "failing:app", "--log", "json"), cwd=tmp_path)
    assert worker.wait(40) != 0
    assert {"ERROR", "CRITICAL"} & {line["level"] for line in documents(worker)}


@pytest.mark.draw(1)
@pytest.mark.parametrize("options", [(), ("--log", "text")])
def test_lines_of_text_have_local_time_with_its_zone(
    fleet: Fleet, tmp_path: Path, options: tuple[str, ...]
):
    worker = start(fleet, tmp_path, *options)
    end_of(worker)
    instant = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d"
    assert re.search(
        rf"^{instant} INFO +\d+ tenure: worker \w+ takes jobs", worker.stderr, re.MULTILINE
    )
    assert re.search(rf"^{instant} WARNING +\d+ shop: about to fail$", worker.stderr, re.MULTILINE)


def test_an_app_that_logs_by_itself_is_left_alone_without_the_option(fleet: Fleet, tmp_path: Path):
    set_up = "logging.basicConfig(format='PLAIN %(message)s')"
    worker = start(fleet, tmp_path, set_up=set_up)
    end_of(worker)
    assert "PLAIN about to fail" in worker.stderr


WRITES = """
import logging, sys
from tenure.supervisor.log_setup import set_up_logging
set_up_logging("json", None)
for _ in range(60):
    logging.getLogger("shop").info(sys.argv[1] * 9_000)
"""


@pytest.mark.parametrize("is_blocking", [True, False])
def test_lines_stay_whole_while_the_reader_of_stderr_is_slow(is_blocking: bool):
    """A pipe that is full takes a line in parts, and a non-blocking one refuses what is left."""
    reader, writer = os.pipe()
    os.set_blocking(writer, is_blocking)
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITES, letter], stderr=writer) for letter in "abc"
    ]
    os.close(writer)
    read = b""
    while part := os.read(reader, 4096):
        read += part
        time.sleep(0.0002)
    os.close(reader)
    assert [process.wait(60) for process in writers] == [0, 0, 0]
    texts = [json.loads(line)["message"] for line in read.splitlines()]
    assert sorted(text[:1] for text in texts) == ["a"] * 60 + ["b"] * 60 + ["c"] * 60
    assert {len(text) for text in texts} == {9_000}


CPU_APP = """
import logging
import os
import warnings

from tenure import Tenure

logging.basicConfig(format="PLAIN %(message)s", level="ERROR", force=True)
app = Tenure("sqlite:///shop.db")

@app.task(executor="process", retry=0)
def draw() -> None:
    warnings.warn("old", stacklevel=1)
    logging.getLogger("shop").info("drawing", extra={"customer": 7})
    logging.getLogger("shop").debug("not asked for")
"""
CPU_ENQUEUE = """
import asyncio, draws

async def main():
    async with draws.app:
        await draws.draw.using(headers={"x-request-id": "r-81"}).enqueue()

asyncio.run(main())
"""
RUNS = {"supervised": ("--processes", "2"), "in this process": ("--burst",)}


def run_drawing(fleet: Fleet, folder: Path, *options: str) -> Child:
    """Run a worker until it has run the job; with --burst it ends by itself."""
    (folder / "draws.py").write_text(CPU_APP)
    environment = {"PYTHONPATH": str(folder)}
    assert fleet.start("-c", CPU_ENQUEUE, cwd=folder, env=environment).wait() == 0
    worker = fleet.start("-m", "tenure", "worker", "draws:app", *options, cwd=folder)
    if "--burst" not in options:
        wait_until(lambda: "drawing" in worker.stderr or not worker.running, 30)
        worker.terminate()
    assert worker.wait(40) == 0, worker.story()
    return worker


@pytest.mark.draw(1)
@pytest.mark.parametrize("options", RUNS.values(), ids=RUNS)
def test_a_handler_in_a_child_process_logs_objects_with_the_fields_of_its_job(
    fleet: Fleet, tmp_path: Path, options: tuple[str, ...]
):
    worker = run_drawing(fleet, tmp_path, "--log", "json", *options)
    lines = documents(worker)
    [drawing] = [line for line in lines if line["message"] == "drawing"]
    assert (drawing["logger"], drawing["level"], drawing["customer"]) == ("shop", "INFO", 7)
    fields = [drawing[name] for name in ("task", "queue", "attempt", "request_id")]
    assert fields == ["draw", "default", 1, "r-81"]
    assert (len(drawing["job"]), len(drawing["replica"])) == (36, 32)
    own = [line for line in lines if line["process"] == drawing["process"]]
    assert {line["logger"] for line in own} == {"shop", "py.warnings"}


def test_a_handler_in_a_child_process_logs_lines_of_text_at_the_level_of_the_worker(
    fleet: Fleet, tmp_path: Path
):
    worker = run_drawing(fleet, tmp_path, "--log", "text", "--log-level", "debug", "--burst")
    assert re.search(r"^\d{4}-\S+ \S+ INFO +\d+ shop: drawing$", worker.stderr, re.MULTILINE)
    assert re.search(r" DEBUG +\d+ shop: not asked for$", worker.stderr, re.MULTILINE)
    assert "PLAIN" not in worker.stderr
