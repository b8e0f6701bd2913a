"""`tenure migrate`, on every store."""

import pytest

from tenure import blocking
from tests.cli.conftest import Run


@pytest.fixture
def options(family: str, blank_url: str, namespace: str) -> tuple[str, ...]:
    """Where no store has been yet."""
    return ("--url", blank_url, "--namespace", namespace)


def test_migrating_is_seen_by_checks(cli: Run, family: str, options: tuple[str, ...]):
    before = cli(*options, "migrate", "--check")
    if family != "memory":  # where there is never anything to do
        assert before.code == 2
        assert before.err.splitlines()[-1].startswith("Error: ")
        assert cli(*options, "migrate").out == "The format was brought up to date.\n"
    result = cli(*options, "migrate", "--check")
    assert (result.code, result.out) == (0, "The format is up to date.\n")
    document = cli(*options, "migrate", "--json").json
    assert document == {"store": options[1], "namespace": options[3], "changed": False}


def test_a_store_that_was_migrated_opens_with_check(
    cli: Run, family: str, blank_url: str, options: tuple[str, ...]
):
    assert cli(*options, "migrate", "--json").json["changed"] == (family != "memory")
    with (
        blocking.Tenure(blank_url, namespace=options[3], migrate="check") as app,
        app.lock("invoice:42"),
    ):
        pass


def test_checking_creates_nothing(cli: Run, tmp_path):
    assert cli("--url", "sqlite:///tenure.db", "migrate", "--check").code == 2
    assert [*tmp_path.iterdir()] == []
