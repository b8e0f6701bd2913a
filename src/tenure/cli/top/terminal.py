"""A terminal in which a program draws whole screens and reads single keys.

Whatever happens, the terminal is as before once the program ends or is stopped: its modes, its
cursor and what was on it. Works where Python has `termios`: not on Windows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from rich.console import Console
from rich.text import Text

try:
    import termios
    import tty
except ModuleNotFoundError:  # on Windows
    _HAS_MODES = False
else:
    _HAS_MODES = True

__all__ = ["Terminal", "is_usable"]

# The alternate screen, without a cursor and without wrapping.
_ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
_LEAVE: Final = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_CLEAR_LINE_END: Final = "\x1b[K"


def is_usable() -> bool:
    """Return whether there is a terminal for input and output that understands sequences."""
    if not _HAS_MODES:
        return False
    is_dumb = os.environ.get("TERM", "") in {"", "dumb", "unknown"}
    return sys.stdin.isatty() and sys.stdout.isatty() and not is_dumb


class Terminal:
    """The terminal of this process."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False)
        self.input = sys.stdin.fileno()
        self._before: list[Any] | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Its columns and lines, as they are now."""
        try:
            size = os.get_terminal_size(sys.stdout.fileno())
        except OSError:  # the terminal has gone
            return 80, 24
        return size.columns or 80, size.lines or 24

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Hold the terminal for this block."""
        self.take()
        try:
            yield
        finally:
            self.give_back()

    def take(self) -> None:
        """Read single keys, and keep what is on the screen for later."""
        self._before = termios.tcgetattr(self.input)
        tty.setcbreak(self.input, termios.TCSADRAIN)
        self._write(_ENTER)

    def give_back(self) -> None:
        """Leave the terminal as it was."""
        self._write(_LEAVE)
        if self._before is not None:
            with suppress(termios.error):  # the terminal has gone
                termios.tcsetattr(self.input, termios.TCSADRAIN, self._before)

    def draw(self, lines: Sequence[Text]) -> None:
        """Show these lines, as many as the terminal has, in place of what is there."""
        width = self.size[0]
        self._console.size = self._console.size._replace(width=width)
        # After the last column there is nothing to clear, and clearing would take its character.
        drawn = [
            self._ansi(line) + ("" if line.cell_len >= width else _CLEAR_LINE_END) for line in lines
        ]
        self._write(_HOME + "\r\n".join(drawn))

    def read(self) -> bytes:
        """Return the bytes of the keys that were pressed; empty if the terminal has gone."""
        try:
            return os.read(self.input, 1024)
        except OSError:
            return b""

    def _ansi(self, line: Text) -> str:
        with self._console.capture() as captured:
            self._console.print(line, end="", overflow="crop", no_wrap=True, soft_wrap=False)
        return captured.get()

    def _write(self, text: str) -> None:
        with suppress(OSError):  # the terminal has gone, which `read` reports
            sys.stdout.write(text)
            sys.stdout.flush()
