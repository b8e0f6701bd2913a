"""Files: only their owner may read SQLite's database, or choose which file it is."""

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure import ConfigError, Tenure
from tenure.core.clock import SystemClock
from tenure.stores.connect import connect

pytestmark = pytest.mark.skipif(os.name != "posix", reason="about permissions of POSIX")
NOBODY_UID = 65534


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes_in(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


async def test_the_file_and_those_beside_it_are_the_owners_alone(tmp_path: Path, no_umask: None):
    async with Tenure(f"sqlite:///{tmp_path}/tenure.db") as app, app.lock("key"):
        made = modes_in(tmp_path)
    assert made == dict.fromkeys(["tenure.db", "tenure.db-wal", "tenure.db-shm"], 0o600)


async def test_a_link_of_our_own_is_followed(tmp_path: Path):
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    async with Tenure(f"sqlite:///{tmp_path}/link.db"):
        pass
    assert (tmp_path / "real.db").exists()


async def test_links_in_a_circle_are_refused(tmp_path: Path):
    (tmp_path / "one.db").symlink_to(tmp_path / "two.db")
    (tmp_path / "two.db").symlink_to(tmp_path / "one.db")
    with pytest.raises(ConfigError):
        await Tenure(f"sqlite:///{tmp_path}/one.db").open()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a link of somebody else")
async def test_a_link_that_somebody_else_put_into_a_shared_folder_is_refused(tmp_path: Path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "tenure.db").symlink_to(tmp_path / "victim.db")
    os.lchown(shared / "tenure.db", NOBODY_UID, NOBODY_UID)
    with pytest.raises(ConfigError, match="a link that another user has put into"):
        Tenure(f"sqlite:///{shared}/tenure.db")
    assert not (tmp_path / "victim.db").exists()
    # A user who may put a link into a private folder may do anything there.
    shared.chmod(0o755)
    connect(f"sqlite:///{shared}/tenure.db", namespace="n", clock=SystemClock())


async def test_the_connection_trusts_no_schema_and_loads_no_extension(tmp_path: Path):
    store = connect(f"sqlite:///{tmp_path}/tenure.db", namespace="n", clock=SystemClock())
    await store.open()
    try:
        setting = await store.run(lambda tx: tx._execute("PRAGMA trusted_schema").fetchone())
        assert setting == (0,)
        with pytest.raises(Exception, match=r"(?i)not authorized"):
            await store.run(lambda tx: tx._execute("SELECT load_extension('x')"))
    finally:
        await store.close()


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
async def test_the_socket_for_health_is_a_file_of_its_folder(tmp_path: Path):
    from tenure.supervisor.health import ask_health, serve_health

    path = tmp_path / "health"
    path.write_text("somebody's file")
    with pytest.raises(ConfigError, match="is no socket"):
        async with serve_health(path, dict):
            pass
    assert path.read_text() == "somebody's file"
    with pytest.raises(OSError, match="refused"):
        ask_health(path, 0.2)
