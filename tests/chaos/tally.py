"""The result of a storm: counters by name, and all violations.

    tally = Tally("redis sentinel")
    tally.add("failovers")
    tally.expect_none("lost", "doubled")
    tally.demand("failovers", 10)
    tally.violate("fence 7 of lock 'a' was given twice")

Tallies of several parts add up with `sum_of`. A part says what it demands, so that a storm in which
nothing happened is no success.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

# The first column of the table, in this order; other names follow as they come.
NAMES = (
    "kills",
    "pauses",
    "terminations",
    "restarts",
    "failovers",
    "proxy faults",
    "connections cut",
    "messages held up",
    "full disks",
    "full servers",
    "memory kills",
    "clock steps ahead",
    "clock steps back",
    "accepted",
    "succeeded",
    "recovered",
    "lost",
    "doubled",
    "invented",
    "ticks",
    "ticks run twice",
    "grants",
    "expiries while held",
    "repeated fences",
    "stale effects accepted",
    "stale writes refused",
    "stale ends refused",
    "repeats refused",
    "stale transactions refused",
    "stale holders",
    "stale holders told",
)


@dataclass
class Tally:
    """The counters and violations of one part of the chaos."""

    part: str
    counts: Counter[str] = field(default_factory=Counter)
    floors: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """What could not be tried on this machine, with the reason."""
    seconds: float = 0.0
    tell: Callable[[str], None] = lambda _: None
    """Where progress is shown."""

    def progress(self, what: str) -> None:
        """Show the progress on the terminal."""
        self.tell(f"{self.part}, {what}")

    def add(self, name: str, number: int = 1) -> None:
        """Count something that happened."""
        self.counts[name] += number

    def violate(self, what: str) -> None:
        """Write down what must not have happened: the run fails."""
        self.violations.append(f"{self.part}: {what}")

    def violate_all(self, violations: Iterable[str]) -> None:
        """Write down what a checker has found."""
        for what in violations:
            self.violate(what)

    def demand(self, name: str, floor: int) -> None:
        """Have the run fail unless this was counted so often."""
        self.floors[name] = max(self.floors[name], floor)

    def expect_none(self, *names: str) -> None:
        """Turn what was counted under these names into violations; a zero is shown as one."""
        for name in names:
            self.counts[name] += 0
            if self.counts[name]:
                self.violate(f"{self.counts[name]} {name}")

    def skip(self, what: str) -> None:
        """Write down what this machine does not permit, and why."""
        self.skipped.append(f"{self.part}: {what}")

    def missed(self) -> list[str]:
        """Return the floors that were not reached: too little happened to show anything."""
        return [
            f"{self.part}: {self.counts[name]} {name}, at least {floor} were demanded"
            for name, floor in self.floors.items()
            if self.counts[name] < floor
        ]

    @property
    def failed(self) -> bool:
        return bool(self.violations or self.missed())

    def line(self) -> str:
        """Return the counters that are not zero in one line, for the terminal."""
        return ", ".join(f"{number:,} {name}" for name, number in self.counts.items() if number)

    def as_json(self) -> dict[str, object]:
        return {
            "part": self.part,
            "seconds": round(self.seconds, 1),
            "counts": dict(self.counts),
            "floors": dict(self.floors),
            "missed": self.missed(),
            "violations": self.violations,
            "skipped": self.skipped,
        }


def sum_of(tallies: Iterable[Tally], part: str = "all") -> Tally:
    """Return all of them as one; floors stay with the parts and are given here by the caller."""
    total = Tally(part)
    for tally in tallies:
        for name, number in tally.counts.items():
            total.counts[name] += number
        total.violations += tally.violations
        total.skipped += tally.skipped
        total.seconds += tally.seconds
    return total


def table(tallies: list[Tally]) -> str:
    """Return the counters of all parts side by side."""
    columns = tallies
    seen = {name for tally in tallies for name in tally.counts}
    names = [name for name in NAMES if name in seen]
    names += sorted(seen - set(names))
    widths = [max(9, len(column.part) + 2) for column in columns]
    lines = [_row("", [column.part for column in columns], widths)]
    for name in names:
        numbers = [
            f"{column.counts[name]:,}" if name in column.counts else "-" for column in columns
        ]
        lines.append(_row(name, numbers, widths))
    lines.append(_row("seconds", [f"{column.seconds:.0f}" for column in columns], widths))
    return "\n".join(lines)


def _row(name: str, cells: list[str], widths: list[int]) -> str:
    return f"{name:<34}" + "".join(f"{c:>{w}}" for c, w in zip(cells, widths, strict=True))


def write_summary(file: Path, tallies: list[Tally]) -> None:
    """Write everything as JSON: the parts, and their sum."""
    parts = [tally.as_json() for tally in tallies]
    file.write_text(json.dumps({"parts": parts, "all": sum_of(tallies).as_json()}, indent=2) + "\n")
