"""Text from elsewhere as it may be shown: in a log, on a terminal."""

from __future__ import annotations

__all__ = ["indented", "safe"]


def safe(text: str) -> str:
    """Return text from elsewhere as one line that cannot steer a terminal or hide anything."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def indented(text: str) -> str:
    """Return text of several lines so that none of them can be taken for a line of a log."""
    return "".join(f"\n  | {safe(line)}" for line in text.splitlines())
