"""What the benchmarks share: children, progress, percentiles, tables."""

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
    """Run a module to its end and return what it has printed."""
    return json.loads(finish(start_child(module, *arguments)))


def start_child(
    module: str, *arguments: object, python: str = sys.executable
) -> subprocess.Popen[str]:
    command = [python, "-m", module, *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)


def finish(process: subprocess.Popen[str], told: str = "") -> str:
    said, _ = process.communicate(told, timeout=300)
    assert process.returncode == 0, f"{process.args} ended with {process.returncode}"
    return said


def finish_all(processes: list[subprocess.Popen[str]], told: str) -> list[str]:
    """Tell all of them the same at once, then hear them out."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(told)
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
    """Put the tables between their marks; the words around them stay."""
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
