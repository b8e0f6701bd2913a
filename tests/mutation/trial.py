"""One mutant: is it valid, which tests run against it, and does one of them catch it.

A failure counts if the same test fails again with the mutant, and passes without it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.mutation.mutant import Mutant
from tests.mutation.python import same_code
from tests.mutation.reach import Reach
from tests.mutation.session import TestResult
from tests.mutation.verdicts import Outcome, Verdict
from tests.mutation.workbench import Report, Workbench

__all__ = ["Limits", "Trial"]

_FIRST_FILES = 4
_FIRST_TESTS = 30
_RUNS = 3
"""How often a failing test is run at most, to see it fail twice."""


@dataclass(frozen=True)
class Limits:
    """How much is spent on one mutant."""

    seconds: float = 60.0
    """After which no further test begins."""
    least: float = 15.0
    """Seconds that each test may take at the least, whatever it takes without a mutant."""

    def of(self, seconds: float) -> float:
        """Return how long a test may take that takes so long without a mutant."""
        return max(self.least, min(10 * seconds, seconds + 60))


@dataclass
class _Progress:
    """How far a trial has come."""

    began: float = field(default_factory=time.monotonic)
    passed: list[str] = field(default_factory=list)
    unsteady: list[str] = field(default_factory=list)

    @property
    def spent(self) -> float:
        return time.monotonic() - self.began


class Trial:
    """Tries mutants on one workbench."""

    def __init__(self, bench: Workbench, reach: Reach, limits: Limits) -> None:
        self._bench = bench
        self._reach = reach
        self._limits = limits
        self._green: set[str] = set()
        self._red: set[str] = set()

    def judge(self, mutant: Mutant) -> Verdict:
        """Return what becomes of a mutant."""
        progress = _Progress()
        text = self._bench.text_of(mutant.file)
        mutated = mutant.apply(text)
        if mutant.language == "python":
            if same_code(text, mutated):
                return self._verdict(mutant, progress, "equivalent", why="it is the same bytecode")
            try:
                compile(mutated, mutant.file, "exec")
            except (SyntaxError, ValueError) as error:
                return self._verdict(mutant, progress, "invalid", why=str(error))
        while True:
            verdict = self._tried(mutant, progress)
            if not verdict.by or self._is_green(verdict.by):
                return verdict
            self._red.add(verdict.by)

    def _tried(self, mutant: Mutant, progress: _Progress) -> Verdict:
        done = {*progress.passed, *progress.unsteady, *self._red}
        tests = [test for test in self._reach.tests_for(mutant) if test not in done]
        with self._bench.planted(mutant) as broken:
            if broken:
                return self._verdict(mutant, progress, "invalid", why=broken)
            while batch := self._next_batch(tests, progress):
                report = self._run(mutant, batch, progress)
                if report.invalid:
                    return self._verdict(mutant, progress, "invalid", why=report.invalid)
                progress.passed += [result.test for result in report.results if not result.is_red]
                if (red := report.red()) is not None:
                    if self._fails_again(mutant, red, progress):
                        outcome: Outcome = "timed out" if red.outcome == "timed out" else "caught"
                        return self._verdict(mutant, progress, outcome, by=red.test, why=red.why)
                    progress.unsteady.append(red.test)
                done = {*progress.passed, *progress.unsteady}
                if not report.results and red is None:
                    done |= set(batch)  # none of them exists any more
                tests = [test for test in tests if test not in done]
        why = "" if self._reach.is_reached(mutant) else "no test runs this line"
        return self._verdict(mutant, progress, "survived", why=why, left=len(tests))

    def _next_batch(self, tests: list[str], progress: _Progress) -> list[str]:
        """Return the tests of the next session: a few first, as to load many files takes long."""
        left = self._limits.seconds - progress.spent
        if left <= 0:
            return []
        if progress.passed:
            return self._within(2 * left, tests)
        files: list[str] = []
        batch = []
        for test in tests[:_FIRST_TESTS]:
            file = _file(test)
            if file not in files and len(files) < _FIRST_FILES:
                files.append(file)
            if file in files:
                batch.append(test)
        return batch

    def _within(self, seconds: float, tests: list[str]) -> list[str]:
        """Return as many tests as usually fit into this time, and one more."""
        total = 0.0
        for number, test in enumerate(tests, 1):
            total += self._reach.seconds(test)
            if total > seconds:
                return tests[:number]
        return tests

    def _run(self, mutant: Mutant, tests: list[str], progress: _Progress) -> Report:
        return self._bench.run(
            self._bench.order(
                files=tuple(_files(tests)),
                tests=tuple(test for test in tests if "::" in test),
                collects=True,
                limits={test: self._limits.of(self._reach.seconds(test)) for test in tests},
                seconds=self._limits.seconds - progress.spent,
                module=_module(mutant),
                seed=mutant.id,
            )
        )

    def _fails_again(self, mutant: Mutant, red: TestResult, progress: _Progress) -> bool:
        failures = 1
        for _ in range(_RUNS - 1):
            failures += self._run(mutant, [red.test], progress).red() is not None
            if failures > 1:
                return True
        return False

    def _is_green(self, test: str) -> bool:
        """Return whether a test passes without a mutant, on this machine and now."""
        limit = self._limits.of(self._reach.seconds(test))
        if test not in self._green and self._bench.passes(test, limit):
            self._green.add(test)
        return test in self._green

    def _verdict(
        self, mutant: Mutant, progress: _Progress, outcome: Outcome, **facts: Any
    ) -> Verdict:
        survives = outcome == "survived"
        return Verdict.of(
            mutant,
            outcome,
            files=dict(Counter(map(_file, progress.passed))) if survives else {},
            ran=len(progress.passed),
            unsteady=progress.unsteady,
            seconds=round(progress.spent, 1),
            **facts,
        )


def _module(mutant: Mutant) -> str:
    if mutant.language != "python":
        return ""
    parts = Path(mutant.file).relative_to("src").with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def _file(test: str) -> str:
    return test.partition("::")[0]


def _files(tests: Iterable[str]) -> Iterator[str]:
    yield from dict.fromkeys(_file(test) for test in tests)
