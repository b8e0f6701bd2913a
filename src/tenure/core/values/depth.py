"""Measures how deep JSON is nested, before any parser reads it.

Parsers are recursive, and how deep they can go differs between machines and versions: one process
could store JSON that another one cannot read. So Tenure has its own limit, the same everywhere.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["DEPTH_MAX", "is_too_deep"]

DEPTH_MAX: Final = 64

# A string, or the rest of one that is never closed. Possessive: it does not backtrack, so the time
# is linear also for hostile input.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_MANY_OPEN = re.compile(rb"[\[{]{%d}" % (DEPTH_MAX + 1))
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


def is_too_deep(text: bytes) -> bool:
    """Return whether `text`, if it is JSON, has more than DEPTH_MAX levels."""
    if text.count(b"[") + text.count(b"{") <= DEPTH_MAX:
        return False
    brackets = _STRING.sub(b"", text).translate(None, _NOT_BRACKETS)
    if _MANY_OPEN.search(brackets):
        return True
    for _ in range(DEPTH_MAX):
        inner = len(brackets)
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if len(brackets) == inner:
            return False
    return bool(brackets)
