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

from tests.mutation.mutant import Edit
from tests.mutation.python_text import Text, is_text, name_of

__all__ = ["ARITHMETIC", "EXPRESSIONS", "Operator", "dropped_arguments", "forced"]

Operator = Callable[[Any, Text], Iterator[Edit]]

# Comparisons, arithmetic, logic.

_COMPARED: dict[type[ast.cmpop], tuple[str, tuple[tuple[str, float], ...]]] = {
    ast.Lt: (r"<", (("<=", 3.0), (">=", 1.0))),
    ast.LtE: (r"<=", (("<", 3.0), (">", 1.0))),
    ast.Gt: (r">", ((">=", 3.0), ("<=", 1.0))),
    ast.GtE: (r">=", ((">", 3.0), ("<", 1.0))),
    ast.Eq: (r"==", (("!=", 1.0),)),
    ast.NotEq: (r"!=", (("==", 1.0),)),
    ast.Is: (r"\bis\b", (("is not", 1.0),)),
    ast.IsNot: (r"\bis\s+not\b", (("is", 1.0),)),
    ast.In: (r"\bin\b", (("not in", 1.0),)),
    ast.NotIn: (r"\bnot\s+in\b", (("in", 1.0),)),
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
        if found := re.search(pattern, gap):
            for new, weight in others:
                name = "boundary" if weight > 1 else "comparison"
                if name == "boundary" and (text.is_tuning(left) or text.is_tuning(right)):
                    continue  # 5.0 s or a bit more: no test has to tell
                yield Edit(start + found.start(), start + found.end(), new, name, weight)


def _arithmetic(node: ast.BinOp, text: Text) -> Iterator[Edit]:
    if any(is_text(side) for side in (node.left, node.right)) or _is_of_classes(node):
        return
    pattern, new = ARITHMETIC.get(type(node.op), ("", ""))
    start, gap = text.between(node.left, node.right)
    if pattern and (found := re.search(pattern, gap)):
        yield Edit(start + found.start(), start + found.end(), new, "arithmetic")


def _logic(node: ast.BoolOp, text: Text) -> Iterator[Edit]:
    word, other, neutral = (
        ("and", "or", "True") if isinstance(node.op, ast.And) else ("or", "and", "False")
    )
    for left, right in pairwise(node.values):
        start, gap = text.between(left, right)
        if found := re.search(rf"\b{word}\b", gap):
            yield Edit(start + found.start(), start + found.end(), other, "logic")
    for value in node.values:
        # A default such as 0 is as false as what would replace it.
        if not (isinstance(value, ast.Constant) and not value.value):
            yield text.replace(value, neutral, "dropped condition", 1.5)


def _unary(node: ast.UnaryOp, text: Text) -> Iterator[Edit]:
    if isinstance(node.op, ast.Not | ast.USub) and not isinstance(node.operand, ast.Constant):
        yield Edit(text.start(node), text.start(node.operand), "", "negation")


def _constant(node: ast.Constant, text: Text) -> Iterator[Edit]:
    match node.value:
        case bool():
            yield text.replace(node, str(not node.value), "constant")
        case int():
            yield text.replace(node, str(node.value + 1), "constant", 0.6)
            if node.value <= 1:
                yield text.replace(node, str(node.value - 1), "constant", 0.6)
        case float() if node.value:  # twice nothing is nothing
            yield text.replace(node, f"{text.of(node)} * 2", "constant", 0.3)
        case str() if re.fullmatch(r"[a-z]+(_[a-z]+)*", node.value):
            yield text.replace(node, '""', "constant", 0.2)


def _conditional(node: ast.IfExp, text: Text) -> Iterator[Edit]:
    yield from forced(node.test, text, 0.5)


def _comprehension(node: ast.comprehension, text: Text) -> Iterator[Edit]:
    for test in node.ifs:
        yield text.replace(test, "True", "dropped condition", 1.5)


def forced(test: ast.expr, text: Text, weight: float) -> Iterator[Edit]:
    if isinstance(test, ast.Constant):
        return
    yield text.replace(test, f"not ({text.of(test)})", "negation", weight)
    for value in ("True", "False"):
        yield text.replace(test, value, "forced condition", weight)


# Calls.

_OTHER_NAME = {
    "min": ("max", 2.0),
    "max": ("min", 2.0),
    "any": ("all", 1.0),
    "all": ("any", 1.0),
    "sorted": ("list", 1.0),
    "reversed": ("list", 1.0),
}
_OTHER_METHOD = {
    "popleft": ("pop", 1.5),
    "append": ("appendleft", 0.3),
    "appendleft": ("append", 1.5),
    "set": ("clear", 0.3),
    "clear": ("set", 0.3),
    "notify_all": ("notify", 1.5),
    "call_soon_threadsafe": ("call_soon", 1.0),
    "uncancel": ("cancelling", 2.0),
    "add": ("discard", 0.5),
    "discard": ("add", 1.0),
}


def _call(node: ast.Call, text: Text) -> Iterator[Edit]:
    if isinstance(node.func, ast.Name) and node.func.id in _OTHER_NAME:
        new, weight = _OTHER_NAME[node.func.id]
        yield text.replace(node.func, new, "other call", weight)
    if isinstance(node.func, ast.Attribute) and node.func.attr in _OTHER_METHOD:
        new, weight = _OTHER_METHOD[node.func.attr]
        end = text.end(node.func)
        yield Edit(end - len(node.func.attr), end, new, "other call", weight)
    if name_of(node) in {"min", "max"} and len(node.args) == 2 and not node.keywords:
        for argument in node.args:
            yield text.replace(node, f"({text.of(argument)})", "dropped bound", 2.0)
    if name_of(node) in {"shield", "wait_for"} and node.args:
        yield text.replace(node, text.of(node.args[0]), "dropped guard", 2.0)
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
            yield Edit(text.end(parts[number - 1]), text.end(part), "", operator, 0.7)
        else:
            end = text.start(parts[1]) if len(parts) > 1 else text.end(part)
            yield Edit(text.start(part), end, "", operator, 0.7)


def _subscript(node: ast.Subscript, text: Text) -> Iterator[Edit]:
    if isinstance(node.slice, ast.Constant) and node.slice.value == 0:
        yield text.replace(node.slice, "-1", "order", 1.0)
    elif isinstance(node.slice, ast.UnaryOp) and text.of(node.slice) == "-1":
        yield text.replace(node.slice, "0", "order", 1.0)


def _is_of_classes(node: ast.BinOp) -> bool:
    """Return whether it looks like `int | None`."""
    names = [side for side in (node.left, node.right) if isinstance(side, ast.Name | ast.Attribute)]
    last = [name.id if isinstance(name, ast.Name) else name.attr for name in names]
    known = {"int", "str", "float", "bytes", "bool", "dict", "list"}
    return isinstance(node.op, ast.BitOr) and any(
        name in known or (name[:1].isupper() and not name.isupper()) for name in last
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
