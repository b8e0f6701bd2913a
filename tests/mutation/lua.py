"""The operators for the Lua scripts of the Redis store, on tokens.

A statement begins with the first word of a line, outside of brackets and not after an operator:
that is how our scripts are written. A script that does not load counts as invalid.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.mutation.mutant import Edit, compared_as
from tests.mutation.tokens import Token, Tokens, lua_tokens

__all__ = ["blocks", "edits"]

_COMPARED = {
    "<": ("<=", ">="),
    "<=": ("<", ">"),
    ">": (">=", "<="),
    ">=": (">", "<"),
    "==": ("~=",),
    "~=": ("==",),
}
_ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*", "%": "*"}
_OTHER = {
    "and": ("or", "logic"),
    "or": ("and", "logic"),
    "true": ("false", "constant"),
    "false": ("true", "constant"),
    "min": ("max", "other call"),
    "max": ("min", "other call"),
    "ceil": ("floor", "other call"),
    "floor": ("ceil", "other call"),
}
_KEYWORDS = {
    "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local",
    "nil", "not", "or", "repeat", "return", "then", "true", "until", "while",
}  # fmt: skip
_GOES_ON = {"and", "or", "not", "..", "=", ",", "(", "{", "[", "+", "-", "*", "/", "==", "~=", "<"}


def edits(text: str) -> Iterator[Edit]:
    """Yield every edit of a script."""
    tokens = lua_tokens(text)
    for index, token in enumerate(tokens):
        yield from _word(tokens, index, token)
        if token.text in {"if", "elseif", "while"}:
            yield from _condition(tokens, index)
    starts = _statements(tokens)
    for start, after in zip(starts, [*starts[1:], len(tokens)], strict=True):
        yield from _statement(tokens, start, after)


def blocks(text: str) -> Iterator[int]:
    """Yield where a block begins: a statement put there runs if the block does."""
    tokens = lua_tokens(text)
    for index, token in enumerate(tokens):
        if token.text in {"then", "else", "do"}:
            yield token.end
        elif token.text == "function":
            bracket = next(at for at in range(index, len(tokens)) if tokens[at].text == "(")
            yield tokens[tokens.closing(bracket)].end


def _word(tokens: Tokens, index: int, token: Token) -> Iterator[Edit]:
    before = tokens[index - 1] if index else None
    follows_value = before is not None and before.is_value and before.text not in _KEYWORDS
    if token.kind == "sign":
        for new in _COMPARED.get(token.text, ()):
            yield Edit(token.start, token.end, new, compared_as(token.text, new))
        if token.text in _ARITHMETIC and follows_value:
            yield Edit(token.start, token.end, _ARITHMETIC[token.text], "arithmetic")
    elif token.kind == "name" and token.text in _OTHER:
        new, operator = _OTHER[token.text]
        is_call = tokens[index + 1].text == "(" if index + 1 < len(tokens) else False
        if operator != "other call" or is_call:
            yield Edit(token.start, token.end, new, operator)
    elif token.text == "not":
        yield Edit(token.start, tokens[index + 1].start, "", "negation")
    elif token.kind == "number" and token.text.isdigit() and not _is_setting(tokens, index):
        value = int(token.text)
        yield Edit(token.start, token.end, str(value + 1), "constant")
        if value <= 1:
            yield Edit(token.start, token.end, str(value - 1), "constant")


def _is_setting(tokens: Tokens, index: int) -> bool:
    """Return whether it is the value of a constant in capitals: another one would be as good."""
    named = tokens[index - 2].text if index > 1 and tokens[index - 1].text == "=" else ""
    return named.isupper()


def _condition(tokens: Tokens, index: int) -> Iterator[Edit]:
    depth = tokens[index].depth
    end = tokens.until(index + 1, {"then", "do", "THEN", "DO"}, depth)
    start, stop = tokens[index + 1].start, tokens[end - 1].end
    condition = tokens.text[start:stop]
    yield Edit(start, stop, f"not ({condition})", "negation")
    for value in ("true", "false"):
        yield Edit(start, stop, value, "forced condition")
    yield from _dropped(tokens, index + 1, end, depth)


def _dropped(tokens: Tokens, first: int, end: int, depth: int) -> Iterator[Edit]:
    """Drop each condition out of several."""
    words = [
        at for at in range(first, end) if tokens[at].text in {"and", "or"}
        and tokens[at].depth == depth
    ]  # fmt: skip
    for left, right in zip([first - 1, *words], [*words, end], strict=True):
        joined = tokens[right if right in words else left].text
        if words:
            neutral = "true" if joined == "and" else "false"
            span = tokens[left + 1].start, tokens[right - 1].end
            yield Edit(*span, neutral, "dropped condition")


def _statements(tokens: Tokens) -> list[int]:
    starts = []
    for index, token in enumerate(tokens):
        before = tokens[index - 1] if index else None
        goes_on = before is not None and before.text in _GOES_ON
        if token.is_first and token.depth == 0 and not goes_on and token.text not in _GOES_ON:
            starts.append(index)
    return starts


def _statement(tokens: Tokens, start: int, after: int) -> Iterator[Edit]:
    first, second = tokens[start], tokens[start + 1] if start + 1 < len(tokens) else None
    span = first.start, tokens[after - 1].end
    if first.text == "return" and after > start + 1:
        yield Edit(tokens[start + 1].start, span[1], "nil", "returned value")
    elif first.text == "break" or (
        first.kind == "name" and first.text not in _KEYWORDS and second is not None
    ):
        yield Edit(*span, "do end", "removed statement")
