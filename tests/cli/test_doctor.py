"""What `tenure doctor` makes of findings, whatever the store."""

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.examination import Expected, check


@pytest.mark.parametrize(("grade", "code"), [("A", 2), ("B", 2), ("C", 2), ("D", 0)])
def test_a_grade_can_be_required(cli: Run, grade: str, code: int):
    result = cli("--url", "memory://", "doctor", "--require", grade)
    assert result.code == code
    assert ("this store has D" in result.out) == bool(code)


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


@pytest.mark.parametrize("url", ["memory://", "sqlite:///tenure.db"])
def test_a_fleet_can_be_required(cli: Run, monkeypatch: pytest.MonkeyPatch, url: str):
    assert cli("--url", url, "doctor", "--strict").code == 0
    result = cli("--url", url, "doctor", "--scope", "fleet")
    assert result.code == 2
    assert "only, but scope='fleet' asks for a store that reaches all hosts" in result.out
    monkeypatch.setenv("TENURE_SCOPE", "fleet")
    check(cli, url, Expected("error", "reach", "Name such a store in TENURE_URL."))
    monkeypatch.setenv("TENURE_SCOPE", "galaxy")
    check(cli, url, Expected("error", "reach", "TENURE_SCOPE is 'galaxy'"))


def test_a_store_of_one_host_in_a_pod_is_a_warning(cli: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    check(cli, "sqlite:///tenure.db", Expected("warning", "reach", "other pods do not see"))
    assert cli("doctor", "--strict").code == 1


def test_a_url_for_others_is_a_warning_if_the_store_is_the_default(
    cli: Run, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("REDIS_URL", "redis://:secret@cache/0")
    result = cli("doctor", "--strict")
    assert result.code == 1
    assert "REDIS_URL is set, but Tenure reads only TENURE_URL" in result.out
    assert "secret" not in result.out
    assert cli("--url", "sqlite:///tenure.db", "doctor", "--strict").code == 0


def test_a_misspelt_variable_is_a_warning(cli: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TENURE_NAME_SPACE", "shop")
    check(cli, "memory://", Expected("warning", "variable", "Did you mean TENURE_NAMESPACE?"))


def test_commands_work_on_any_store_whatever_services_ask_for(
    cli: Run, monkeypatch: pytest.MonkeyPatch
):
    cli("migrate")
    monkeypatch.setenv("TENURE_SCOPE", "fleet")
    monkeypatch.setenv("TENURE_REQUIRE", "A")
    assert cli("timers", "ls").code == 0
    assert cli("jobs", "ls").code == 0
