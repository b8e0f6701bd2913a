"""All mutants of the source, filters, and the draw of a sample by a seed.

Each mutant gets a number from the seed and its id, and the smallest numbers are drawn.
So a mutant stays in the sample of a seed while the code elsewhere changes, and a run that was cut
off can go on after a commit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path

from tests.mutation import lua, python, sql
from tests.mutation.mutant import LANGUAGES, Edit, Mutant, Source

__all__ = ["SUBJECTS", "Filter", "all_mutants", "drawn"]

SUBJECTS = ("core", "runtime", "http", "supervisor", "blocking", "stores")
"""The packages of `src/tenure` that are mutated unless a path is given."""

_REPLACED = re.compile(r"^CREATE OR REPLACE FUNCTION ([\w.]+)", re.MULTILINE)


@dataclass(frozen=True)
class Filter:
    """What a run is limited to; empty means everything."""

    paths: tuple[str, ...] = ()
    """Files or folders below the root, or shell patterns of them."""
    places: tuple[str, ...] = ()
    """Shell patterns of functions, such as `Keeper.*`."""
    languages: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()

    def takes_file(self, file: str) -> bool:
        if not self.paths:
            return file.startswith(tuple(f"src/tenure/{name}/" for name in SUBJECTS))
        return any(
            file == path or file.startswith(path.rstrip("/") + "/") or fnmatch(file, path)
            for path in self.paths
        )

    def takes(self, mutant: Mutant) -> bool:
        return (
            (not self.languages or mutant.language in self.languages)
            and (not self.operators or mutant.operator in self.operators)
            and (not self.places or any(fnmatch(mutant.place, pattern) for pattern in self.places))
        )


def all_mutants(root: Path, selection: Filter = Filter()) -> list[Mutant]:  # noqa: B008
    """Return every mutant of the source below `root`, each once."""
    texts = {
        path.relative_to(root).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted((root / "src").rglob("*"))
        if path.suffix in LANGUAGES
    }
    modules = [text for file, text in texts.items() if file.endswith(".py")]
    optional, tuning = python.optional_arguments(modules), python.tuning_constants(modules)
    replaced = {name for text in texts.values() for name in _REPLACED.findall(text)}
    mutants: dict[str, Mutant] = {}
    for file, text in texts.items():
        if selection.takes_file(file):
            for edit in _edits(file, text, optional, tuning):
                if text[edit.start : edit.end] == edit.new:
                    continue
                mutant = Source.of(file, text).mutant(edit)
                if selection.takes(mutant) and not _never_runs(mutant, text, replaced):
                    mutants.setdefault(mutant.id, mutant)
    return list(mutants.values())


def _edits(
    file: str, text: str, optional: Mapping[str, set[str]], tuning: set[str]
) -> Iterator[Edit]:
    match Path(file).suffix:
        case ".py":
            yield from python.edits(text, optional, tuning)
        case ".lua":
            yield from lua.edits(text)
        case ".sql":
            yield from sql.file_edits(text)


def _never_runs(mutant: Mutant, text: str, replaced: set[str]) -> bool:
    """Return whether a later file of SQL replaces the function before it is ever called."""
    return mutant.place in replaced and f"CREATE FUNCTION {mutant.place}(" in text


def drawn(mutants: Iterable[Mutant], seed: int) -> list[Mutant]:
    """Return the mutants in the order of the draw: a sample is the beginning of the list.

    Each mutant is as likely as any other, so the rate of a sample estimates that of all mutants.
    """
    return sorted(mutants, key=lambda mutant: sha256(f"{seed} {mutant.id}".encode()).digest())
