"""What `tenure doctor` makes of findings, whatever the store."""

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.doctoring import Expected, check


@pytest.mark.parametrize(("grade", "code"), [("A", 2), ("B", 2), ("C", 2), ("D", 0)])
def test_a_grade_can_be_required(cli: Run, grade: str, code: int):
    told = cli("--url", "memory://", "doctor", "--require", grade)
    assert told.code == code
    assert ("this store has D" in told.out) == bool(code)


def test_strict_makes_warnings_count(cli: Run, tmp_path: Path):
    url = "sqlite:///tenure.db"
    cli("--url", url, "migrate")
    (tmp_path / "tenure.db").chmod(0o644)
    assert cli("--url", url, "doctor").code == 0
    assert cli("--url", url, "doctor", "--strict").code == 1
    assert cli("--url", url, "doctor", "--strict", "--json").json["level"] == "warning"
    assert cli("--url", url, "doctor").out.splitlines()[-1].startswith("1 warning")


def test_doctor_creates_nothing(cli: Run, tmp_path: Path):
    assert cli("doctor").code == 0
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("scheme", ["redis", "postgresql"])
@pytest.mark.parametrize("host", ["127.0.0.1:1", "no.such.host.invalid"])
def test_a_server_that_is_not_there(cli: Run, scheme: str, host: str):
    expected = Expected("error", "connection", "Check that the server runs")
    check(cli, f"{scheme}://me:secret@{host}/0", expected)
