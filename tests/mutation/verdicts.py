"""The verdict about each mutant: lines of JSON that a run can resume from, and the final report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from tests.mutation.mutant import Mutant

__all__ = ["Ledger", "Outcome", "Verdict", "rate", "report", "survivor", "table"]

Outcome = Literal["caught", "timed out", "survived", "invalid", "equivalent"]

_COLUMNS: tuple[Outcome, ...] = ("caught", "timed out", "survived", "equivalent", "invalid")


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one mutant."""

    id: str
    file: str
    place: str
    line: int
    operator: str
    hunk: tuple[str, ...]
    outcome: Outcome
    why: str = ""
    """The failure that caught it, or why it was not tried."""
    by: str = ""
    """The test that caught it."""
    files: dict[str, int] = {}
    """How many tests of which files did not notice it."""
    ran: int = 0
    left: int = 0
    """How many tests reach it and were not run, because the time was up."""
    unsteady: list[str] = []
    """Tests that failed once and then passed: they do not count."""
    seconds: float = 0.0

    @classmethod
    def of(cls, mutant: Mutant, outcome: Outcome, **facts: Any) -> Verdict:
        """Return a verdict on this mutant."""
        return cls(
            id=mutant.id,
            file=mutant.file,
            place=mutant.place,
            line=mutant.line,
            operator=mutant.operator,
            hunk=mutant.hunk,
            outcome=outcome,
            **facts,
        )

    @property
    def folder(self) -> str:
        return "/".join(self.file.split("/")[2:-1]) or "."

    @property
    def is_tried(self) -> bool:
        return self.outcome in {"caught", "timed out", "survived"}


class Ledger:
    """The verdicts so far, in a file: each is written when it is known."""

    def __init__(self, path: Path, *, resume: bool) -> None:
        self._path = path
        self.verdicts: dict[str, Verdict] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        earlier = _read(path) if resume and path.exists() else []
        path.write_bytes(b"")
        for verdict in earlier:
            self.add(verdict)

    def forget_survivors(self) -> None:
        """Have the survivors tried again."""
        caught = {
            key: verdict for key, verdict in self.verdicts.items() if verdict.outcome != "survived"
        }
        self.verdicts = caught

    def add(self, verdict: Verdict) -> None:
        self.verdicts[verdict.id] = verdict
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(verdict) + b"\n")


def _read(path: Path) -> list[Verdict]:
    whole = path.read_bytes().rpartition(b"\n")[0]  # without the line that a cut left unfinished
    return [msgspec.json.decode(line, type=Verdict) for line in whole.splitlines()]


def rate(verdicts: Iterable[Verdict]) -> float:
    """Return the percentage of tried mutants that a test has caught; 100 if none was tried."""
    outcomes = Counter(verdict.outcome for verdict in verdicts if verdict.is_tried)
    tried = sum(outcomes.values())
    return 100.0 * (tried - outcomes["survived"]) / tried if tried else 100.0


def table(verdicts: list[Verdict]) -> str:
    """Return the counts by folder, and their sum."""
    folders: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        folders.setdefault(verdict.folder, []).append(verdict)
    rows = [*sorted(folders.items()), ("all", verdicts)]
    header = "".join(f"{name:>12}" for name in ("mutants", *_COLUMNS, "rate"))
    return "\n".join([f"{'folder':<22}{header}", *(_row(name, part) for name, part in rows)])


def _row(name: str, verdicts: list[Verdict]) -> str:
    counts = Counter(verdict.outcome for verdict in verdicts)
    numbers = [len(verdicts), *(counts[column] for column in _COLUMNS)]
    percent = f"{rate(verdicts):.0f} %" if any(verdict.is_tried for verdict in verdicts) else "-"
    return f"{name:<22}" + "".join(f"{number:>12}" for number in numbers) + f"{percent:>12}"


def report(verdicts: list[Verdict]) -> Iterator[str]:
    """Yield the lines of the report: the table, then each survivor with the tests that ran."""
    yield table(verdicts)
    survivors = [verdict for verdict in verdicts if verdict.outcome == "survived"]
    for verdict in survivors:
        yield from survivor(verdict)
    unsteady = Counter(test for verdict in verdicts for test in verdict.unsteady)
    for test, times in unsteady.most_common():
        yield f"UNSTEADY: failed once and then passed with the same mutant, {times} times: {test}"


def survivor(verdict: Verdict) -> Iterator[str]:
    """Yield what is known of a survivor; the lines from its place on can go to equivalents.txt."""
    yield f"\nSURVIVED {verdict.id}  line {verdict.line}, {verdict.operator}"
    yield f"{verdict.file}: {verdict.place}"
    yield from verdict.hunk
    if verdict.why:
        yield f"  {verdict.why}"
    left = f", {verdict.left} more reach it and were left out for time" if verdict.left else ""
    most = Counter(verdict.files).most_common(8)
    listed = ", ".join(f"{name} ({count})" for name, count in most)
    yield f"  {verdict.ran} tests passed{left}: {listed or 'none'}"
