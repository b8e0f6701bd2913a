"""The lines between a child program and its test, over standard input and output."""

import json
import sys
import time


def tell(kind: str, **facts: object) -> None:
    """Send an event to the test that started this program.

    `at` is the time of a clock that all processes of the machine share, so that the events of
    several children can be put in order.
    """
    event = {"kind": kind, "at": time.monotonic(), **facts}
    # One write for the whole line: threads that tell at the same time must not mix their lines.
    sys.stdout.write(json.dumps(event, default=str) + "\n")
    sys.stdout.flush()


def hear() -> str:
    """Wait for the next line the test sends to this program; empty when it sends no more."""
    return sys.stdin.readline().rstrip("\n")
