"""Where the file of the SQLite store is: other names, mounts, network folders, files that go."""

from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tenure import ConfigError, LeaseLost, StoreError, StoreUnavailable, Tenure
from tenure.stores.sqlite import mounts
from tests.rig.mounts import told_mounts

NETWORK = "?network_folder=allow"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tenure.db"


@asynccontextmanager
async def opened(file: Path, option: str = ""):
    async with Tenure(f"sqlite:///{file}{option}") as app:
        yield app


async def made(file: Path) -> Path:
    async with opened(file):
        return file


async def refused(file: Path) -> str:
    with pytest.raises(ConfigError) as error:
        async with opened(file):
            pass
    return str(error.value)


# Other names


async def test_a_file_with_two_hard_links_is_refused_under_both_names(file):
    second = file.with_name("second.db")
    second.hardlink_to(await made(file))
    for name in (file, second):
        text = await refused(name)
        assert f"{name} has 2 names (hard links)" in text
        assert f"find / -xdev -inum {file.stat().st_ino}" in text
    second.unlink()
    await made(file)


async def test_a_link_made_meanwhile_shuts_out_newcomers_only(file):
    async with opened(file) as app:
        file.with_name("backup.db").hardlink_to(file)
        async with app.lock("key"):
            assert "2 names" in await refused(file.with_name("backup.db"))
            assert "2 names" in await refused(file)


async def test_a_symbolic_link_leads_to_the_same_locks(tmp_path):
    (tmp_path / "data").mkdir()
    file, link = tmp_path / "data" / "tenure.db", tmp_path / "link.db"
    link.symlink_to(file)
    async with opened(link) as linked, opened(file) as other:
        async with linked.lock("key"):
            assert await other.lock("key").try_acquire() is None
        assert {path.name for path in tmp_path.iterdir()} == {"data", "link.db"}
        assert {path.name for path in file.parent.iterdir()} == {
            "tenure.db",
            "tenure.db-wal",
            "tenure.db-shm",
        }


# Mounts


async def test_a_file_that_is_mounted_alone_is_refused(file, monkeypatch, tmp_path):
    await made(file)
    told_mounts(monkeypatch, tmp_path, {tmp_path: "ext4", file: "ext4"})
    assert "Mount the folder, not the file" in await refused(file)
    told_mounts(monkeypatch, tmp_path, {tmp_path: "ext4", file.with_name("other.db"): "ext4"})
    await made(file)


async def test_names_with_blanks_are_found_among_the_mounts(tmp_path, monkeypatch):
    file = tmp_path / "a b\\c" / "tenure.db"
    file.parent.mkdir()
    await made(file)
    told_mounts(monkeypatch, tmp_path, {file: "ext4"})
    assert "Mount the folder" in await refused(file)


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "9p", "virtiofs", "fakeowner", "ceph"])
async def test_a_network_folder_is_refused_unless_allowed(file, monkeypatch, tmp_path, kind: str):
    told_mounts(monkeypatch, tmp_path, {Path("/"): "ext4", tmp_path: kind})
    text = await refused(file)
    assert f"network folder ({kind} at {tmp_path})" in text
    assert f"add {NETWORK} to the URL" in text
    assert not file.exists()
    async with opened(file, NETWORK) as app, app.lock("key") as hold:
        await hold.renew()  # by the store of the thread that renews


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "overlay", "tmpfs", "fuseblk"])
async def test_a_local_folder_is_used(file, monkeypatch, tmp_path, kind: str):
    told_mounts(monkeypatch, tmp_path, {Path("/"): "nfs", tmp_path: kind})
    await made(file)


async def test_where_the_system_tells_nothing_about_mounts(file, monkeypatch, tmp_path):
    monkeypatch.setattr(mounts, "MOUNTS", tmp_path / "missing")
    await made(file)


@pytest.mark.parametrize("option", ["?network_folder=yes", "?", "?network_folder=allow&x=1"])
def test_other_options_are_refused(file: Path, option: str):
    with pytest.raises(ConfigError, match="may end in \\?network_folder=allow"):
        Tenure(f"sqlite:///{file}{option}")


# Files that go


async def test_a_deleted_file_is_not_created_again(file):
    """Its disk may only be unmounted, and an empty store would look as if nothing was wrong."""
    async with opened(file) as app:

        @app.task
        async def work() -> None: ...

        job = await work.enqueue()
        away = file.with_name("away")
        away.mkdir()
        for part in sorted(file.parent.glob("tenure.db*")):
            part.rename(away / part.name)
        for call in (work.enqueue, app.lock("key", wait=0).acquire, app.jobs):
            with pytest.raises(StoreUnavailable, match="was deleted or moved away"):
                await call()
        assert not file.exists()
        for part in away.iterdir():
            part.rename(file.parent / part.name)
        assert (await job.refresh()).state == "waiting"


async def test_a_file_that_was_replaced_is_used(file, tmp_path, caplog):
    other = await made(tmp_path / "other.db")
    async with opened(file) as app:
        hold = await app.lock("key").acquire()
        for part in file.parent.glob("tenure.db*"):
            part.unlink()
        other.rename(file)
        async with app.lock("another"):
            assert "moved or replaced" in caplog.text
        with pytest.raises(LeaseLost):
            await hold.renew()


async def test_a_file_that_was_replaced_beside_its_old_log_is_refused(file, tmp_path):
    """SQLite would write the changes of the old file into the new one."""
    other = await made(tmp_path / "other.db")
    async with opened(file) as app:
        hold = await app.lock("key").acquire()
        away = file.rename(file.with_name("away.db"))
        other.rename(file)
        for call in (app.lock("another").acquire, app.jobs, hold.renew):
            with pytest.raises(StoreError, match="was replaced while it was in use"):
                await call()
        file.unlink()
        away.rename(file)
        await hold.renew()
        await hold.release()


async def test_a_log_that_was_deleted_is_noticed_and_saved_at_the_end(file):
    async with opened(file) as app:

        @app.task
        async def work() -> None: ...

        job = await work.enqueue()
        file.with_name("tenure.db-wal").unlink()
        for call in (work.enqueue, app.lock("key").acquire, job.refresh):
            with pytest.raises(StoreError, match="was deleted or replaced while it was in use"):
                await call()
    async with opened(file) as app:
        assert [listed.id for listed in await app.jobs()] == [job.id]
