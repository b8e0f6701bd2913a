"""The operators for Python expressions: comparisons, arithmetic, logic, constants, calls.

Each takes a node and yields edits at its position in the text. It makes a change that a person
could make by mistake and that still compiles. What does not compile or import counts as invalid,
not as caught.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from tests.mutation.mutant import Edit, compared_as
from tests.mutation.python_text import Text, is_text, name_of

__all__ = ["ARITHMETIC", "EXPRESSIONS", "Operator", "dropped_arguments", "forced"]

Operator = Callable[[Any, Text], Iterator[Edit]]

# Comparisons, arithmetic, logic.

_COMPARED: dict[type[ast.cmpop], tuple[str, tuple[str, ...]]] = {
    ast.Lt: (r"<", ("<=", ">=")),
    ast.LtE: (r"<=", ("<", ">")),
    ast.Gt: (r">", (">=", "<=")),
    ast.GtE: (r">=", (">", "<")),
    ast.Eq: (r"==", ("!=",)),
    ast.NotEq: (r"!=", ("==",)),
    ast.Is: (r"\bis\b", ("is not",)),
    ast.IsNot: (r"\bis\s+not\b", ("is",)),
    ast.In: (r"\bin\b", ("not in",)),
    ast.NotIn: (r"\bnot\s+in\b", ("in",)),
}
ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: (r"\+", "-"),
    ast.Sub: (r"-", "+"),
    ast.Mult: (r"\*", "/"),
    ast.Div: (r"/", "*"),
    ast.FloorDiv: (r"//", "*"),
    ast.Mod: (r"%", "//"),
    ast.Pow: (r"\*\*", "*"),
    ast.LShift: (r"<<", ">>"),
    ast.RShift: (r">>", "<<"),
    ast.BitAnd: (r"&", "|"),
    ast.BitOr: (r"\|", "&"),
}


def _compare(node: ast.Compare, text: Text) -> Iterator[Edit]:
    operands = [node.left, *node.comparators]
    for operator, (left, right) in zip(node.ops, pairwise(operands), strict=True):
        pattern, others = _COMPARED[type(operator)]
        start, gap = text.between(left, right)
        if match := re.search(pattern, gap):
            for new in others:
                name = compared_as(pattern, new)
                if name == "boundary" and (text.is_tuning(left) or text.is_tuning(right)):
                    continue  # 5.0 s or a bit more: no test has to tell
                yield Edit(start + match.start(), start + match.end(), new, name)


def _arithmetic(node: ast.BinOp, text: Text) -> Iterator[Edit]:
    if any(is_text(side) for side in (node.left, node.right)) or _is_of_classes(node):
        return
    pattern, new = ARITHMETIC.get(type(node.op), ("", ""))
    start, gap = text.between(node.left, node.right)
    if pattern and (match := re.search(pattern, gap)):
        yield Edit(start + match.start(), start + match.end(), new, "arithmetic")


def _logic(node: ast.BoolOp, text: Text) -> Iterator[Edit]:
    word, other, neutral = (
        ("and", "or", "True") if isinstance(node.op, ast.And) else ("or", "and", "False")
    )
    for left, right in pairwise(node.values):
        start, gap = text.between(left, right)
        if match := re.search(rf"\b{word}\b", gap):
            yield Edit(start + match.start(), start + match.end(), other, "logic")
    for value in node.values:
        # A default such as 0 is as false as what would replace it.
        if not (isinstance(value, ast.Constant) and not value.value):
            yield text.replace(value, neutral, "dropped condition")


def _unary(node: ast.UnaryOp, text: Text) -> Iterator[Edit]:
    if isinstance(node.op, ast.Not | ast.USub) and not isinstance(node.operand, ast.Constant):
        yield Edit(text.start(node), text.start(node.operand), "", "negation")


def _constant(node: ast.Constant, text: Text) -> Iterator[Edit]:
    match node.value:
        case bool():
            yield text.replace(node, str(not node.value), "constant")
        case int():
            yield text.replace(node, str(node.value + 1), "constant")
            if node.value <= 1:
                yield text.replace(node, str(node.value - 1), "constant")
        case float() if node.value:  # twice nothing is nothing
            yield text.replace(node, f"{text.of(node)} * 2", "constant")
        case str() if re.fullmatch(r"[a-z]+(_[a-z]+)*", node.value):
            yield text.replace(node, '""', "constant")


def _conditional(node: ast.IfExp, text: Text) -> Iterator[Edit]:
    yield from forced(node.test, text)


def _comprehension(node: ast.comprehension, text: Text) -> Iterator[Edit]:
    for test in node.ifs:
        yield text.replace(test, "True", "dropped condition")


def forced(test: ast.expr, text: Text) -> Iterator[Edit]:
    if isinstance(test, ast.Constant):
        return
    yield text.replace(test, f"not ({text.of(test)})", "negation")
    for value in ("True", "False"):
        yield text.replace(test, value, "forced condition")


# Calls.

_OTHER_NAME = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "sorted": "list",
    "reversed": "list",
}
_OTHER_METHOD = {
    "popleft": "pop",
    "append": "appendleft",
    "appendleft": "append",
    "set": "clear",
    "clear": "set",
    "notify_all": "notify",
    "call_soon_threadsafe": "call_soon",
    "uncancel": "cancelling",
    "add": "discard",
    "discard": "add",
}


def _call(node: ast.Call, text: Text) -> Iterator[Edit]:
    if isinstance(node.func, ast.Name) and node.func.id in _OTHER_NAME:
        new = _OTHER_NAME[node.func.id]
        yield text.replace(node.func, new, "other call")
    if isinstance(node.func, ast.Attribute) and node.func.attr in _OTHER_METHOD:
        new = _OTHER_METHOD[node.func.attr]
        end = text.end(node.func)
        yield Edit(end - len(node.func.attr), end, new, "other call")
    if name_of(node) in {"min", "max"} and len(node.args) == 2 and not node.keywords:
        for argument in node.args:
            yield text.replace(node, f"({text.of(argument)})", "dropped bound")
    if name_of(node) in {"shield", "wait_for"} and node.args:
        yield text.replace(node, text.of(node.args[0]), "dropped guard")
    yield from dropped_arguments(node, text, "dropped argument", keywords=True)


def dropped_arguments(
    node: ast.Call, text: Text, operator: str, *, keywords: bool = False
) -> Iterator[Edit]:
    parts: list[Any] = sorted([*node.args, *node.keywords], key=text.start)
    for number, part in enumerate(parts):
        is_keyword = isinstance(part, ast.keyword)
        if is_keyword != keywords or (is_keyword and not text.may_drop(name_of(node), part.arg)):
            continue
        if number:
            yield Edit(text.end(parts[number - 1]), text.end(part), "", operator)
        else:
            end = text.start(parts[1]) if len(parts) > 1 else text.end(part)
            yield Edit(text.start(part), end, "", operator)


def _subscript(node: ast.Subscript, text: Text) -> Iterator[Edit]:
    if isinstance(node.slice, ast.Constant) and node.slice.value == 0:
        yield text.replace(node.slice, "-1", "order")
    elif isinstance(node.slice, ast.UnaryOp) and text.of(node.slice) == "-1":
        yield text.replace(node.slice, "0", "order")


def _is_of_classes(node: ast.BinOp) -> bool:
    """Return whether it looks like `int | None`."""
    names = [side for side in (node.left, node.right) if isinstance(side, ast.Name | ast.Attribute)]
    last = [name.id if isinstance(name, ast.Name) else name.attr for name in names]
    builtin = {"int", "str", "float", "bytes", "bool", "dict", "list"}
    return isinstance(node.op, ast.BitOr) and any(
        name in builtin or (name[:1].isupper() and not name.isupper()) for name in last
    )


EXPRESSIONS: dict[type[ast.AST], tuple[Operator, ...]] = {
    ast.Compare: (_compare,),
    ast.BinOp: (_arithmetic,),
    ast.BoolOp: (_logic,),
    ast.UnaryOp: (_unary,),
    ast.Constant: (_constant,),
    ast.IfExp: (_conditional,),
    ast.comprehension: (_comprehension,),
    ast.Call: (_call,),
    ast.Subscript: (_subscript,),
}
