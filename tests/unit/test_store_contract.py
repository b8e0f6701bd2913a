"""The shape of the store contract: few methods, no store by name, no unused arguments."""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.stores import contract
from tenure.stores.connect import connect
from tenure.stores.contract import Jobs, Leases, LeaseStore, Schedules, Store
from tenure.testing import ManualClock

METHODS_MAX = 35
"""Each costs four implementations. Before you add one, try an argument of another call."""

PARTS: dict[str, type] = {"leases": Leases, "jobs": Jobs, "schedules": Schedules}
URLS = [
    "memory://",
    "sqlite:///contract.db",
    "redis://127.0.0.1/0",
    "postgresql://tenure@127.0.0.1/tenure",
]
OF_STORES = ("memory", "sqlite", "redis", "valkey", "postgres", "asyncpg", "lua")


def methods_of(*protocols: type) -> list[str]:
    """Return the names of the methods that these protocols define themselves."""
    return [
        name
        for protocol in protocols
        for name, value in vars(protocol).items()
        if not name.startswith("_") and inspect.isfunction(value)
    ]


OF_THE_STORE = methods_of(LeaseStore, Store)
METHODS = [
    *OF_THE_STORE,
    *(f"{part}.{name}" for part, protocol in PARTS.items() for name in methods_of(protocol)),
]


def test_a_store_has_few_methods():
    assert len(METHODS) <= METHODS_MAX, METHODS


def test_the_page_for_authors_of_stores_counts_them_correctly():
    page = (Path(__file__).parents[2] / "docs" / "write-a-store.md").read_text(encoding="utf-8")
    counts = re.findall(r"`store\.(\w+)` \| `tenure\.stores\.contract\.\w+`, (\d+) methods", page)
    assert {part: int(count) for part, count in counts} == {
        part: len(methods_of(protocol)) for part, protocol in PARTS.items()
    }


def test_every_store_has_all_of_them_in_the_same_places():
    for store in stores():
        for method in METHODS:
            assert callable(method_of(store, method)), (store.url, method)


def test_the_contract_names_no_store():
    folder = Path(contract.__file__).parent
    named = [
        f"{file.name}:{number} {word}"
        for file in sorted(folder.glob("*.py"))
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1)
        for word in OF_STORES
        if word in line.lower()
    ]
    assert named == []


@pytest.mark.parametrize("method", METHODS)
def test_every_argument_means_something_to_some_store(method: str):
    promised = set(inspect.signature(promise_of(method)).parameters) - {"self"}
    used = {name for store in stores() for name in names_read(method_of(store, method))}
    assert promised - used == set()


def test_every_store_takes_the_arguments_that_are_promised():
    for store in stores():
        for method in METHODS:
            promised = [*inspect.signature(promise_of(method)).parameters.values()][1:]
            taken = inspect.signature(method_of(store, method)).parameters
            for parameter in promised:
                if parameter.kind is not parameter.VAR_POSITIONAL:
                    assert parameter.name in taken, (store.url, method)
                    assert taken[parameter.name].default == parameter.default, (store.url, method)


def stores() -> Iterator[Store]:
    """Return a store object of each kind, not opened."""
    for url in URLS:
        yield connect(url, namespace="contract", clock=ManualClock())


def method_of(store: Store, method: str) -> Any:
    """Return a method such as "jobs.claim"."""
    part, _, name = method.rpartition(".")
    return getattr(getattr(store, part) if part else store, name)


def promise_of(method: str) -> Callable[..., Any]:
    part, _, name = method.rpartition(".")
    promise: Callable[..., Any] = getattr(PARTS[part] if part else Store, name)
    return promise


def names_read(function: Callable[..., Any]) -> set[str]:
    """Return the names whose values a function reads; `del` and assignments read none."""
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
    return {
        node.id
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
