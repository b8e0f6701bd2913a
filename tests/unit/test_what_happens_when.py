"""docs/what-happens-when.md: each line names tests that exist and quotes what the code says."""

import ast
import logging
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from tenure import errors
from tenure.cli.commands import tenure as cli
from tenure.observe import events

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "what-happens-when.md"
ANYTHING = "\0"
"""Stands for a value in the text of a message."""
FORMAT = re.compile(r"%[-+ #0]*[\d.]*[a-zA-Z]")
LOG_CALLS = {"debug", "info", "warning", "error", "critical"}


class Line(NamedTuple):
    """A line of a table: a part, what Tenure does, what is seen, what to do, and its tests."""

    number: int
    cells: list[str]
    tests: list[str]


class Quote(NamedTuple):
    """What stands in backticks among the things to see, and the level before it."""

    level: str
    text: str


class Message(NamedTuple):
    """A text in the source, and at which levels it is logged or found by `tenure doctor`."""

    text: str
    levels: frozenset[str] = frozenset()


def lines() -> Iterator[Line]:
    for number, line in enumerate(PAGE.read_text("utf-8").splitlines(), 1):
        if line.startswith("| ") and not line.startswith("| part |"):
            shown, _, cited = line.partition("<!-- ")
            cells = [cell.strip() for cell in shown.strip("| ").split(" | ")]
            yield Line(number, cells, cited.partition(" -->")[0].split())


EACH_LINE = pytest.mark.parametrize("line", [*lines()], ids=lambda line: f"line {line.number}")


@cache
def functions_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text("utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in tree.body if isinstance(node, functions)}


@EACH_LINE
def test_each_line_has_four_cells_and_names_tests_that_exist(line: Line):
    assert len(line.cells) == 4
    assert all(line.cells)
    assert line.tests, "no test is named"
    for test in line.tests:
        path, _, name = test.partition("::")
        assert path.startswith("tests/")
        assert name.startswith("test_")
        assert name in functions_of(ROOT / path), test


def quotes(cell: str) -> list[Quote]:
    pairs = re.findall(r"(?:\b(ERROR|WARNING|INFO|error|warning|note) )?`([^`]+)`", cell)
    return [Quote(*pair) for pair in pairs]


@EACH_LINE
def test_quoted_messages_exist_in_the_source(line: Line):
    [_, _, seen, _] = line.cells
    for quote in quotes(seen):
        # Names and commands are looked up by the next tests.
        if not re.fullmatch(r"([A-Z][a-z]+){2,}|tenure .*", quote.text):
            assert is_said(quote), quote


@EACH_LINE
def test_events_and_exceptions_that_are_named_exist(line: Line):
    known_names = {*errors.__all__, *(kind.__name__ for kind in events.Event.__args__)}
    names = re.findall(r"`((?:[A-Z][a-z]+){2,})`", " ".join(line.cells))
    assert set(names) <= known_names


@EACH_LINE
def test_commands_that_are_named_exist(line: Line):
    for words in re.findall(r"`tenure ([^`]+)`", " ".join(line.cells)):
        command: click.Command = cli
        for word in words.split():
            if isinstance(command, click.Group):
                assert word in command.commands, words
                command = command.commands[word]
            elif word.startswith("--"):
                assert any(word in option.opts for option in command.params), words


def is_said(quote: Quote) -> bool:
    """Whether a message has all parts of a quote in this order, and its level if that is known."""
    parts = [re.escape(part.strip()) for part in quote.text.split("...") if part.strip()]
    pattern = re.compile(".*?".join(parts), re.DOTALL)
    fitting = [message for message in messages() if pattern.search(message.text)]
    return any(
        not quote.level or not message.levels or quote.level in message.levels
        for message in fitting
    )


@cache
def messages() -> tuple[Message, ...]:
    collected: list[Message] = []
    for path in (ROOT / "src" / "tenure").rglob("*.py"):
        collected += Reader().read(ast.parse(path.read_text("utf-8")))
    return (
        *collected,
        *(Message(_line_of(kind), levels_of(kind)) for kind in events.Event.__args__),
    )


def _line_of(kind: type) -> str:
    """Return what an event shows in the log, unless its class says otherwise."""
    words = re.sub(r"(?<!^)(?=[A-Z])", " ", kind.__name__).lower()
    return f"{words}: {', '.join(f'{part} {ANYTHING}' for part in kind.__struct_fields__)}"


def levels_of(kind: type) -> frozenset[str]:
    """Return the levels at which an event is logged: a failure has one with and without retry."""
    values = ["x"] * len(kind.__struct_fields__)
    made = [kind(*values), kind(*values[: -len(kind.__struct_defaults__) or None])]
    return frozenset(logging.getLevelName(event.level) for event in made)


class Reader(ast.NodeVisitor):
    """Collects the texts of a module, with the levels of the calls and classes around them."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.levels: frozenset[str] = frozenset()

    def read(self, tree: ast.AST) -> list[Message]:
        self.visit(tree)
        return self.messages

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        kinds = {kind.__name__: kind for kind in events.Event.__args__}
        self._within(node, levels_of(kinds[node.name]) if node.name in kinds else self.levels)

    def visit_Call(self, node: ast.Call) -> None:
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        levels = self.levels
        if name in LOG_CALLS:
            levels = frozenset({name.upper()})
        elif name in ("Finding", "cls") and node.args and isinstance(node.args[0], ast.Constant):
            levels = frozenset({str(node.args[0].value)})
        self._within(node, levels)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pieces = [
            str(value.value) if isinstance(value, ast.Constant) else ANYTHING
            for value in node.values
        ]
        self.messages.append(Message("".join(pieces), self.levels))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.messages.append(Message(FORMAT.sub(ANYTHING, node.value), self.levels))

    def _within(self, node: ast.AST, levels: frozenset[str]) -> None:
        before, self.levels = self.levels, levels
        self.generic_visit(node)
        self.levels = before


@pytest.mark.parametrize(
    "quote",
    [
        Quote("", "the store is on holiday"),
        Quote("ERROR", "the store has failed the call ...: ..."),
        Quote("INFO", "worker process ... was killed by ..."),
        Quote("error", "none is alive, and there are jobs that have not"),
    ],
)
def test_a_message_that_has_changed_is_noticed(quote: Quote):
    assert not is_said(quote)
