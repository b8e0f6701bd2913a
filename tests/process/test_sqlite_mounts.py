"""SQLite files in real mounts, as containers see them. tests/stores/sqlite has faked mounts."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.rig.mounts import own_mounts

HOLD = """
import asyncio, sys
from tenure import Tenure

async def main(url):
    async with Tenure(url) as app, app.lock("nightly", wait=0) as hold:
        print("held", hold.fence)

asyncio.run(main(sys.argv[1]))
"""


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Two folders, as in two containers, and a database outside of both."""
    made = [tmp_path / name for name in ("host", "first", "second")]
    for folder in made:
        folder.mkdir()
    host, *folders = made
    assert hold(f"sqlite:///{host / 'tenure.db'}").returncode == 0
    return folders


def hold(url: str, *, mounts: str = "") -> subprocess.CompletedProcess[str]:
    """Take a lock in a process of its own, with mounts of its own."""
    return run(mounts, "-c", HOLD, url)


def run(mounts: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    if mounts:
        command = [*own_mounts(), "sh", "-ec", f'{mounts}; exec "$@"', "sh", *command]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_file_that_is_mounted_without_its_folder_is_refused(folders: list[Path], tmp_path: Path):
    for folder in folders:
        file = folder / "tenure.db"
        file.touch()
        mounts = f"mount --bind {tmp_path / 'host' / 'tenure.db'} {file}"
        refused = hold(f"sqlite:///{file}", mounts=mounts)
        assert "Mount the folder, not the file" in refused.stderr
        assert "held" not in refused.stdout
        report = run(mounts, "-m", "tenure", "--url", f"sqlite:///{file}", "doctor")
        assert report.returncode == 2
        assert "Mount the folder, not the file" in report.stdout + report.stderr


def test_a_folder_that_is_mounted_is_used(folders: list[Path], tmp_path: Path):
    for folder in folders:
        mounts = f"mount --bind {tmp_path / 'host'} {folder}"
        assert "held" in hold(f"sqlite:///{folder / 'tenure.db'}", mounts=mounts).stdout


def test_a_file_in_the_layer_of_a_container_is_used(folders: list[Path], tmp_path: Path):
    """Which may have come with its image: then SQLite makes a copy of it by opening it."""
    upper, merged = folders
    (tmp_path / "work").mkdir()
    layers = f"lowerdir={tmp_path / 'host'},upperdir={upper},workdir={tmp_path / 'work'}"
    mounts = f"mount -t overlay overlay -o {layers} {merged}"
    holder = hold(f"sqlite:///{merged / 'tenure.db'}", mounts=mounts)
    if "mount:" in holder.stderr:
        pytest.skip(f"needs the right to mount an overlay: {holder.stderr}")
    assert "held" in holder.stdout
    assert "moved or replaced" not in holder.stderr
    report = run(mounts, "-m", "tenure", "--url", f"sqlite:///{merged / 'tenure.db'}", "doctor")
    assert "belongs to this container" in report.stdout
