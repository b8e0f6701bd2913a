"""Splits Lua and SQL into tokens: just enough to change an operator, a condition, a statement."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

__all__ = ["Token", "Tokens", "lua_tokens", "sql_tokens"]

_LUA = re.compile(
    r"""
      (?P<comment>--\[\[.*?\]\]|--[^\n]*)
    | (?P<text>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")
    | (?P<number>0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    | (?P<name>[A-Za-z_]\w*)
    | (?P<sign>\.\.\.|\.\.|==|~=|<=|>=|[-+*/%^\#<>=(){}\[\],;:.])
    """,
    re.VERBOSE | re.DOTALL,
)
_SQL = re.compile(
    r"""
      (?P<comment>--[^\n]*|/\*.*?\*/)
    | (?P<text>'(?:''|[^'])*'|"[^"]*")
    | (?P<number>\d+(?:\.\d+)?)
    | (?P<name>(?:[:$]|\b)[A-Za-z_]\w*|\{[^}]*\}|\?|\$\d+)
    | (?P<sign>\$\$|:=|::|<=|>=|<>|!=|\|\||->>?|&&|[-+*/%^\#<>=(){}\[\],;.~@|&!])
    """,
    re.VERBOSE | re.DOTALL,
)
_OPEN, _CLOSE = set("([{"), set(")]}")


@dataclass(frozen=True)
class Token:
    """A word of the text."""

    kind: str
    text: str
    start: int
    end: int
    depth: int
    """How many brackets are open around it; a bracket counts as inside itself."""
    is_first: bool
    """Whether it is the first on its line."""

    @property
    def word(self) -> str:
        """The text in capitals if it is a name, for languages that ignore the case."""
        return self.text.upper() if self.kind == "name" else self.text

    @property
    def is_value(self) -> bool:
        """Whether an expression can end with it: a sign that follows stands between two values."""
        return self.kind in {"name", "number", "text"} or self.text in _CLOSE


@dataclass
class Tokens(Sequence[Token]):
    """The tokens of a text, without comments."""

    text: str
    items: list[Token] = field(default_factory=list)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)

    def closing(self, index: int) -> int:
        """Return the index of the bracket that closes the one at `index`."""
        depth = self.items[index].depth
        for later in range(index + 1, len(self.items)):
            token = self.items[later]
            if token.text in _CLOSE and token.depth == depth:
                return later
        return len(self.items) - 1

    def until(self, index: int, stops: set[str], depth: int) -> int:
        """Return the index of the first stop word from `index` on that is not deeper in brackets.

        The end of the surrounding bracket stops it too.
        """
        for later in range(index, len(self.items)):
            token = self.items[later]
            if token.depth < depth or (token.text in _CLOSE and token.depth == depth):
                return later
            if token.depth == depth and token.word in stops:
                return later
        return len(self.items)

    def arguments(self, index: int) -> list[tuple[int, int]]:
        """Return where in the text each argument is of a call whose bracket is at `index`."""
        close = self.closing(index)
        depth = self.items[index].depth
        commas = [
            at
            for at in range(index + 1, close)
            if self.items[at].text == "," and self.items[at].depth == depth
        ]
        edges = [index, *commas, close]
        return [
            (self.items[first + 1].start, self.items[second - 1].end)
            for first, second in pairwise(edges)
            if second > first + 1
        ]


def lua_tokens(text: str) -> Tokens:
    return Tokens(text, list(_tokens(_LUA, text)))


def sql_tokens(text: str) -> Tokens:
    return Tokens(text, list(_tokens(_SQL, text)))


def _tokens(pattern: re.Pattern[str], text: str) -> Iterator[Token]:
    depth, last_line = 0, -1
    for match in pattern.finditer(text):
        kind = match.lastgroup or ""
        if kind == "comment":
            continue
        word = match[0]
        if kind == "sign" and word in _OPEN:
            depth += 1
        line = text.count("\n", 0, match.start())
        yield Token(kind, word, match.start(), match.end(), depth, line != last_line)
        last_line = line
        if kind == "sign" and word in _CLOSE:
            depth -= 1
