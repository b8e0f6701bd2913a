"""Which test reaches which statement, and how long it takes.

It is measured once, by running every test against a copy of the source with probes, and kept under
`.cache/mutation`. Tests whose files changed are measured again before a run. Statements that
changed since are looked up by their function, then by their file; when too many have changed,
everything is measured again.
"""

from __future__ import annotations

import ast
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import msgspec

from tests.mutation.mutant import Mutant
from tests.mutation.probes import Probe, probes_of
from tests.mutation.session import TestResult

__all__ = ["Reach", "Reached", "test_files"]

# A test of costs notices nearly every change of a store, and says nothing about what it breaks.
_LEFT_OUT = ("planted", "typing", "browser", "cost")
_OWN_TESTS = re.compile(r"test_(mutation|rig)_?\w*\.py$")
_KNOWN_SHARE = 0.9
"""The share of all statements that the record has to know, or it is made anew."""
_MENTION_DEPTH = 4
_NEAR_TESTS = 40
"""How many tests are tried that reach only the neighbours of a mutant, not itself."""

_WORD = re.compile(r"[a-z]{3,}")
_EVERYWHERE = {"src", "tenure", "test", "unit", "contract", "job", "store", "runtime", "the", "and"}

Key = tuple[str, str, str]
"""File, place and text of a probe."""


class Reached(msgspec.Struct, dict=True):
    """What is known of one test."""

    seconds: float
    is_green: bool
    hits: bytes
    """The probes that it reached, by their index in the record: a compressed bit field."""

    @cached_property
    def bits(self) -> int:
        return int.from_bytes(zlib.decompress(self.hits), "little")


class _Record(msgspec.Struct):
    probes: list[Key] = []
    files: dict[str, str] = {}
    """The hash of each test file."""
    tests: dict[str, Reached] = {}


def test_files(root: Path) -> list[str]:
    """Return the files whose tests take part, relative to the root."""
    files = sorted((root / "tests").rglob("test_*.py"))
    names = [path.relative_to(root).as_posix() for path in files]
    return [
        name
        for name in names
        if name.split("/")[1] not in _LEFT_OUT and not _OWN_TESTS.search(name)
    ]


class Reach:
    """The record, and questions about it for the source as it is now."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root = root
        self._path = folder / "reach.msgpack"
        self._record = self._load()
        self._now = probes_of(root)

    def stale_files(self, *, everything: bool = False) -> list[str]:
        """Return the test files to measure; forgets what is known of them and of missing ones."""
        probed = set(self._record.probes)
        share = sum(probe.key in probed for probe in self._now) / max(1, len(self._now))
        if everything or share < _KNOWN_SHARE:
            self._record = _Record(probes=[probe.key for probe in self._now])
        hashes = {file: _hash(self._root / file) for file in test_files(self._root)}
        stale = [file for file, now in hashes.items() if self._record.files.get(file) != now]
        gone = {file for file in self._record.files if file not in hashes}
        self._forget({*stale, *gone})
        return stale

    def add(self, file: str, results: Iterable[TestResult], probes: list[Probe]) -> None:
        """Note what the tests of one file reached, with the probes of the copy they ran on."""
        index = {key: number for number, key in enumerate(self._record.probes)}
        for probe in probes:
            if probe.key not in index:
                index[probe.key] = len(self._record.probes)
                self._record.probes.append(probe.key)
        places = [index[probe.key] for probe in probes]
        for result in results:
            if result.outcome != "skipped":
                hits = sum(1 << places[number] for number in _numbers(result.hits))
                packed = zlib.compress(hits.to_bytes((hits.bit_length() + 7) // 8, "little"))
                self._record.tests[result.test] = Reached(
                    result.seconds, result.outcome == "passed", packed
                )
        self._record.files[file] = _hash(self._root / file)

    def mark(self, test: str, *, is_green: bool) -> None:
        """Note whether a test passes without a mutant."""
        self._record.tests[test].is_green = is_green

    def save(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._path.with_suffix(".part")
        partial.write_bytes(msgspec.msgpack.encode(self._record))
        partial.replace(self._path)

    @property
    def red_tests(self) -> list[str]:
        return [test for test, reached in self._record.tests.items() if not reached.is_green]

    @property
    def summary(self) -> str:
        probed = set(self._record.probes)
        changed = sum(probe.key not in probed for probe in self._now)
        red = self.red_tests
        counts = (
            f"{len(self._record.tests):,} tests, {len(self._now):,} statements, {changed} of them "
            f"changed since; {len(red)} tests fail without a mutant and are left out"
        )
        return "\n  ".join([counts, *red])

    def seconds(self, test: str) -> float:
        reached = self._record.tests.get(test)
        return 1.0 if reached is None else reached.seconds

    def tests_for(self, mutant: Mutant) -> list[str]:
        """Return the tests that reach a mutant, the most promising first."""
        exact, near = self._keys(mutant)
        if self._bits(exact) & self._all_reached:
            return self._tests_at(exact)
        for keys in near:
            if self._bits(keys) & self._all_reached:
                tests = self._tests_at(keys)
                return tests if not exact else tests[:_NEAR_TESTS]
        return []

    def is_reached(self, mutant: Mutant) -> bool:
        """Return whether any test runs the very statement, as far as the record knows."""
        measured = self._keys(mutant)[0] & self._index.keys()
        return not measured or bool(self._bits(measured) & self._all_reached)

    def _keys(self, mutant: Mutant) -> tuple[set[Key], list[set[Key]]]:
        """Return the probes of what runs the mutated text, and the probes near it."""
        in_file = [probe for probe in self._now if probe.file == mutant.file]
        in_place = {probe.key for probe in in_file if probe.place == mutant.place}
        moved = {key for key in self._record.probes if key[1] == mutant.place != "*"}
        near = [in_place, moved, {probe.key for probe in in_file}]
        if mutant.language == "sql":
            return in_place, near[1:]
        if mutant.language == "lua":
            before = [probe for probe in in_file if probe.line <= mutant.line]
            return {max(before, key=lambda probe: probe.line).key} if before else set(), near
        if mutant.edit.statement < 0:
            return self._mentions.of(mutant.file, mutant.line), near
        return {probe.key for probe in in_file if probe.line == mutant.edit.statement}, near

    def _tests_at(self, keys: Iterable[Key]) -> list[str]:
        bits = self._bits(keys)
        reaching = [
            (test, reached)
            for test, reached in self._record.tests.items()
            if reached.is_green and reached.bits & bits
        ]
        return _ranked(reaching, {word for key in keys for word in _words(key[0])})

    def _bits(self, keys: Iterable[Key]) -> int:
        return sum(1 << self._index[key] for key in set(keys) if key in self._index)

    @cached_property
    def _index(self) -> dict[Key, int]:
        return {key: number for number, key in enumerate(self._record.probes)}

    @cached_property
    def _all_reached(self) -> int:
        bits = 0
        for reached in self._record.tests.values():
            bits |= reached.bits
        return bits

    @cached_property
    def _mentions(self) -> _Mentions:
        return _Mentions(self._root, self._now)

    def _load(self) -> _Record:
        try:
            return msgspec.msgpack.decode(self._path.read_bytes(), type=_Record)
        except (OSError, msgspec.MsgspecError):
            return _Record()

    def _forget(self, files: set[str]) -> None:
        for file in files:
            self._record.files.pop(file, None)
        for test in list(self._record.tests):
            if test.partition("::")[0] in files:
                del self._record.tests[test]


class _Mentions:
    """Who uses what a module defines: constants and statements of SQL run where they are named."""

    def __init__(self, root: Path, probes: list[Probe]) -> None:
        self._trees = {
            path.relative_to(root).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
            for path in (root / "src").rglob("*.py")
        }
        self._probes: dict[tuple[str, int], Probe] = {
            (probe.file, probe.line): probe for probe in probes
        }

    def of(self, file: str, line: int) -> set[Key]:
        """Return the probes of all statements that use what is defined on this line."""
        names, keys = self._defined(file, line), set()
        seen: set[str] = set()
        for _ in range(_MENTION_DEPTH):
            more: set[str] = set()
            for probe, defined in self._using(names - seen):
                keys |= {probe.key} if probe is not None else set()
                more |= defined
            seen |= names
            names = more
            if keys or not names - seen:
                break
        return keys

    def _defined(self, file: str, line: int) -> set[str]:
        for node in self._trees[file].body:
            if node.lineno <= line <= (node.end_lineno or 0):
                return set(_bound(node, line))
        return set()

    def _using(self, names: set[str]) -> Iterator[tuple[Probe | None, set[str]]]:
        for file, tree in self._trees.items():
            for node in ast.walk(tree):
                if isinstance(node, ast.stmt) and _mentions(node) & names:
                    probe = self._probes.get((file, node.lineno))
                    is_definition = node in tree.body
                    yield probe, set(_bound(node, node.lineno)) if is_definition else set()


def _bound(node: ast.stmt, line: int) -> Iterator[str]:
    """Yield the names that a definition on this line gives to others."""
    match node:
        case ast.Assign():
            yield from (name.id for target in node.targets for name in ast.walk(target)
                        if isinstance(name, ast.Name))  # fmt: skip
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield node.name
        case ast.ClassDef():
            inner = [
                field for field in node.body if field.lineno <= line <= (field.end_lineno or 0)
            ]
            names = [name for field in inner for name in _bound(field, line)]
            yield from names or [node.name]


def _mentions(node: ast.stmt) -> set[str]:
    """Return the names that a statement itself uses, not the names in its inner statements."""
    words: set[str] = set()
    waiting: list[ast.AST] = [
        child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt)
    ]
    while waiting:
        part = waiting.pop()
        if isinstance(part, ast.Name):
            words.add(part.id)
        elif isinstance(part, ast.Attribute):
            words.add(part.attr)
        elif isinstance(part, ast.keyword) and part.arg:
            words.add(part.arg)
        waiting += [
            child for child in ast.iter_child_nodes(part) if not isinstance(child, ast.stmt)
        ]
    return words


def _ranked(tests: list[tuple[str, Reached]], subject: set[str]) -> list[str]:
    """Order tests: cheap before dear, narrow before broad, one of each kind before the next.

    Tests whose file or name has a word of the mutated file come earlier.
    """

    def rank(item: tuple[str, Reached]) -> float:
        test, reached = item
        near = 1 + 3 * len(subject & _words(test))
        return (reached.seconds + 0.02) * (reached.bits.bit_count() + 100) / near

    turns: Counter[str] = Counter()
    ordered = []
    for test, reached in sorted(tests, key=rank):
        kind = test.partition("[")[0]
        turns[kind] += 1
        ordered.append((rank((test, reached)) * (1 + 0.5 * (turns[kind] - 1)), test))
    return [test for _, test in sorted(ordered)]


def _words(path: str) -> set[str]:
    """Return the words of a path or of a test's id, in the singular."""
    return {word.rstrip("s") for word in _WORD.findall(path)} - _EVERYWHERE


def _numbers(bits: bytes) -> Iterator[int]:
    for position, byte in enumerate(bits):
        if byte:
            yield from (position * 8 + bit for bit in range(8) if byte >> bit & 1)


def _hash(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()[:16]
