"""What the tour of `make demo` says: numbers that agree, whatever goes on meanwhile."""

import importlib
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


class TickingService:
    """One tick more stands in the log with each look."""

    def __init__(self, ticks: int) -> None:
        self._ticks = ticks

    def found(self, pattern: re.Pattern[str]) -> list[SimpleNamespace]:
        texts = [f"digest of 12:00:{second:02}" for second in range(self._ticks)]
        self._ticks += 1
        return [
            SimpleNamespace(process="worker-1", at=0.0, text=text)
            for text in texts
            if pattern.search(text)
        ]


@pytest.mark.parametrize(
    ("ticks", "said"), [(15, "The last 10 of 15 ticks:"), (10, "tick  worker-1")]
)
def test_ticks_that_are_shown_and_judged_are_the_same(
    ticks: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.syspath_prepend(EXAMPLES)
    screen, verdict, chiming = (
        importlib.import_module(f"tour.{name}") for name in ("screen", "verdict", "chiming")
    )
    drawing = screen.Screen()
    act = chiming.Chiming(TickingService(ticks), drawing, verdict.Verdict(drawing))
    act.tell("worker-1", 0.0)
    out = capsys.readouterr().out
    assert out.startswith(f"  {said}")
    assert f"no tick runs twice: {ticks} ticks, 0 of them twice" in out
