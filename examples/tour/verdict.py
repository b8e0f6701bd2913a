"""Collects the results of the tour."""

from tour.screen import Screen


class Verdict:
    """Prints each check, and a table of what was measured and promised at the end."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._results: list[tuple[str, str, str]] = []
        self.broken = False

    def judge(self, text: str, *, kept: bool) -> None:
        self.broken |= not kept
        self._screen.judge(text, kept=kept)

    def note(self, what: str, seen: str, promised: str) -> None:
        """Add a row to the table at the end."""
        self._results.append((what, seen, promised))

    def sum_up(self) -> None:
        screen = self._screen
        screen.title("Results")
        screen.table(("", "measured", "promised"), self._results)
        verdict = "a promise was BROKEN, see above" if self.broken else "every promise was kept"
        screen.line(f"\n  {screen.paint(verdict, 'bad' if self.broken else 'good')}")
