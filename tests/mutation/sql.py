"""The operators for SQL, on tokens: functions of the PostgreSQL store, and statements in Python.

In a file only what stands between dollar quotes is changed: tables, indexes and rights are not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.mutation.mutant import Edit, compared_as
from tests.mutation.tokens import Token, Tokens, sql_tokens

__all__ = ["bodies", "edits", "file_edits"]

_COMPARED = {
    "<": ("<=", ">="),
    "<=": ("<", ">"),
    ">": (">=", "<="),
    ">=": (">", "<"),
    "=": ("<>",),
    "<>": ("=",),
    "!=": ("=",),
}
_ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*"}
_OTHER = {
    "GREATEST": ("least", "other call"),
    "LEAST": ("greatest", "other call"),
    "MIN": ("max", "other call"),
    "MAX": ("min", "other call"),
    "TRUE": ("false", "constant"),
    "FALSE": ("true", "constant"),
    "DESC": ("ASC", "order"),
    "LEFT": ("", "inner join"),
    "DISTINCT": ("", "duplicates"),
    "OR": ("AND", "logic"),
    "AND": ("OR", "logic"),
}
_ENDS = {
    "AND", "OR", "ORDER", "GROUP", "LIMIT", "OFFSET", "RETURNING", "FOR", "THEN", "ELSE", "END",
    "UNION", "WHERE", "ON", "FROM", "JOIN", "LEFT", "CROSS", "INNER", "LOOP", "DO", "HAVING",
    "SET", "INTO", "USING", "WINDOW", ";", ",",
}  # fmt: skip
# Words of a condition: what follows WHEN may also be a value that CASE compares.
_TRUTH = {"=", "<>", "<", "<=", ">", ">=", "IS", "IN", "NOT", "EXISTS", "AND", "OR", "ANY"}
_REMOVABLE = {"PERFORM", "UPDATE", "DELETE", "INSERT", "GET", "RAISE", "EXIT", "CONTINUE"}
_BEFORE_STATEMENT = {";", "BEGIN", "THEN", "ELSE", "LOOP"}
_LOCKS = re.compile(r"\bFOR (?:NO KEY UPDATE|UPDATE|KEY SHARE|SHARE)(?: OF \w+)?")
_SKIPS = re.compile(r" (?:SKIP LOCKED|NOWAIT)\b")


def edits(statement: str) -> Iterator[Edit]:
    """Yield every edit of a statement."""
    yield from _all_edits(sql_tokens(statement))


def file_edits(text: str) -> Iterator[Edit]:
    """Yield every edit of the functions in a file."""
    functions = bodies(text)
    for edit in edits(text):
        if any(start <= edit.start and edit.end <= end for start, end in functions):
            yield edit


def bodies(text: str) -> list[tuple[int, int]]:
    """Return what stands between dollar quotes."""
    quotes = [token.start for token in sql_tokens(text) if token.text == "$$"]
    return [(first + 2, second) for first, second in zip(quotes[::2], quotes[1::2], strict=False)]


def _all_edits(tokens: Tokens) -> Iterator[Edit]:
    setting: int | None = None  # the depth at which `=` assigns
    for index, token in enumerate(tokens):
        if token.word == "SET":
            setting = token.depth
        elif token.word in {"WHERE", "FROM", "RETURNING", ";"} and token.depth == setting:
            setting = None
        if not _assigns(tokens, index, setting):
            yield from _word(tokens, index, token)
        if token.word in {"IF", "ELSIF", "WHEN", "WHERE", "ON", "HAVING"}:
            yield from _condition(tokens, index)
        if token.word == "BY" and tokens[index - 1].word == "ORDER":
            yield from _order(tokens, index)
        if token.word == "LIMIT":
            yield from _limit(tokens, index)
        if token.word == "COALESCE":
            yield from _coalesce(tokens, index)
        if index and tokens[index - 1].word in _BEFORE_STATEMENT:
            yield from _statement(tokens, index)
    yield from _locks(tokens.text)


def _assigns(tokens: Tokens, index: int, setting: int | None) -> bool:
    """Return whether this is the sign of an assignment, not of a comparison."""
    if tokens[index].text != "=":
        return False
    if index > 1 and tokens[index - 2].word == "DIAGNOSTICS":
        return True
    return tokens[index].depth == setting and not _is_in_case(tokens, index)


def _word(tokens: Tokens, index: int, token: Token) -> Iterator[Edit]:
    before = tokens[index - 1] if index else None
    after = tokens[index + 1] if index + 1 < len(tokens) else None
    if token.kind == "sign":
        yield from _sign(token, before, after)
    elif token.kind == "number" and token.text.isdigit() and not _is_only_a_row(tokens, index):
        value = int(token.text)
        yield Edit(token.start, token.end, str(value + 1), "constant")
        if value <= 1:
            yield Edit(token.start, token.end, str(value - 1), "constant")
    elif token.word in _OTHER:
        new, operator = _OTHER[token.word]
        is_call = after is not None and after.text == "("
        is_meant = is_call or operator != "other call"
        if is_meant and not (token.word == "AND" and _is_between(tokens, index)):
            end = after.start if not new and after is not None else token.end
            yield Edit(token.start, end, new, operator)
    elif token.word == "NOT" and after is not None and not (before and before.word == "IF"):
        yield Edit(token.start, after.start, "", "negation")
    elif token.word == "NULL" and before is not None and before.word == "IS":
        yield Edit(token.start, token.end, "NOT NULL", "negation")


def _is_only_a_row(tokens: Tokens, index: int) -> bool:
    """Return whether it is the 1 of `EXISTS (SELECT 1`, where any value will do."""
    return [token.word for token in tokens[max(0, index - 3) : index]] == ["EXISTS", "(", "SELECT"]


def _sign(token: Token, before: Token | None, after: Token | None) -> Iterator[Edit]:
    for new in _COMPARED.get(token.text, ()):
        yield Edit(token.start, token.end, new, compared_as(token.text, new))
    keywords = {"SELECT", "RETURNING", "THEN", "WHEN", "AND", "OR", "ELSE", "BY", "LIMIT", "WHERE"}
    follows_value = before is not None and before.is_value and before.word not in keywords
    is_star = token.text == "*" and (after is None or not _begins_value(after))
    if token.text in _ARITHMETIC and follows_value and not is_star:
        yield Edit(token.start, token.end, _ARITHMETIC[token.text], "arithmetic")


def _begins_value(token: Token) -> bool:
    keywords = {"FROM", "INTO", "WHERE", "BULK"}
    if token.kind == "name":
        return token.word not in keywords
    return token.kind in {"number", "text"} or token.text == "("


def _is_between(tokens: Tokens, index: int) -> bool:
    depth = tokens[index].depth
    for earlier in range(index - 1, max(-1, index - 12), -1):
        if tokens[earlier].depth == depth and tokens[earlier].word in {"AND", "WHERE", "OR", "("}:
            return False
        if tokens[earlier].word == "BETWEEN":
            return True
    return False


def _is_in_case(tokens: Tokens, index: int) -> bool:
    """Return whether a CASE is open in the list of assignments."""
    depth, opened = tokens[index].depth, 0
    for earlier in range(index - 1, -1, -1):
        token = tokens[earlier]
        if token.depth != depth:
            continue
        if token.word == "END":
            opened -= 1
        elif token.word == "CASE":
            opened += 1
            if opened > 0:
                return True
        elif token.word == "SET":
            return False
    return False


def _condition(tokens: Tokens, index: int) -> Iterator[Edit]:
    depth = tokens[index].depth
    first = index + 1
    if first >= len(tokens) or tokens[first].word == "CONFLICT":
        return
    end = tokens.until(first, _ENDS - {"AND", "OR"}, depth)
    if end <= first:
        return
    start, stop = tokens[first].start, tokens[end - 1].end
    compares = any(tokens[at].word in _TRUTH for at in range(first, end))
    if tokens[index].word in {"IF", "ELSIF"} or (tokens[index].word == "WHEN" and compares):
        yield Edit(start, stop, f"NOT ({tokens.text[start:stop]})", "negation")
        for value in ("true", "false"):
            yield Edit(start, stop, value, "forced condition")
    yield from _dropped(tokens, first, end, depth)


def _dropped(tokens: Tokens, first: int, end: int, depth: int) -> Iterator[Edit]:
    """Drop each condition out of several."""
    words = [
        at
        for at in range(first, end)
        if tokens[at].word in {"AND", "OR"}
        and tokens[at].depth == depth
        and not _is_between(tokens, at)
    ]
    for left, right in zip([first - 1, *words], [*words, end], strict=True):
        if not words:
            return
        joined = tokens[right if right in words else left].word
        span = tokens[left + 1].start, tokens[right - 1].end
        if "namespace" not in tokens.text[slice(*span)] or joined == "OR":
            neutral = "true" if joined == "AND" else "false"
            yield Edit(*span, neutral, "dropped condition")
        else:
            yield Edit(*span, "true", "dropped condition")


def _order(tokens: Tokens, index: int) -> Iterator[Edit]:
    depth = tokens[index].depth
    end = tokens.until(index + 1, _ENDS | {"$$"}, depth)
    last = tokens[end - 1]
    if last.word not in {"DESC", "ASC"}:
        yield Edit(last.end, last.end, " DESC", "order")


def _limit(tokens: Tokens, index: int) -> Iterator[Edit]:
    end = tokens.until(index + 1, _ENDS | {"$$"}, tokens[index].depth)
    yield Edit(tokens[index].start, tokens[end - 1].end, "", "removed limit")


def _coalesce(tokens: Tokens, index: int) -> Iterator[Edit]:
    arguments = tokens.arguments(index + 1)
    close = tokens[tokens.closing(index + 1)].end
    if len(arguments) > 1:
        start, end = arguments[0]
        yield Edit(tokens[index].start, close, f"({tokens.text[start:end]})", "dropped default")


def _statement(tokens: Tokens, index: int) -> Iterator[Edit]:
    token = tokens[index]
    end = tokens.until(index, {";"}, token.depth)
    if end >= len(tokens) or tokens[end].text != ";" or tokens[index - 1].depth != token.depth:
        return
    following = [tokens[at].text for at in range(index + 1, min(index + 4, end))]
    assigns = following[:1] == [":="] or (following[:1] == ["."] and following[2:3] == [":="])
    if token.word in _REMOVABLE or assigns:
        yield Edit(token.start, tokens[end - 1].end, "NULL", "removed statement")


def _locks(text: str) -> Iterator[Edit]:
    for lock in _LOCKS.finditer(text):
        skips = _SKIPS.match(text, lock.end())
        end = skips.end() if skips else lock.end()
        yield Edit(lock.start(), end, "", "removed lock")
        if skips:
            yield Edit(skips.start(), skips.end(), "", "waits for a lock")
