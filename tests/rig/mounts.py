"""Mounts: faked ones for every test, and real ones where the system allows them."""

import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from tenure.stores.sqlite import mounts


def told_mounts(monkeypatch: pytest.MonkeyPatch, folder: Path, kinds: Mapping[Path, str]) -> None:
    """Let Tenure believe that these are all the mounts there are."""
    lines = [
        f"{number} 1 0:{number} / {_escaped(point)} rw,relatime shared:1 - {kind} source rw\n"
        for number, (point, kind) in enumerate(kinds.items(), start=20)
    ]
    (folder / "mountinfo").write_text("".join(lines))
    monkeypatch.setattr(mounts, "MOUNTS", folder / "mountinfo")


def _escaped(point: Path) -> str:
    return str(point).replace("\\", "\\134").replace(" ", "\\040")


@cache
def own_mounts() -> tuple[str, ...]:
    """Return the command in front of another one that gives it mounts of its own, or skip."""
    return _working(("unshare", "--mount"), ("unshare", "--map-root-user", "--mount"))


@cache
def own_clock(ahead: int) -> tuple[str, ...]:
    """Return the command in front of another one that gives it a boot clock of its own, or skip."""
    clock = ("--time", "--boottime", str(ahead))
    return _working(("unshare", *clock), ("unshare", "--map-root-user", *clock))


def _working(*commands: tuple[str, ...]) -> tuple[str, ...]:
    if shutil.which("unshare") is None:
        pytest.skip("needs the command unshare (util-linux)")
    for command in commands:
        tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
        if tried.returncode == 0:
            return command
    pytest.skip(f"needs the right to run '{' '.join(commands[0])}': {tried.stderr.strip()}")
