"""Called by every handler of the job benchmark, in every library, to note that it started."""

from __future__ import annotations

import json
import sys
import time

# With a number and an instant, about 100 bytes of arguments.
TEXT = "x" * 60

_seen: list[tuple[int, int, int]] = []
_phases: list[int] = []
_reports = sys.stdout


def expect(*phases: int) -> None:
    """Report on standard output after so many starts, then after so many more, and so on."""
    _phases.extend(phases)


def started(number: int, begun: int) -> None:
    """Note a start. `begun` is when the enqueue call began, by a clock that all processes share."""
    _seen.append((number, begun, time.monotonic_ns()))
    if _phases and len(_seen) == _phases[0]:
        _phases.pop(0)
        print(json.dumps(_report()), file=_reports, flush=True)
        _seen.clear()


def complete() -> bool:
    """Return whether all expected starts have been reported."""
    return not _phases


def _report() -> dict[str, object]:
    instants = [instant for _, _, instant in _seen]
    return {
        "first": min(instants),
        "last": max(instants),
        "distinct": len({number for number, _, _ in _seen}),
        "waits": [instant - begun for _, begun, instant in _seen],
    }
