"""What a search for the text of an error looks at."""

from __future__ import annotations

from typing import Final

__all__ = ["TEXT_MAX", "contains", "search_bytes"]

TEXT_MAX: Final = 2000
"""How many bytes of an error or a reason are searched: what stands at its end is its traceback."""


def search_bytes(text: str) -> bytes:
    """Return a text as stores look for it: the letters of ASCII as small ones."""
    return text.encode().lower()


def contains(stored: bytes | None, text: bytes) -> bool:
    """Return whether the beginning of a stored value contains what `search_bytes` returned."""
    return stored is not None and text in stored[:TEXT_MAX].lower()
