"""The tests that docs/jobs.md shows for an app that is made when its module is imported."""

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "jobs.md"


def test_the_tests_of_the_page_pass(tmp_path: Path):
    text = PAGE.read_text("utf-8")
    section = text.partition("## Test your own tasks")[2].partition("## Settings")[0]
    files = re.findall(r"^```python\n# (\S+\.py)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in files] == ["letters/tasks.py", "conftest.py", "test_letters.py"]
    for name, code in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(code, "utf-8")
    # No plugins: a reader may have none. The test that runs first must not help the other one.
    for chosen in ("test_letters.py", "test_letters.py::test_the_store_is_empty"):
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", chosen],
            cwd=tmp_path,
            env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
    assert list(tmp_path.glob("*.db")) == []
