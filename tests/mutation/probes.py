"""A copy of the source that records which of its statements run, in every process that runs it.

Python: each statement of a function first sets its byte in a file that all processes map into their
memory, so that threads, children and killed processes count as well. The source stays as it is,
only its compiled form differs: line numbers and `inspect` do not change.

Lua and SQL: each block of a script and each function writes a line to the log of its server.

A probe is named after its file, its place and its line of text, not after a number, so that a
record stays useful while the code changes.
"""

from __future__ import annotations

import ast
import importlib.util
import marshal
import re
import shutil
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.mutation import lua, sql
from tests.mutation.mutant import LANGUAGES
from tests.mutation.tokens import sql_tokens
from tests.planted.bug import regions

__all__ = ["HITS_VARIABLE", "Probe", "hits_in_log", "instrument", "probes_of"]

HITS_VARIABLE = "TENURE_TEST_MUTATION_HITS"

_MODULE = "_tenure_hits"
_MODULE_TEXT = f'''\
"""Bytes that all processes share: one is set for each statement that has run."""

import mmap
import os

if path := os.environ.get("{HITS_VARIABLE}"):
    with open(path, "r+b") as file:
        hits = mmap.mmap(file.fileno(), 0)
else:
    hits = bytearray({{size}})
'''
# Once for each call of a script: KEYS is a table that lives as long as the call.
_LUA_PROBE = (
    " if not KEYS.hitNUMBER then KEYS.hitNUMBER = 1 "
    "redis.log(redis.LOG_WARNING, 'tenure-hit NUMBER') end "
)
_SQL_PROBE = " RAISE LOG 'tenure-hit NUMBER'; "
_LOG_LINE = re.compile(rb"tenure-hit (\d+)")


@dataclass(frozen=True)
class Probe:
    """A statement of a function, or a block of a script."""

    file: str
    place: str
    line: int
    """Where it begins, from 1."""
    text: str
    """Its first line; with a number if the place has several like it."""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.file, self.place, self.text


def probes_of(root: Path) -> list[Probe]:
    """Return all probes that the source below `root` can have."""
    probes: list[Probe] = []
    for path in sorted((root / "src").rglob("*")):
        if path.suffix in LANGUAGES:
            file = path.relative_to(root).as_posix()
            probes += _probes_in(file, path.read_text(encoding="utf-8"))
    return probes


def instrument(root: Path, copy: Path) -> list[Probe]:
    """Copy `src` and put probes into the copy; return them in the order of their bytes."""
    shutil.copytree(root / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
    probes = probes_of(root)
    numbers: dict[str, dict[int, int]] = {}
    for number, probe in enumerate(probes):
        numbers.setdefault(probe.file, {})[probe.line] = number
    for file, lines in numbers.items():
        path = copy / Path(file).relative_to("src")
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            _write_compiled(path, _probed_python(text, lines))
        else:
            path.write_text(_probed_script(text, path.suffix, lines), encoding="utf-8")
    (copy / f"{_MODULE}.py").write_text(_MODULE_TEXT.format(size=len(probes)))
    return probes


def hits_in_log(log: bytes) -> set[int]:
    """Return the probes that wrote a line to the log of a server."""
    return {int(number) for number in _LOG_LINE.findall(log)}


def _probes_in(file: str, text: str) -> Iterator[Probe]:
    suffix = Path(file).suffix
    lines = text.splitlines()
    places = [
        (name, *span) for name, spans in regions(text, suffix).items() for span in spans
    ]  # fmt: skip
    seen: Counter[tuple[str, str]] = Counter()
    for line in sorted(set(_probe_lines(text, suffix))):
        inside = [region for region in places if region[1] < line <= region[2]]
        place = min(inside, key=lambda region: (region[2] - region[1], region[0] == "*"))[0]
        words = lines[line - 1].strip()
        seen[place, words] += 1
        count = seen[place, words]
        yield Probe(file, place, line, words if count == 1 else f"{words} #{count}")


def _probe_lines(text: str, suffix: str) -> Iterator[int]:
    if suffix == ".py":
        for body in _function_bodies(ast.parse(text)):
            yield from (statement.lineno for statement in body)
        return
    yield from (line for line, _ in _insertions(text, suffix))


# Python.


def _function_bodies(tree: ast.AST, *, inside: bool = False) -> Iterator[list[ast.stmt]]:
    """Yield every list of statements that runs when a function is called."""
    for field, value in ast.iter_fields(tree):
        if not isinstance(value, list):
            if isinstance(value, ast.AST):
                yield from _function_bodies(value, inside=inside)
            continue
        is_function = isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef) and field == "body"
        is_body = bool(value) and all(isinstance(child, ast.stmt) for child in value)
        within = is_function or (inside and not isinstance(tree, ast.ClassDef))
        if is_body and within:
            yield value
        for child in value:
            if isinstance(child, ast.AST):
                yield from _function_bodies(child, inside=within if is_body else inside)


def _probed_python(text: str, numbers: dict[int, int]) -> ast.Module:
    tree = ast.parse(text)
    for body in list(_function_bodies(tree)):
        probed: list[ast.stmt] = []
        for position, statement in enumerate(body):
            is_docstring = position == 0 and _is_text(statement)
            if not is_docstring:
                probed.append(_hit(statement, numbers[statement.lineno]))
            probed.append(statement)
        body[:] = probed
    start = 1 if tree.body and _is_text(tree.body[0]) else 0
    while start < len(tree.body) and _is_future(tree.body[start]):
        start += 1
    tree.body.insert(start, ast.parse(f"from {_MODULE} import hits as {_MODULE}").body[0])
    return ast.fix_missing_locations(tree)


def _hit(statement: ast.stmt, number: int) -> ast.stmt:
    [hit] = ast.parse(f"{_MODULE}[{number}] = 1").body
    for node in ast.walk(hit):
        ast.copy_location(node, statement)
        if isinstance(node, ast.expr | ast.stmt):
            node.end_lineno, node.end_col_offset = statement.lineno, statement.col_offset
    return hit


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _write_compiled(path: Path, tree: ast.Module) -> None:
    """Write the form that Python loads without a look at the source (PEP 552)."""
    code = compile(tree, str(path), "exec")
    target = Path(importlib.util.cache_from_source(str(path)))
    target.parent.mkdir(exist_ok=True)
    unchecked = (1).to_bytes(4, "little") + bytes(8)
    target.write_bytes(importlib.util.MAGIC_NUMBER + unchecked + marshal.dumps(code))


# Lua and SQL.


def _insertions(text: str, suffix: str) -> Iterator[tuple[int, int]]:
    """Yield the line of each block, and where in the text its probe goes."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def line_of(offset: int) -> int:
        return bisect_right(starts, offset)

    if suffix == ".lua":
        yield 1, 0
        for offset in lua.blocks(text):
            yield line_of(offset), offset
    else:
        for start, end in sql.bodies(text):
            begin = [token for token in sql_tokens(text) if start <= token.start < end]
            word = next((token for token in begin if token.word == "BEGIN"), None)
            if word is not None:
                yield line_of(word.start), word.end


def _probed_script(text: str, suffix: str, numbers: dict[int, int]) -> str:
    for line, offset in sorted(_insertions(text, suffix), key=lambda insertion: -insertion[1]):
        template = _LUA_PROBE if suffix == ".lua" else _SQL_PROBE
        text = text[:offset] + template.replace("NUMBER", str(numbers[line])) + text[offset:]
    return text
