"""Makes text from untrusted sources safe for a log or a terminal."""

from __future__ import annotations

__all__ = ["indented", "safe"]


def safe(text: str) -> str:
    """Return untrusted text as one line, with control characters escaped."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def indented(text: str) -> str:
    """Return text of several lines, indented so that none of them looks like a log record."""
    return "".join(f"\n  | {safe(line)}" for line in text.splitlines())
