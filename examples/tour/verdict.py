"""What the acts came to."""

from tour.screen import Screen


class Verdict:
    """Collects what was promised and what was seen."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._results: list[tuple[str, str, str]] = []
        self.broken = False

    def judge(self, text: str, *, kept: bool) -> None:
        self.broken |= not kept
        self._screen.judge(text, kept=kept)

    def note(self, what: str, seen: str, promised: str) -> None:
        """Keep a line for the table at the end."""
        self._results.append((what, seen, promised))

    def sum_up(self) -> None:
        screen = self._screen
        screen.title("What was seen")
        screen.table(("", "seen", "promised"), self._results)
        verdict = "a promise was BROKEN, see above" if self.broken else "every promise was kept"
        screen.line(f"\n  {screen.paint(verdict, 'bad' if self.broken else 'good')}")
