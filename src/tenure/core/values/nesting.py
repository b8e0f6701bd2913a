"""How deep JSON is nested, told before anybody reads it.

Readers follow lists and objects by calling themselves. How far they get differs between machines
and versions; so what one process stored, another might not be able to read. Hence a limit of our
own, the same everywhere.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["DEPTH_MAX", "is_too_deep"]

DEPTH_MAX: Final = 64

# A string, or what is left of one that has no end. It never fails once it has begun, so that no
# text is looked at twice.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_MANY_OPEN = re.compile(rb"[\[{]{%d}" % (DEPTH_MAX + 1))
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


def is_too_deep(text: bytes) -> bool:
    """Say whether this, if it is JSON, has more than DEPTH_MAX levels."""
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
