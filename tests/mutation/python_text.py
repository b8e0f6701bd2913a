"""The text of a Python module, addressed by its nodes, and edits of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from tests.mutation.mutant import Edit

__all__ = ["Text", "is_text", "name_of"]

# Arguments whose absence changes nothing that a test should have to see.
_PLAIN_KEYWORDS = {"strict", "name", "encoding", "usedforsecurity", "daemon", "exc_info"}


class Text:
    """The text of a module, addressed by nodes.

    `optional` knows of each function and class of the project which arguments have a default;
    `tuning` are the constants that bound what is measured, such as seconds.
    """

    def __init__(self, text: str, optional: Mapping[str, set[str]], tuning: set[str]) -> None:
        self.text = text
        self._optional = optional
        self._tuning = tuning
        self._lines = text.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def start(self, node: Any) -> int:
        return self._offset(node.lineno, node.col_offset)

    def end(self, node: Any) -> int:
        return self._offset(node.end_lineno, node.end_col_offset)

    def of(self, node: Any) -> str:
        return self.text[self.start(node) : self.end(node)]

    def between(self, before: Any, after: Any) -> tuple[int, str]:
        start = self.end(before)
        return start, self.text[start : self.start(after)]

    def indent(self, node: Any) -> str:
        line: str = self._lines[node.lineno - 1]
        return line[: len(line) - len(line.lstrip())]

    def inside_quotes(self, node: Any) -> tuple[int, str]:
        """Return where the text of a literal begins, and that text; nothing if it is in parts."""
        literal = self.of(node)
        if literal_parts := re.fullmatch(r'([rf]{0,2})("""|"|\')(.*)\2', literal, re.DOTALL):
            quote, inside = literal_parts[2], literal_parts[3]
            if quote not in inside and "\\" not in inside:
                return self.start(node) + literal_parts.start(3), inside
        return self.start(node), ""

    def is_tuning(self, node: ast.AST) -> bool:
        """Return whether a side of a comparison is such a bound."""
        return any(
            isinstance(part, ast.Name) and part.id in self._tuning for part in ast.walk(node)
        )

    def may_drop(self, function: str, argument: str | None) -> bool:
        """Return whether a call can do without a named argument, and is another one then."""
        if argument is None or argument in _PLAIN_KEYWORDS:
            return False
        return argument in self._optional.get(function, {argument})

    def replace(self, node: Any, new: str, operator: str) -> Edit:
        return Edit(self.start(node), self.end(node), new, operator)

    def _offset(self, line: int, column: int) -> int:
        # Columns of ast count bytes.
        text = self._lines[line - 1] if line <= len(self._lines) else ""
        if text.isascii():
            return self._starts[line - 1] + column
        return self._starts[line - 1] + len(text.encode()[:column].decode())


def name_of(node: ast.AST) -> str:
    """Return the last name of what a call calls."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name):
            return node.func.id
        if isinstance(node.func, ast.Attribute):
            return node.func.attr
    return ""


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
