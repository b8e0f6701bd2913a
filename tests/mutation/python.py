"""Walks a Python module and yields the edits that the operators make.

It leaves out what no test should have to notice: docstrings, texts of logs and errors, annotations,
`__all__`, assertions, code for type checkers and for other platforms.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from tests.mutation import sql
from tests.mutation.mutant import Edit
from tests.mutation.python_expressions import EXPRESSIONS
from tests.mutation.python_statements import STATEMENTS, swaps
from tests.mutation.python_text import Text

__all__ = ["edits", "optional_arguments", "same_code", "tuning_constants"]

_LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
_TEXT_NAMES = {"msg", "message", "hint", "text", "detail", "title", "description", "summary"}
_TEXT_METHODS = {"__repr__", "__str__", "__doc__"}
_SQL = re.compile(
    r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH|VALUES|BEGIN|PERFORM|SAVEPOINT)\b[^.!?]*\s", re.DOTALL
)
_FLOAT = re.compile(r"^([A-Z_]+)(?:: \S+)? = \d[\d_]*\.\d", re.MULTILINE)
_OPERATORS = {**EXPRESSIONS, **STATEMENTS}


def edits(
    text: str, optional: Mapping[str, set[str]] | None = None, tuning: set[str] | None = None
) -> Iterator[Edit]:
    """Yield every edit of a module; `optional` and `tuning` describe the whole source."""
    yield from _Walk(Text(text, optional or {}, tuning or set())).edits()


def tuning_constants(texts: Iterable[str]) -> set[str]:
    """Return the constants that hold seconds or shares, and the sizes of batches."""
    names = {"BATCH_MAX", "BATCH_BYTES"}
    for text in texts:
        names |= set(_FLOAT.findall(text))
    return names


def optional_arguments(texts: Iterable[str]) -> dict[str, set[str]]:
    """Return the arguments with a default of every function and class, by its name."""
    names: dict[str, set[str]] = {}
    for text in texts:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names.setdefault(node.name, set()).update(_with_default(node.args))
            elif isinstance(node, ast.ClassDef):
                names.setdefault(node.name, set()).update(_fields_with_default(node))
    return names


def _with_default(arguments: ast.arguments) -> Iterator[str]:
    positional = [*arguments.posonlyargs, *arguments.args]
    yield from (
        argument.arg for argument in positional[len(positional) - len(arguments.defaults) :]
    )
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    yield from (argument.arg for argument, default in pairs if default is not None)


def _fields_with_default(node: ast.ClassDef) -> Iterator[str]:
    for field in node.body:
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and field.value:
            yield field.target.id
        elif isinstance(field, ast.FunctionDef) and field.name == "__init__":
            yield from _with_default(field.args)


def same_code(before: str, after: str) -> bool:
    """Return whether two modules compile to the same code; False if the second does not compile."""
    try:
        return _essence(compile(before, "m", "exec")) == _essence(compile(after, "m", "exec"))
    except (SyntaxError, ValueError):
        return False


def _essence(code: object) -> object:
    if not hasattr(code, "co_code"):
        return type(code).__name__, repr(code)
    names = ("co_code", "co_names", "co_varnames", "co_freevars", "co_exceptiontable", "co_flags")
    parts = tuple(getattr(code, name) for name in names)
    return parts, tuple(_essence(constant) for constant in code.co_consts)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class _Scope:
    """Where the walk is."""

    statement: int = -1
    """The line of the statement that runs what is looked at; -1 where it runs at import."""
    is_setting_up: bool = False
    """Whether it makes an object: there, a missing or later assignment says little."""


class _Walk:
    def __init__(self, text: Text) -> None:
        self._text = text

    def edits(self) -> Iterator[Edit]:
        yield from self._visit(ast.parse(self._text.text), _Scope())

    def _visit(self, node: ast.AST, scope: _Scope) -> Iterator[Edit]:
        if _is_left_out(node):
            return
        scope = _entered(node, scope)
        if isinstance(node, ast.Constant | ast.JoinedStr) and self._is_sql(node):
            yield from self._sql(node, scope)
            return
        if isinstance(node, ast.JoinedStr):
            return  # a text for people, and its parts have no positions before Python 3.12
        if not (scope.is_setting_up and isinstance(node, ast.Assign)):
            for operator in _OPERATORS.get(type(node), ()):
                for edit in operator(node, self._text):
                    yield replace(edit, statement=scope.statement)
        for body in [] if scope.is_setting_up else _bodies(node):
            for edit in swaps(body, self._text):
                yield replace(edit, statement=scope.statement)
        for child in _children(node):
            yield from self._visit(child, scope)

    def _is_sql(self, node: ast.Constant | ast.JoinedStr) -> bool:
        if isinstance(node, ast.Constant) and not isinstance(node.value, str):
            return False
        return bool(_SQL.match(self._text.inside_quotes(node)[1] + " "))

    def _sql(self, node: ast.Constant | ast.JoinedStr, scope: _Scope) -> Iterator[Edit]:
        start, statement = self._text.inside_quotes(node)
        for edit in sql.edits(statement):
            moved = edit.start + start, edit.end + start
            yield replace(edit, start=moved[0], end=moved[1], statement=scope.statement)


def _entered(node: ast.AST, scope: _Scope) -> _Scope:
    """Return the scope inside a node."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        # Decorators and defaults run at import; the line is that of the name.
        return _Scope(node.lineno, node.name == "__init__")
    if isinstance(node, ast.stmt) and scope.statement >= 0:
        return replace(scope, statement=node.lineno)
    return scope


def _is_left_out(node: ast.AST) -> bool:
    match node:
        case ast.If(test=test):
            is_left_out = bool(_names(test) & {"TYPE_CHECKING", "__name__", "platform"})
        case ast.Assign(targets=[ast.Name(id=name)]):
            is_left_out = (
                name in _TEXT_NAMES
                or name == "__all__"
                or _is_of_types(node.value)
                or (name.isupper() and _is_number(node.value))
            )
        case ast.AnnAssign(target=ast.Name(id=name)):
            is_number = name.isupper() and node.value is not None and _is_number(node.value)
            is_alias = "TypeAlias" in _names(node.annotation)
            is_left_out = name in _TEXT_NAMES or node.value is None or is_number or is_alias
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            decorators = {name for decorator in node.decorator_list for name in _names(decorator)}
            is_left_out = node.name in _TEXT_METHODS or bool(
                decorators & {"overload", "abstractmethod"}
            )
        case ast.ClassDef():
            is_left_out = any("Protocol" in _names(base) for base in node.bases)
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)):
            is_log = name.strip("_").lower() in {"log", "logger"} and method in _LOG_METHODS
            is_left_out = is_log or name == "warnings"
        case ast.Call(func=ast.Name(id=name)):
            is_left_out = name in {"TypeVar", "ParamSpec", "cast", "NewType"}
        case ast.Expr(value=value):
            # A docstring, the dots of a protocol, a line of the log.
            is_left_out = isinstance(value, ast.Constant) or _is_left_out(value)
        case _:
            is_left_out = isinstance(
                node, ast.Assert | ast.Import | ast.ImportFrom | ast.Global | ast.Nonlocal
            )
    return is_left_out


def _is_of_types(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and bool(_names(value.func) & {"TypeVar", "ParamSpec"})


def _is_number(value: ast.expr) -> bool:
    """Return whether a constant is set to a number: another one would be as good."""
    return all(
        isinstance(part, ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop)
        or (isinstance(part, ast.Constant) and type(part.value) in {int, float})
        for part in ast.walk(value)
    )


def _names(node: ast.AST) -> set[str]:
    """Return all names and attributes in an expression."""
    names = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            names.add(part.id)
        elif isinstance(part, ast.Attribute):
            names.add(part.attr)
    return names


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what can be changed below a node: not annotations, decorators and patterns."""
    left_out = {"annotation", "returns", "decorator_list", "bases", "type_comment", "pattern"}
    if isinstance(node, ast.Raise):
        # Of an error, only what decides which one: its text is for people.
        left_out |= {"exc"} if isinstance(node.exc, ast.Call) else set()
    if isinstance(node, ast.ClassDef):
        left_out |= {"keywords"}
    for field, value in ast.iter_fields(node):
        if field in left_out:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child


def _bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    if isinstance(node, ast.Module | ast.ClassDef):
        return
    for field in ("body", "orelse", "finalbody"):
        body = getattr(node, field, None)
        if isinstance(body, list):
            yield body
