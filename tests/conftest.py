"""Shared fixtures for every test."""

import pytest

pytest.register_assert_rewrite("tests.contract.calls", "tests.model.pair")

pytest_plugins = ["tests.rig.fixtures", "tests.contract.worlds"]
