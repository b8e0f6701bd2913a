"""Two boot clocks on one SQLite file, with real namespaces. tests/stores/sqlite has the rules."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.site import Site
from tests.rig.mounts import own_clock, own_mounts
from tests.rig.sizes import SIZE

pytestmark = pytest.mark.on("sqlite")

# Renewed every 0.9 s: each renewal is a sign of life.
TTL = 3.0


def with_another_clock(_: Path) -> tuple[str, ...]:
    return own_clock(100_000)


def with_a_clock_behind(_: Path) -> tuple[str, ...]:
    return own_clock(-1)


def with_another_boot_id(folder: Path) -> tuple[str, ...]:
    """As in a container of systemd-nspawn, or on another machine."""
    name = folder / "boot_id"
    name.write_text("01234567-89ab-4cde-8f01-23456789abcd\n")
    mount = f"mount --bind {name} /proc/sys/kernel/random/boot_id"
    return (*own_mounts(), "sh", "-ec", f'{mount}; exec "$@"', "sh")


@pytest.fixture(params=[with_another_clock, with_a_clock_behind, with_another_boot_id])
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, ...]:
    """The command that runs another one with a boot clock of its own."""
    return request.param(tmp_path)


def run(elsewhere: tuple[str, ...], *arguments: str) -> tuple[int, str]:
    command = [*elsewhere, sys.executable, *arguments]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=SIZE.patience + 40
    )
    return ended.returncode, ended.stdout + ended.stderr


HOLD = """
import asyncio, sys
from tenure import Tenure

async def main(url, namespace):
    async with Tenure(url, namespace=namespace) as app, app.lock("invoice:42", wait=0) as hold:
        print("held", hold.fence)

asyncio.run(main(*sys.argv[1:]))
"""


def test_a_program_with_another_boot_clock_is_refused_while_one_holds_a_lock(
    site: Site, elsewhere: tuple[str, ...]
):
    [holder] = site.start_holders(TTL, "invoice:42")
    holder.send("acquire")
    fence = holder.expect("held", SIZE.patience)["fence"]

    code, output = run(elsewhere, "-c", HOLD, site.url, site.namespace)
    assert code != 0
    assert "is in use by programs of another machine" in output
    assert os.uname().nodename in output
    assert "held" not in output.splitlines()

    code, output = run(elsewhere, "-m", "tenure", "--url", site.url, "doctor")
    assert code == 2
    assert "another machine, or a container with another clock, uses the file" in output

    holder.send("release")
    assert holder.expect("released", SIZE.patience)["fence"] == fence


def test_containers_that_share_a_folder_are_one_machine(site: Site, tmp_path: Path):
    """As two containers on one host, with their own mounts and host names."""
    file = Path(site.url.removeprefix("sqlite:///"))
    folder = tmp_path / "volume"
    folder.mkdir()
    mount = f"mount --bind {file.parent} {folder}; hostname container"
    container = (*own_mounts(), "--uts", "sh", "-ec", f'{mount}; exec "$@"', "sh")
    url = f"sqlite:///{folder / file.name}"
    [holder] = site.start_holders(TTL, "invoice:42")
    holder.send("acquire")
    holder.expect("held", SIZE.patience)

    code, output = run(container, "-c", HOLD, url, site.namespace)
    assert code != 0
    assert "was not free within 0 s" in output
    assert "another machine" not in output

    holder.send("release")
    holder.expect("released", SIZE.patience)
    code, output = run(container, "-c", HOLD, url, site.namespace)
    assert (code, output.split()[0]) == (0, "held")
