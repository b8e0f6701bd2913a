"""Shared fixtures for every test."""

import logging
import signal
from collections.abc import Iterator

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So it is for whatever a shell has put into the background, and for all that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest.register_assert_rewrite("tests.contract.calls", "tests.contract.stories", "tests.model.pair")

pytest_plugins = [
    "tests.rig.draw",  # before what orders the tests
    "tests.rig.session",
    "tests.rig.fixtures",
    "tests.contract.worlds",
]


@pytest.fixture(autouse=True)
def _same_log_level() -> Iterator[None]:
    """Undo what a test does to the root logger; `tenure worker` sets its level."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)
