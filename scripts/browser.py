"""Run the tests of the dashboard's pages in Chromium: python scripts/browser.py [pytest arguments].

Needs Chromium (Debian: apt-get install chromium fonts-dejavu-core) and npm, which fetches axe-core.
`make browser` prepares .venv first.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "browser"
LOCK = ROOT / "tests" / "browser"
NAMES = ("chromium", "chromium-browser", "google-chrome")


def main() -> None:
    """Run the tests; exit with their status."""
    program = chromium()
    if program is None or shutil.which("npm") is None:
        sys.exit("browser: needs Chromium and npm: apt-get install chromium npm fonts-dejavu-core")
    environment = {**os.environ, "BROWSER_CHROMIUM": program, "BROWSER_AXE": str(axe())}
    command = [sys.executable, "-m", "pytest", "-q", "tests/browser", *sys.argv[1:]]
    sys.exit(subprocess.run(command, cwd=ROOT, check=False, env=environment).returncode)


def chromium() -> str | None:
    """Return the path of Chromium; None if there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def axe() -> Path:
    """Return the file of axe-core in the pinned version, which npm checks by its hash."""
    file = BUILD / "node_modules" / "axe-core" / "axe.min.js"
    BUILD.mkdir(parents=True, exist_ok=True)
    lock = (LOCK / "package-lock.json").read_bytes()
    stamp = BUILD / "package-lock.json"
    if not file.exists() or stamp.read_bytes() != lock:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(LOCK / name, BUILD / name)
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
        subprocess.run(command, cwd=BUILD, check=True)
    return file


if __name__ == "__main__":
    main()
