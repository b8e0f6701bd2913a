"""What `make test` leaves to `make proof`: with `--gate`, pytest runs a draw of what was collected.

- Of the cases of a test, 12 run, or as many as `@pytest.mark.draw(5)` says; of hostile input all.
- A test that runs on several stores runs on one of them; if it has several cases, they take turns.
  In folders that are about the stores, only tests of many cases do: each still runs on each store.
- `@pytest.mark.every_store`: the cases run on all stores.
- `@pytest.mark.proof("why")`: the test does not run.

Names decide, so that each run of a commit tests the same, and a test keeps its store. Other runs
of pytest, such as those of `make proof`, of mutants or of a single file, leave nothing out.
"""

from collections import defaultdict
from collections.abc import Iterable
from zlib import crc32

import pytest

__all__ = ["draw_stores", "drawn"]

ABOUT_STORES = frozenset({"contract", "cost", "interleavings", "model", "stores"})
"""The folders below `tests` whose tests run on every store."""
HOSTILE = frozenset({"security"})
MANY_CASES = 12


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run be the gate."""
    parser.addoption("--gate", action="store_true", help="leave to `make proof` what takes long")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks of tests that the gate leaves out in part."""
    config.addinivalue_line("markers", "every_store: the gate runs it on each store")
    config.addinivalue_line("markers", "draw(cases): the gate runs so many of its cases")
    config.addinivalue_line("markers", "proof(reason): runs in `make proof`, not in the gate")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what this gate leaves out; pytest says how many tests that are."""
    if config.getoption("--gate"):
        kept = drawn(items)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]


def drawn(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Return the tests that the gate runs: of each test function at least one case, or none."""
    functions: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        functions[item.nodeid.partition("[")[0]].append(item)
    kept: set[pytest.Item] = set()
    for function in functions.values():
        if function[0].get_closest_marker("proof") is None:
            kept.update(_drawn_of(function))
    return kept


def draw_stores(request: pytest.FixtureRequest, stores: list[str]) -> list[str]:
    """Return where a test that works on several stores at once does so: in the gate on one."""
    if not stores or not request.config.getoption("--gate"):
        return stores
    return [stores[_number(request.node.nodeid) % len(stores)]]


def _drawn_of(function: list[pytest.Item]) -> list[pytest.Item]:
    """Return some cases of one test function, each on all of its stores or on one."""
    cases: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in sorted(function, key=lambda item: item.nodeid):
        cases[_name_without_store(item)].append(item)
    chosen = [cases[name] for name in sorted(cases, key=_number)[: _most_cases(function[0])]]
    is_about_stores = _folder(function[0]) in ABOUT_STORES and len(cases) < MANY_CASES
    if is_about_stores or function[0].get_closest_marker("every_store") is not None:
        return [item for on_stores in chosen for item in on_stores]
    first = _number(function[0].nodeid.partition("[")[0])
    return [on_stores[(first + turn) % len(on_stores)] for turn, on_stores in enumerate(chosen)]


def _most_cases(item: pytest.Item) -> int | None:
    mark = item.get_closest_marker("draw")
    if mark is not None:
        most: int = mark.args[0]
        return most
    return None if _folder(item) in HOSTILE else MANY_CASES


def _folder(item: pytest.Item) -> str:
    return item.nodeid.split("/")[1]


def _name_without_store(case: pytest.Item) -> str:
    callspec = getattr(case, "callspec", None)
    if callspec is None or "family" not in callspec.params:
        return case.nodeid
    others = [part for part in callspec._idlist if part != callspec.params["family"]]
    return f"{case.nodeid.partition('[')[0]}[{'-'.join(others)}]"


def _number(name: str) -> int:
    return crc32(name.encode())
