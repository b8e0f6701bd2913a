"""Dependencies: few of them, all pinned by hash for development."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINNED = sorted((ROOT / "requirements").glob("*.txt"))


def test_the_base_install_needs_two_packages():
    needed = {
        re.split(r"[^\w-]", requirement)[0]
        for requirement in PROJECT["dependencies"]
        if "win32" not in requirement
    }
    assert needed == {"msgspec", "cronsim"}


def test_nothing_is_run_at_installation():
    assert not (ROOT / "setup.py").exists()
    assert not list((ROOT / "src").rglob("*.pth"))
    assert PROJECT["scripts"] == {"tenure": "tenure.cli.main:entry"}
    assert "entry-points" not in PROJECT


@pytest.mark.parametrize("path", PINNED, ids=lambda path: path.stem)
def test_every_requirement_is_one_version_with_its_hashes(path: Path):
    text = re.sub(r"\\\n\s*", " ", path.read_text())
    lines = [
        line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]
    assert len(lines) >= 3
    for line in lines:
        assert re.match(r"^[\w.-]+(\[[\w,]+\])?==[\w.+!]+[ ;]", line), line
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", line), line


def test_they_are_installed_by_hash_only():
    assert '"--require-hashes"' in (ROOT / "scripts" / "setup.py").read_text()
