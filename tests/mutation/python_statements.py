"""The operators for Python statements: removed, in another order, with other errors caught."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from tests.mutation.mutant import Edit
from tests.mutation.python_expressions import ARITHMETIC, Operator, dropped_arguments, forced
from tests.mutation.python_text import Text, is_text, name_of

__all__ = ["STATEMENTS", "swaps"]


def _if(node: ast.If, text: Text) -> Iterator[Edit]:
    yield from forced(node.test, text)


def _while(node: ast.While, text: Text) -> Iterator[Edit]:
    yield from forced(node.test, text)
    yield Edit(text.start(node), text.start(node) + len("while"), "if", "loop once")


def _for(node: ast.For, text: Text) -> Iterator[Edit]:
    items = text.of(node.iter)
    yield text.replace(node.iter, f"list({items})[:1]", "loop once")
    yield text.replace(node.iter, f"reversed(list({items}))", "order")


def _expression(node: ast.Expr, text: Text) -> Iterator[Edit]:
    if isinstance(node.value, ast.Await | ast.Call | ast.Yield):
        yield text.replace(node, "pass", "removed statement")


def _assignment(node: ast.Assign, text: Text) -> Iterator[Edit]:
    if all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
        yield text.replace(node, "pass", "removed statement")


def _removed(node: ast.stmt, text: Text) -> Iterator[Edit]:
    yield text.replace(node, "pass", "removed statement")


def _augmented(node: ast.AugAssign, text: Text) -> Iterator[Edit]:
    pattern, new = ARITHMETIC.get(type(node.op), ("", ""))
    start, gap = text.between(node.target, node.value)
    if pattern and not is_text(node.value) and (match := re.search(pattern, gap)):
        yield Edit(start + match.start(), start + match.end(), new, "arithmetic")
        yield text.replace(node, f"{text.of(node.target)} = {text.of(node.value)}", "assignment")


def _jump(node: ast.Break | ast.Continue, text: Text) -> Iterator[Edit]:
    other = "continue" if isinstance(node, ast.Break) else "break"
    yield text.replace(node, other, "jump")
    yield text.replace(node, "pass", "removed statement")


def _return(node: ast.Return, text: Text) -> Iterator[Edit]:
    if node.value is None:
        yield text.replace(node, "pass", "removed statement")
    elif not isinstance(node.value, ast.Constant):
        yield text.replace(node.value, "None", "returned value")


# Errors, cancellation, clean-up, locks.

# Whether cancellation is caught as well.
_CANCELLATION = {"Exception": "BaseException", "BaseException": "Exception"}


def _try(node: ast.Try, text: Text) -> Iterator[Edit]:
    if not node.finalbody:
        return
    first, last = node.finalbody[0], node.finalbody[-1]
    yield Edit(text.start(first), text.end(last), "pass", "removed finally")
    before = (node.orelse or node.handlers or node.body)[-1]
    start, gap = text.between(before, first)
    if not node.orelse and (match := re.search(r"finally:", gap)):
        indent = text.indent(node)
        new = f"except BaseException:\n{indent}    raise\n{indent}else:"
        yield Edit(start + match.start(), start + match.end(), new, "finally on success")


def _handler(node: ast.ExceptHandler, text: Text) -> Iterator[Edit]:
    if node.type is None:
        return
    # Exception instead of OSError is bad style, but only a fault elsewhere could show it.
    if new := _CANCELLATION.get(text.of(node.type)):
        yield text.replace(node.type, new, "caught errors")
    yield text.replace(node.type, "()", "caught errors")
    if isinstance(node.type, ast.Tuple):
        yield from _dropped_elements(node.type, text)


def _dropped_elements(node: ast.Tuple, text: Text) -> Iterator[Edit]:
    for dropped in node.elts:
        rest = [text.of(element) for element in node.elts if element is not dropped]
        yield text.replace(node, f"({', '.join(rest)},)", "caught errors")


def _with(node: ast.With | ast.AsyncWith, text: Text) -> Iterator[Edit]:
    for item in node.items:
        call = item.context_expr
        if isinstance(call, ast.Call) and name_of(call) == "suppress" and call.args:
            span = text.start(call.args[0]), text.end(call.args[-1])
            yield Edit(*span, "", "removed suppress")
            if new := _CANCELLATION.get(text.text[slice(*span)]):
                yield Edit(*span, new, "caught errors")
            if len(call.args) > 1:
                yield from dropped_arguments(call, text, "caught errors")
    only = node.items[0]
    is_lock = isinstance(only.context_expr, ast.Name | ast.Attribute)
    if len(node.items) == 1 and only.optional_vars is None and is_lock:
        yield Edit(text.start(node), text.end(only.context_expr), "if True", "removed lock")


def swaps(body: list[ast.stmt], text: Text) -> Iterator[Edit]:
    """Yield edits that carry out two neighbouring statements in the other order."""
    for first, second in pairwise(body):
        if not (_has_effect(first) and _has_effect(second)) or _depends(second, first):
            continue
        awaits = _awaits(first) or _awaits(second)
        notices = _changed(first) & _names(second) or _changed(second) & _names(first)
        if not awaits and not notices:
            continue
        gap = text.text[text.end(first) : text.start(second)]
        new = text.of(second) + gap + text.of(first)
        yield Edit(text.start(first), text.end(second), new, "order")


def _has_effect(node: ast.stmt) -> bool:
    match node:
        case ast.Expr(value=ast.Await() | ast.Call()):
            return True
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.AugAssign():
            return True
        case ast.Assign(value=ast.Await() | ast.Call()):
            return True
    return False


def _depends(later: ast.stmt, earlier: ast.stmt) -> bool:
    """Return whether a statement reads a variable that the one before it makes."""
    made = {part.id for part in ast.walk(earlier) if isinstance(part, ast.Name) and _is_store(part)}
    return any(isinstance(part, ast.Name) and part.id in made for part in ast.walk(later))


def _is_store(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _changed(node: ast.stmt) -> set[str]:
    """Return what a statement may change: what it assigns to, and what it calls something of."""
    parts: list[ast.AST] = []
    for part in ast.walk(node):
        if isinstance(part, ast.Assign):
            parts += part.targets
        elif isinstance(part, ast.AugAssign):
            parts.append(part.target)
        elif isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
            parts.append(part.func.value)
        elif isinstance(part, ast.Call):
            parts += part.args
    return {name for part in parts for name in _names(part)}


def _names(node: ast.AST) -> set[str]:
    """Return the attributes of `self` and the variables that a statement uses."""
    names = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute):
            names.add(part.attr)
        elif isinstance(part, ast.Name):
            names.add(part.id)
    return names - {"self"}


def _awaits(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Await) for part in ast.walk(node))


STATEMENTS: dict[type[ast.AST], tuple[Operator, ...]] = {
    ast.AugAssign: (_augmented, _removed),
    ast.If: (_if,),
    ast.While: (_while,),
    ast.For: (_for,),
    ast.Expr: (_expression,),
    ast.Assign: (_assignment,),
    ast.Delete: (_removed,),
    ast.Raise: (_removed,),
    ast.Break: (_jump,),
    ast.Continue: (_jump,),
    ast.Return: (_return,),
    ast.Try: (_try,),
    ast.ExceptHandler: (_handler,),
    ast.With: (_with,),
    ast.AsyncWith: (_with,),
}
