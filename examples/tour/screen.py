"""Prints the tour: plain lines; on a terminal also colour and a progress line."""

import os
import re
import sys
import time
from collections.abc import Iterable, Sequence

PALETTE = {"dim": "2", "bold": "1", "good": "1;32", "bad": "1;31"}
PALETTE |= {"api-1": "34", "api-2": "32"}
PALETTE |= {"worker-1": "36", "worker-2": "33", "worker-3": "35"}
PALETTE |= {"node-1": "36", "node-2": "33", "node-3": "35"}
SIGNS = {"dot": "●", "full": "█", "empty": "░", "kept": "✓", "broken": "✗", "rule": "─"}
ASCII_SIGNS = {"dot": "*", "full": "#", "empty": ".", "kept": "+", "broken": "x", "rule": "-"}
ESCAPE = re.compile(r"(\033\[[\d;]*m)")


class Screen:
    """Redraws the progress line on a terminal; prints it once a second to a pipe."""

    def __init__(self) -> None:
        sys.stdout.reconfigure(errors="replace")  # print "?" for other characters it cannot encode
        self.signs = SIGNS if can_show("".join(SIGNS.values())) else ASCII_SIGNS
        self._terminal = sys.stdout.isatty()
        self._colour = self._terminal and not os.environ.get("NO_COLOR")
        self._moving = ""
        self._moved_at = 0.0

    def paint(self, text: str, style: str) -> str:
        return f"\033[{PALETTE[style]}m{text}\033[0m" if self._colour else text

    def line(self, text: str = "") -> None:
        if self._moving:
            print("\r\033[K", end="")
            self._moving = ""
        print(text, flush=True)
        self._moved_at = time.monotonic()

    def title(self, text: str) -> None:
        self.line(f"\n{self.paint(text, 'bold')}")

    def say(self, text: str) -> None:
        """Print an explanation."""
        self.line(self.paint(f"  {text}", "dim"))

    def report(self, name: str, text: str) -> None:
        """Print what happens to one process."""
        self.line(f"    {self.paint(name, name)}{' ' * (10 - len(name))}{text}")

    def bar(self, part: float, width: int) -> str:
        return (self.signs["full"] * round(width * part)).ljust(width, self.signs["empty"])

    def judge(self, text: str, *, kept: bool) -> None:
        good, bad = self.signs["kept"], f"{self.signs['broken']} BROKEN:"
        self.line(f"  {self.paint(good, 'good') if kept else self.paint(bad, 'bad')} {text}")

    def move(self, text: str) -> None:
        """Print `text` in place of the last progress line."""
        now = time.monotonic()
        if self._terminal and text != self._moving:
            width = os.get_terminal_size(sys.stdout.fileno()).columns or 80
            # A longer line would wrap, and could not be erased.
            print(f"\r\033[K{cut(f'    {text}', width - 1)}", end="", flush=True)
            self._moving = text
        elif not self._terminal and now - self._moved_at >= 1:
            print(f"    {text}", flush=True)
            self._moved_at = now

    def table(self, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        rows = list(rows)
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        for row in (head, [self.signs["rule"] * width for width in widths], *rows):
            cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
            self.line("  " + "  ".join(cells).rstrip())

    def leave(self) -> None:
        """End the progress line, so that the next output starts on a line of its own."""
        if self._moving:
            print(flush=True)
            self._moving = ""


def can_show(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        return False
    return True


def cut(text: str, width: int) -> str:
    """Return the first `width` visible characters of a text; escapes do not count."""
    parts = []
    for part in ESCAPE.split(text):
        if ESCAPE.match(part):
            parts.append(part)  # also those behind the cut: one of them resets the colour
        else:
            parts.append(part[:width])
            width -= len(parts[-1])
    return "".join(parts)
