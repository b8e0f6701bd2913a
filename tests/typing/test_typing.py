"""Types flow from a task to its jobs and results, as mypy --strict and pyright see it."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FILES = ("right.py", "wrong.py")

Complaints = dict[tuple[str, int], str]
"""What a checker says, by file and line."""


def mypy(files: Sequence[Path]) -> Complaints:
    output = run("mypy", "--strict", "--no-pretty", "--hide-error-context", *map(str, files))
    errors = re.findall(r"^(.+?):(\d+): error: (.*)$", output, re.MULTILINE)
    return {(Path(file).name, int(line)): message for file, line, message in errors}


def pyright(files: Sequence[Path]) -> Complaints:
    if shutil.which("node") is None:
        message = "NO NODE FOUND: pyright needs it"
        pytest.fail(message) if os.environ.get("CI") == "true" else pytest.skip(message)
    answer = json.loads(run("pyright", "--outputjson", *map(str, files)))
    assert answer["summary"]["filesAnalyzed"] == len(files)
    return {
        (Path(diagnostic["file"]).name, diagnostic["range"]["start"]["line"] + 1): diagnostic[
            "message"
        ]
        for diagnostic in answer["generalDiagnostics"]
        if diagnostic["severity"] == "error"
    }


def run(module: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        encoding="utf-8",
        cwd=ROOT,
        timeout=280,
        check=False,
    )
    # Both end with 1 if they have complaints; anything else means that they did not run.
    assert done.returncode in (0, 1), done.stderr + done.stdout
    return done.stdout


def marked(file: Path) -> set[tuple[str, int]]:
    lines = file.read_text("utf-8").splitlines()
    return {(file.name, number) for number, line in enumerate(lines, 1) if "# wrong" in line}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("check", [mypy, pyright])
def test_wrong_lines_are_refused_and_no_others(
    check: Callable[[Sequence[Path]], Complaints],
):
    files = [HERE / name for name in FILES]
    expected = set().union(*map(marked, files))
    assert len(expected) > 20
    complaints = check(files)
    assert {where: complaints[where] for where in complaints.keys() - expected} == {}
    assert expected - complaints.keys() == set()
