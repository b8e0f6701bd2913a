"""Fixtures for the short forms of the chaos."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.scratch import new_folder


@pytest.fixture
def chaos_folder() -> Iterator[Path]:
    """A folder on the disk for ledgers and logs, with a path short enough for a socket."""
    folder = new_folder("chaos", on_disk=True)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
