"""PostgreSQL does not run as root: finds a user who may run it, and files for that user."""

import os
import pwd
import shutil
from functools import cache
from pathlib import Path

from tests.rig.scratch import new_folder
from tests.rig.servers.server import clean_environment
from tests.rig.spawn import Identity, run

__all__ = ["fresh_cluster", "give_to_nobody", "public_copy", "reachable", "unprivileged"]

_CLUSTER = "TENURE_TEST_CLUSTER"
"""The variable that leads child processes to the cluster of their parent."""


@cache
def unprivileged() -> Identity:
    """Return the identity that lets this user run PostgreSQL."""
    if os.geteuid() != 0:
        return "self"
    try:
        run(["true"], identity="namespace")
    except RuntimeError:
        return "nobody"
    return "namespace"


@cache
def reachable(postgres: Path) -> Path:
    """Return a PostgreSQL installation that the user nobody may run: this one or a copy."""
    try:
        run([postgres, "--version"], identity="nobody", cwd=Path("/"))
    except RuntimeError:
        return public_copy(postgres)
    return postgres


def public_copy(postgres: Path) -> Path:
    # On disk, because programs may not run from the memory of many containers.
    folder = new_folder("programs", on_disk=True)
    folder.chmod(0o755)
    installation = postgres.parent.parent
    package = installation.parent
    copied = folder / package.name / installation.name
    shutil.copytree(installation, copied, ignore=shutil.ignore_patterns("include", "doc"))
    # A wheel keeps shared libraries in a folder beside its package and finds them from there.
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, folder / libraries.name)
    return copied / "bin" / postgres.name


def fresh_cluster(postgres: Path, identity: Identity) -> Path:
    """Return the data folder of a cluster that was never started: to copy, which beats `initdb`.

    The processes that this one starts copy the same folder.
    """
    if identity != unprivileged():
        return _make_cluster(postgres, identity)
    shared = Path(os.environ.get(_CLUSTER, "/nowhere"))
    if not shared.is_dir():
        shared = _make_cluster(postgres, identity)
        os.environ[_CLUSTER] = str(shared)
    return shared


@cache
def _make_cluster(postgres: Path, identity: Identity) -> Path:
    folder = new_folder("cluster")
    if identity == "nobody":
        give_to_nobody(folder)
    data = folder / "data"
    env = clean_environment()
    switches = "--username=tenure --auth=trust --no-sync --encoding=UTF8 --locale=C --wal-segsize=4"
    initdb: list[str | Path] = [postgres.with_name("initdb"), f"--pgdata={data}", *switches.split()]
    run(initdb, identity=identity, env=env, cwd=folder)
    # Renamed rather than created, because every database is hundreds of files more to copy.
    rename = b"ALTER DATABASE postgres RENAME TO tenure"
    alone: list[str | Path] = [postgres, "--single", "-D", data, "-c", "fsync=off", "template1"]
    run(alone, identity=identity, stdin=rename, env=env, cwd=folder)
    return data


def give_to_nobody(folder: Path) -> None:
    account = pwd.getpwnam("nobody")
    folder.chmod(0o755)
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, account.pw_uid, account.pw_gid)
