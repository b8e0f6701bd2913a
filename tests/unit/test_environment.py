"""How mistakes of the set-up are read from the environment, as pure decisions."""

import re
from pathlib import Path

import click
import pytest

from tenure.cli.worker.command import worker
from tenure.core.environment import (
    VARIABLES,
    default_store_problem,
    reaches,
    unknown_variables,
)

JOBS = Path(__file__).parents[2] / "docs" / "jobs.md"


def test_the_documented_variables_are_those_that_are_known():
    table = JOBS.read_text().partition("## Settings")[2].partition("\n## ")[0]
    assert set(re.findall(r"\| `(TENURE_\w+)`", table)) == VARIABLES


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("TENURE_REPLICATTL", "TENURE_REPLICA_TTL"),
        ("TENURE_RETENSION", "TENURE_RETENTION"),
        ("TENURE_NAME_SPACE", "TENURE_NAMESPACE"),
        ("TENURE_REDIS_URL", "TENURE_URL"),
        ("TENURE_COLOUR_OF_THE_SKY", None),
        ("TENURE_GRACE_PERIOD", "TENURE_GRACE"),
        ("TENURE_URI", "TENURE_URL"),
        ("TENURE_RETRY", None),
        ("TENURE_CONCURRENCY", "the option --concurrency of 'tenure worker'"),
        ("TENURE_MAX_MEMORY", "the option --max-memory of 'tenure worker'"),
    ],
)
def test_an_unknown_variable_gets_the_closest_name(variable: str, meant: str | None):
    environ = {variable: "x", "TENURE_URL": "memory://", "PATH": "/bin"}
    assert unknown_variables(environ) == {variable: meant}


@pytest.mark.parametrize(
    "variable",
    [
        *sorted(VARIABLES),
        "TENURE_TEST_SIZE",
        "TENURE_PLANTED",
        "TENURE_SERVICE_HOST",
        "TENURE_SERVICE_PORT",
        "TENURE_SERVICE_PORT_HTTP",
        "TENURE_PORT",
        "TENURE_REDIS_PORT",
        "TENURE_REDIS_PORT_6379_TCP",
        "TENURE_REDIS_PORT_6379_TCP_ADDR",
        "TENURED_URL",
    ],
)
def test_known_variables_those_of_tests_and_those_of_kubernetes_are_no_mistake(variable: str):
    assert unknown_variables({variable: "x"}) == {}


def test_every_option_of_a_worker_without_a_variable_is_named():
    options = {parameter.name for parameter in worker.params if isinstance(parameter, click.Option)}
    without = {name for name in options if f"TENURE_{name.upper()}" not in VARIABLES}
    for name in without:
        option = name.replace("_", "-")
        meant = {f"TENURE_{name.upper()}": f"the option --{option} of 'tenure worker'"}
        assert unknown_variables({f"TENURE_{name.upper()}": "x"}) == meant


def test_the_default_store_is_fine_at_a_terminal_and_in_tests():
    assert default_store_problem({}, is_terminal=True) is None
    assert default_store_problem({"PYTEST_CURRENT_TEST": "x"}, is_terminal=False) is None


def test_elsewhere_it_is_a_problem_that_names_what_is_ignored():
    problem = default_store_problem({}, is_terminal=False)
    assert problem is not None
    assert "this host only" in problem
    assert "Set TENURE_URL" in problem
    assert "is set" not in problem
    problem = default_store_problem({"REDIS_URL": "redis://cache"}, is_terminal=False)
    assert problem is not None
    assert "REDIS_URL is set, but Tenure reads TENURE_URL only." in problem
    assert "redis://cache" not in problem  # it may have a password


def test_in_a_pod_a_terminal_is_no_excuse():
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert default_store_problem(pod, is_terminal=True) is not None


def test_scopes_are_ordered():
    assert reaches("fleet", "host")
    assert reaches("host", "host")
    assert not reaches("host", "fleet")
    assert not reaches("process", "host")
