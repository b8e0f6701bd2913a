"""Prepare `.venv`: python3 scripts/setup.py [demo | dev | browser | bench].

`demo` installs what the tour runs on, `dev` everything for checks and tests, `browser` in addition
a driver for Chromium, `bench` the peers to compare with; each but `bench` has all of the one before
it, `bench` has all of `dev`, and each serves for what it has. Every package is pinned
and checked by hash. A second run costs nothing until the requirements, pyproject.toml, the Python
version or the place of the checkout change.

Standard library only, and no syntax newer than Python 3.6: this file has to start on any machine
to say what that machine lacks.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = str(VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))
STAMP = VENV / "tenure-setup"
VERSION = "{}.{}".format(*sys.version_info[:2])
SERVED_BY = {
    "demo": ("demo", "dev", "browser", "bench"),
    "dev": ("dev", "browser", "bench"),
    "browser": ("browser",),
    "bench": ("bench",),
}


def main() -> None:
    target = sys.argv[1] if len(sys.argv) > 1 else "dev"
    if target not in SERVED_BY:
        sys.exit("usage: python3 scripts/setup.py [demo | dev | browser | bench]")
    if sys.version_info < (3, 11):
        sys.exit(f"setup: Tenure needs Python 3.11 or newer; {sys.executable} is {VERSION}")

    started = time.monotonic()
    stamp = STAMP.read_text().splitlines() if STAMP.exists() else []
    same_place = stamp[:1] in ([], [place()])
    if not (same_place and usable()):
        create()
    elif stamp[1:] in [[state(name)] for name in SERVED_BY[target]]:
        return

    print(f"setup: installing the {target} requirements into .venv", flush=True)
    STAMP.unlink(missing_ok=True)  # so that an interrupted installation is repeated
    install("--require-hashes", "-r", str(ROOT / "requirements" / f"{target}.txt"))
    # hatchling is among the requirements, so the build needs no environment of its own.
    install("--no-deps", "--no-build-isolation", "-e", str(ROOT))
    STAMP.write_text(f"{place()}\n{state(target)}\n")
    print(f"setup: .venv is ready ({time.monotonic() - started:.0f} s)", flush=True)


def place() -> str:
    """Name the folder and Python that the environment's scripts have written into them."""
    return f"python {VERSION} in {ROOT}"


def state(name: str) -> str:
    """Digest what the installed packages follow from."""
    digest = hashlib.sha256()
    for path in (ROOT / "requirements" / f"{name}.txt", ROOT / "pyproject.toml"):
        digest.update(path.read_bytes())
    return f"{name} {digest.hexdigest()}"


def usable() -> bool:
    """Tell whether `.venv` has a Python that starts, of the version we run on."""
    return works(PYTHON, "-c", f"import sys; sys.exit(sys.version[:{len(VERSION)}] != '{VERSION}')")


def create() -> None:
    """Make a fresh `.venv` with the first tool that can."""
    for tool in (
        [sys.executable, "-m", "venv"],
        [sys.executable, "-m", "virtualenv"],
        ["uv", "venv", "--python", sys.executable],
    ):
        # Debian's Python without python3-venv fails halfway and leaves an environment without pip.
        shutil.rmtree(VENV, ignore_errors=True)
        if works(*tool, str(VENV)):
            return
    shutil.rmtree(VENV, ignore_errors=True)
    sys.exit("setup: cannot create .venv; install one of: python3-venv (apt), virtualenv, uv")


def install(*arguments: str) -> None:
    """Install into `.venv`, with uv where the environment came without pip."""
    if works(PYTHON, "-c", "import pip"):
        tool = [PYTHON, "-m", "pip", "-qq", "--disable-pip-version-check", "install"]
    elif shutil.which("uv"):
        tool = ["uv", "pip", "install", "--quiet", "--python", PYTHON]
    else:
        sys.exit("setup: .venv has no pip and uv is not on PATH; remove .venv and run again")
    if subprocess.run([*tool, *arguments], check=False, cwd=ROOT).returncode:
        sys.exit("setup: the installation failed, see above")


def works(*command: str) -> bool:
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except OSError:
        return False


if __name__ == "__main__":
    main()
