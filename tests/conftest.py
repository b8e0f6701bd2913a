"""Shared fixtures for every test."""

import signal

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So it is for whatever a shell has put into the background, and for all that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest.register_assert_rewrite("tests.contract.calls", "tests.model.pair")

pytest_plugins = ["tests.rig.session", "tests.rig.fixtures", "tests.contract.worlds"]
