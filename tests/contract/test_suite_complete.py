"""Every part of the contract is tested on every store."""

import ast
import os
import re
from pathlib import Path

import pytest

from tenure.stores import connect
from tenure.stores.contract import (
    Jobs,
    Leases,
    LeaseStore,
    Schedules,
    Store,
    UserTransaction,
    Watch,
)
from tests.contract.worlds import FAMILIES, World, chosen_families, planned_tests
from tests.rig import fixtures

FOLDER = Path(__file__).parent


def test_every_store_that_a_url_can_name_is_tested():
    named = {module.rpartition(".")[2] for module, _, _ in connect._STORES.values()}
    assert named == set(FAMILIES)


def test_every_test_runs_on_every_store(pytestconfig: pytest.Config):
    planned = planned_tests(pytestconfig)
    here = f"{Path(__file__).name}::"
    chosen = set(chosen_families(pytestconfig))
    assert {
        test: families
        for test, families in planned.items()
        if families != chosen and not test.startswith(here)
    } == {}


def test_every_method_of_the_contract_is_called_in_some_test():
    called: set[str] = set()
    for file in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                called |= {node.attr, ".".join(ast.unparse(node).rsplit(".", 2)[-2:])}
    promised = {
        name
        for promise in (Store, LeaseStore, Watch, UserTransaction)
        for name in {**vars(promise), **promise.__annotations__}
        if not name.startswith("_")
    }
    for part, promise in (("leases", Leases), ("jobs", Jobs), ("schedules", Schedules)):
        promised |= {f"{part}.{name}" for name in vars(promise) if not name.startswith("_")}
    assert promised - called == set()


def test_every_test_without_jobs_and_schedules_is_in_the_lease_suite(
    request: pytest.FixtureRequest,
):
    marked = {
        item.path.name
        for item in request.session.items
        if item.path.parent == FOLDER and item.get_closest_marker("leases")
    }
    collected = {item.path for item in request.session.items if item.path.parent == FOLDER}
    free = {
        path.name
        for path in collected
        if path.name != Path(__file__).name
        and not re.search(r"\bjobs\b|schedules|job_calls", path.read_text(encoding="utf-8"))
    }
    assert free - marked == set()


def test_the_gate_tests_every_store(pytestconfig: pytest.Config):
    left_out = set(FAMILIES) - set(chosen_families(pytestconfig))
    assert os.environ.get("CI") != "true" or not left_out


@pytest.mark.parametrize("server", ["valkey", "postgres"])
def test_a_missing_server_is_a_failure_at_the_gate(monkeypatch: pytest.MonkeyPatch, server: str):
    monkeypatch.setitem(fixtures._FIND, server, lambda: None)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception):
        fixtures.require(server)
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception):
        fixtures.require(server)


async def test_every_test_starts_with_an_empty_namespace(world: World, store: Store):
    assert await store.leases.find() == []
    assert world.namespace == store.namespace
