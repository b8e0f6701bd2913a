"""Shared by the benchmarks: child processes, progress, percentiles, tables."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

Table = list[list[str]]


def child(module: str, *arguments: object) -> Any:
    """Run a module to its end and return the JSON that it prints."""
    return json.loads(finish(start_child(module, *arguments)))


def start_child(
    module: str, *arguments: object, python: str = sys.executable
) -> subprocess.Popen[str]:
    command = [python, "-m", module, *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)


def finish(process: subprocess.Popen[str], text: str = "") -> str:
    output, _ = process.communicate(text, timeout=300)
    assert process.returncode == 0, f"{process.args} ended with {process.returncode}"
    return output


def finish_all(processes: list[subprocess.Popen[str]], text: str) -> list[str]:
    """Send the same text to all processes at once, then return the output of each."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(text)
        process.stdin.flush()
    return [finish(process) for process in processes]


def percentile(values: list[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part / 100))] if ordered else 0.0


def note(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def as_markdown(table: Table) -> str:
    head, *rows = table
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def write(sections: dict[str, str]) -> None:
    """Put the tables between their marks; the text around them stays."""
    path = ROOT / "docs" / "benchmarks.md"
    text = path.read_text(encoding="utf-8")
    for name, body in sections.items():
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        assert begin in text, f"{path.name} has no place for {name}"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n\n{body}\n\n{end}{after}"
    path.write_text(text, encoding="utf-8")


def machine(rounds: str) -> str:
    day = time.strftime("%Y-%m-%d")
    return (
        f"{day}, {os.cpu_count()} cores, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}; {rounds}"
    )
