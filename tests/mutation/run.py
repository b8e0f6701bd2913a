"""A whole run: update the map from tests to code, then try one mutant after the other."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.mutation.equivalents import Equivalents
from tests.mutation.mutant import Mutant
from tests.mutation.pool import Work, load_packages, pool
from tests.mutation.probes import instrument
from tests.mutation.reach import Reach
from tests.mutation.trial import Limits, Trial
from tests.mutation.verdicts import Ledger, Verdict, rate, survivor
from tests.mutation.workbench import Workbench, compiled_copy, snapshot

__all__ = ["CACHE", "Run"]

CACHE = Path(".cache", "mutation")
"""Where a checkout keeps what is known of its tests, and the verdicts."""

_SAVE_EVERY = 20


class Run:
    """One run on the source as it is when the run begins."""

    def __init__(
        self, checkout: Path, workers: int, limits: Limits, say: Callable[[str], None]
    ) -> None:
        self._workers = workers
        self._limits = limits
        self._say = say
        # A short path: tests put sockets below it.
        self._folder = Path(tempfile.mkdtemp(prefix="mutate-"))
        self.root = self._folder / "root"
        """The checkout as it was at the beginning."""
        snapshot(checkout, self.root)
        self._original = self._folder / "original"
        compiled_copy(self.root, self._original)
        self._reach = Reach(self.root, checkout / CACHE)
        load_packages(self.root)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def measure(self, *, everything: bool = False) -> None:
        """Find out which statements the tests reach, where that is not known."""
        stale = self._reach.stale_files(everything=everything)
        if stale:
            self._say(f"measuring which statements the tests of {len(stale)} files reach")
            self._measure(stale)
            self._reach.save()
        self._check_red()
        self._say(self._reach.summary)

    def _measure(self, files: list[str]) -> None:
        probed = self._folder / "probed"
        probes = instrument(self.root, probed)

        def begin(number: int, stack: ExitStack) -> Work:
            bench = self._bench(number, stack, probed)
            hits = bench.folder / "hits"
            hits.write_bytes(bytes(len(probes)))
            return lambda file: (
                bench.run(bench.order(source=probed, files=(file,), stops=False, hits=hits)).results
            )

        with pool(self._workers, begin) as work:
            for done, (file, results) in enumerate(work(files), 1):
                self._reach.add(file, results, probes)
                seconds = sum(result.seconds for result in results)
                self._say(f"{done}/{len(files)} {file}: {len(results)} tests, {seconds:.1f} s")
                if done % _SAVE_EVERY == 0:
                    self._reach.save()

    def _check_red(self) -> None:
        """Run again, without probes, what failed before."""

        def begin(number: int, stack: ExitStack) -> Work:
            bench = self._bench(number, stack)
            return bench.passes

        if red := self._reach.red_tests:
            self._say(f"{len(red)} tests failed; running them on the source as it is")
            with pool(self._workers, begin) as work:
                for test, is_green in work(red):
                    self._reach.mark(test, is_green=is_green)
            self._reach.save()

    def try_all(
        self, mutants: Iterable[Mutant], count: int, equivalents: Equivalents, ledger: Ledger
    ) -> list[Verdict]:
        """Return verdicts on the first so many mutants; invalid ones do not count among them.

        What the ledger knows is not tried again.
        """
        queue = _Queue(mutants, count, equivalents, ledger)

        def begin(number: int, stack: ExitStack) -> Work:
            return Trial(self._bench(number, stack), self._reach, self._limits).judge

        began = time.monotonic()
        with pool(self._workers, begin) as work:
            for done, (_, verdict) in enumerate(work(queue), 1):
                ledger.add(verdict)
                queue.finish(verdict)
                pace = (time.monotonic() - began) / done
                self._tell(verdict, queue, pace)
        return queue.verdicts

    def _tell(self, verdict: Verdict, queue: _Queue, pace: float) -> None:
        left = (queue.count - queue.done) * pace / 60
        by = f"by {verdict.by}" if verdict.by else verdict.why
        self._say(
            f"{queue.done}/{queue.count} {verdict.outcome} {verdict.id} "
            f"{verdict.file}:{verdict.line} {verdict.place}, {verdict.operator}, "
            f"{verdict.seconds:.0f} s {by[:160]}; "
            f"{rate(queue.verdicts):.0f} % caught, {left:.0f} min left"
        )
        if verdict.outcome == "survived":
            self._say("\n".join(survivor(verdict)))

    def _bench(self, number: int, stack: ExitStack, source: Path | None = None) -> Workbench:
        bench = Workbench(self.root, self._original, self._folder / f"w{number}")
        stack.callback(bench.close)
        bench.open(source)
        return bench


class _Queue:
    """Hands out mutants until enough have a verdict that counts."""

    def __init__(
        self, mutants: Iterable[Mutant], count: int, equivalents: Equivalents, ledger: Ledger
    ) -> None:
        self._waiting = deque(mutants)
        self.count = min(count, len(self._waiting))
        self._equivalents = equivalents
        self._ledger = ledger
        self._under_way = 0
        self.verdicts: list[Verdict] = []

    @property
    def done(self) -> int:
        return sum(verdict.outcome != "invalid" for verdict in self.verdicts)

    def finish(self, verdict: Verdict) -> None:
        self._under_way -= 1
        self.verdicts.append(verdict)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Mutant:
        while self._waiting and self.done + self._under_way < self.count:
            mutant = self._waiting.popleft()
            if reason := self._equivalents.reason(mutant):
                self.verdicts.append(Verdict.of(mutant, "equivalent", why=reason))
            elif verdict := self._ledger.verdicts.get(mutant.id):
                self.verdicts.append(verdict)
            else:
                self._under_way += 1
                return mutant
        raise StopIteration
