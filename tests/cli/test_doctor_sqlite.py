"""What `tenure doctor` finds about SQLite files."""

import os
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tenure.core.clock import SystemClock
from tenure.stores.sqlite import doctor, mounts
from tenure.stores.sqlite.schema import FORMAT
from tests.cli.conftest import Run
from tests.cli.examination import Expected, check, examined
from tests.rig.mounts import told_mounts
from tests.rig.servers.installation import unprivileged
from tests.rig.spawn import run as run_as


def sqlite_file(cli: Run, folder: Path) -> Path:
    file = folder / "tenure.db"
    assert cli("--url", f"sqlite:///{file}", "migrate").code == 0
    return file


def world_readable(file: Path) -> Path:
    file.chmod(0o644)
    return file


def group_readable(file: Path) -> Path:
    file.chmod(0o640)
    return file


def world_writable_folder(file: Path) -> Path:
    file.parent.chmod(0o777)
    return file


def from_the_future(file: Path) -> Path:
    with sqlite3.connect(file) as db:
        db.execute("UPDATE tenure_format SET version = 99, readable_from = 99")
    db.close()
    return file


def without_tables(file: Path) -> Path:
    file.unlink()
    with sqlite3.connect(file) as db:
        db.execute("CREATE TABLE of_somebody_else (x)")
    db.close()
    file.chmod(0o600)
    return file


def no_database(file: Path) -> Path:
    file.write_bytes(b"something else" * 100)
    return file


def missing(file: Path) -> Path:
    file.unlink()
    return file


def missing_folder(file: Path) -> Path:
    return file.parent / "missing" / "tenure.db"


def a_folder(file: Path) -> Path:
    return file.parent


def hard_linked(file: Path) -> Path:
    file.with_name("second.db").hardlink_to(file)
    return file


SQLITES: list[tuple[Callable[[Path], Path], Expected]] = [
    (world_readable, Expected("warning", "permissions", "chmod 600")),
    (group_readable, Expected("note", "permissions", "its group may read the file (0640)")),
    (world_writable_folder, Expected("warning", "folder", "may replace files in")),
    (from_the_future, Expected("error", "format", "99, from a newer Tenure")),
    (without_tables, Expected("note", "format", f"none so far, {FORMAT} is needed")),
    (without_tables, Expected("note", "journal", "delete mode")),
    (no_database, Expected("error", "file", "is not an SQLite database")),
    (missing, Expected("note", "format", "the file is not there yet")),
    (missing_folder, Expected("error", "file", "Create it")),
    (a_folder, Expected("error", "file", "is a folder")),
    (hard_linked, Expected("error", "file", "has 2 names (hard links)")),
    (hard_linked, Expected("error", "file", "Remove the other ones")),
]


@pytest.mark.parametrize(
    ("spoil", "expected"), SQLITES, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_bad_sqlite_file(
    cli: Run, tmp_path: Path, spoil: Callable[[Path], Path], expected: Expected
):
    file = spoil(sqlite_file(cli, tmp_path))
    check(cli, f"sqlite:///{file}", expected)


def test_an_examined_file_stays_as_it_was(cli: Run, tmp_path: Path):
    file = sqlite_file(cli, tmp_path)
    before = file.read_bytes(), sorted(tmp_path.iterdir())
    examined(cli, "--url", f"sqlite:///{file}")
    assert (file.read_bytes(), sorted(tmp_path.iterdir())) == before


def test_a_file_that_another_program_keeps_locked(
    cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(doctor, "_PATIENCE", 0.1)
    file = sqlite_file(cli, tmp_path)
    db = sqlite3.connect(file, isolation_level=None)
    db.execute("PRAGMA journal_mode = delete")
    db.execute("BEGIN EXCLUSIVE")
    check(cli, f"sqlite:///{file}", Expected("error", "file", "is locked"))
    db.close()


def test_a_read_only_file(cli: Run, tmp_path: Path):
    file = sqlite_file(cli, tmp_path)
    file.chmod(0o400)
    # Root may write everywhere; a user without its powers runs this.
    command = [sys.executable, "-m", "tenure", "--url", f"sqlite:///{file}", "doctor"]
    with pytest.raises(RuntimeError) as ended:
        run_as(command, identity=unprivileged(), env=dict(os.environ))
    assert "ended with 2" in str(ended.value)
    assert "is read-only for this process" in str(ended.value)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("nfs4", Expected("error", "file system", "SQLite's locks do not work")),
        ("cifs", Expected("error", "file system", "Put the file on a local disk")),
        ("fuse.sshfs", Expected("error", "file system", "is shared with other machines")),
        ("fuse.juicefs", Expected("error", "file system", "network_folder=allow")),
        ("fuse.fuse-overlayfs", Expected("warning", "file system", "belongs to this container")),
        ("fuse.weird", Expected("warning", "file system", "may be shared")),
        ("tmpfs", Expected("warning", "file system", "kept in memory")),
        ("overlay", Expected("warning", "file system", "belongs to this container")),
        ("ext4", Expected("ok", "file system", "ext4 at")),
    ],
)
def test_a_file_in_the_wrong_place(
    cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, expected: Expected
):
    folder = tmp_path / "a b"
    folder.mkdir()
    file = sqlite_file(cli, folder)
    monkeypatch.setattr(doctor, "_CONTAINER_MARKS", ())
    told_mounts(monkeypatch, tmp_path, {Path("/"): "xfs", folder: kind, tmp_path / "a bx": "nfs"})
    check(cli, f"sqlite:///{file}", expected)
    _, findings = examined(cli, "--url", f"sqlite:///{file}")
    assert str(folder) in findings["file system"].detail


def test_a_network_folder_that_the_url_allows(
    cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = sqlite_file(cli, tmp_path)
    told_mounts(monkeypatch, tmp_path, {tmp_path: "nfs4"})
    assert cli("--url", f"sqlite:///{file}", "locks", "ls").code == 2
    url = f"sqlite:///{file}?network_folder=allow"
    check(cli, url, Expected("warning", "file system", "which the URL allows"))
    assert cli("--url", url, "locks", "ls").code == 0


def test_a_file_that_is_mounted_alone(cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = sqlite_file(cli, tmp_path)
    told_mounts(monkeypatch, tmp_path, {Path("/"): "ext4", file: "ext4"})
    check(cli, f"sqlite:///{file}", Expected("error", "file", "Mount the folder, not the file"))


def test_a_file_that_another_machine_uses(cli: Run, tmp_path: Path):
    file = sqlite_file(cli, tmp_path)
    url = f"sqlite:///{file}"
    now = SystemClock().wall()
    statement = "INSERT OR REPLACE INTO tenure_machine VALUES ('boot', 'node-2', ?, 0, ?)"
    for wall, expected in (
        (now, Expected("error", "machines", "uses the file: node-2")),
        (now - 40_000_000, Expected("ok", "format", str(FORMAT))),
    ):
        with closing(sqlite3.connect(file)) as db, db:
            db.execute(statement, (wall, wall))
        check(cli, url, expected)


def test_a_container_with_a_volume(cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor, "_CONTAINER_MARKS", (tmp_path,))
    told_mounts(monkeypatch, tmp_path, {Path("/"): "ext4"})
    expected = Expected("note", "file system", "must mount this same volume")
    check(cli, f"sqlite:///{sqlite_file(cli, tmp_path)}", expected)


def test_where_mounts_are_not_told(cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mounts, "MOUNTS", tmp_path / "missing")
    code, findings = examined(cli, "--url", f"sqlite:///{sqlite_file(cli, tmp_path)}")
    assert code == 0
    assert "file system" not in findings


def test_a_disk_that_is_nearly_full(cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = sqlite_file(cli, tmp_path)
    usage = shutil.disk_usage(tmp_path)._replace(free=3 * 1024**2)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    check(cli, f"sqlite:///{file}", Expected("warning", "disk", "3 MiB free"))


@pytest.mark.parametrize(
    ("version", "level"), [((3, 40, 1), "note"), ((3, 51, 2), "note"), ((3, 51, 3), "ok")]
)
def test_an_old_sqlite(
    cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...], level: str
):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
    check(
        cli,
        f"sqlite:///{sqlite_file(cli, tmp_path)}",
        Expected(level, "library", "WAL-reset race" if level == "note" else "SQLite 3.51.3"),
    )
    _, findings = examined(cli, "--url", f"sqlite:///{tmp_path / 'tenure.db'}")
    assert ("PRAGMA wal_autocheckpoint = 0" in findings["library"].advice) == (level == "note")
