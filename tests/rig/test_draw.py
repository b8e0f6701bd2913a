"""What the gate runs of the collected tests: something of each, and the same in each run."""

from collections import Counter
from dataclasses import dataclass, field

import pytest

from tests.rig.draw import MANY_CASES, drawn

STORES = ("memory", "redis", "sqlite")


@dataclass
class CallSpec:
    params: dict[str, object]

    @property
    def _idlist(self) -> list[str]:
        return [str(value) for value in self.params.values()]


@dataclass(eq=False)
class Item:
    name: str
    params: dict[str, object] = field(default_factory=dict)
    mark: pytest.Mark | None = None
    folder: str = "http"

    @property
    def callspec(self) -> CallSpec:
        return CallSpec(self.params)

    @property
    def nodeid(self) -> str:
        values = "-".join(map(str, self.params.values()))
        return f"tests/{self.folder}/test_it.py::{self.name}[{values}]"

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self.mark if self.mark is not None and self.mark.name == name else None


def on_stores(cases: int = 40, **details: object) -> list[Item]:
    return [
        Item("stores", {"family": store, "case": case}, **details)
        for case in range(cases)
        for store in STORES
    ]


def test_each_case_runs_on_one_store_and_the_cases_on_all():
    kept = drawn(on_stores(12))
    assert Counter(item.params["case"] for item in kept) == dict.fromkeys(range(12), 1)
    assert {item.params["family"] for item in kept} == set(STORES)


def test_of_many_cases_some_run():
    assert len(drawn(on_stores(40))) == MANY_CASES


def test_of_hostile_input_all_cases_run():
    assert len(drawn(on_stores(40, folder="security"))) == 40


def test_a_test_keeps_its_store():
    first, second = on_stores(), on_stores()
    second.reverse()
    assert {item.nodeid for item in drawn(first)} == {item.nodeid for item in drawn(second)}


@pytest.mark.parametrize("folder", ["contract", "cost", "interleavings", "model", "stores"])
def test_tests_of_the_stores_run_on_every_store(folder: str):
    items = on_stores(5, folder=folder)
    assert drawn(items) == set(items)


def test_many_cases_share_the_stores_evenly():
    kept = drawn(on_stores(12, folder="contract"))
    assert Counter(item.params["family"] for item in kept) == dict.fromkeys(STORES, 4)


def test_a_mark_asks_for_every_store():
    items = on_stores(5, mark=pytest.mark.every_store.mark)
    assert drawn(items) == set(items)


def test_tests_without_a_store_run():
    items = [Item("alone"), *(Item("cases", {"case": case}) for case in range(5))]
    assert drawn(items) == set(items)


def test_a_mark_says_how_many_cases_run():
    items = [Item("cases", {"case": case}, pytest.mark.draw(2).mark) for case in range(5)]
    assert len(drawn(items)) == 2


def test_a_mark_leaves_a_test_to_the_proof():
    assert drawn([Item("long", mark=pytest.mark.proof("it takes long").mark)]) == set()


@pytest.mark.proof("the gate runs it if the marks have no effect")
def test_the_gate_leaves_this_out(pytestconfig: pytest.Config):
    assert not pytestconfig.getoption("--gate")


@pytest.mark.draw(1)
@pytest.mark.parametrize("case", range(3))
def test_the_gate_runs_one_of_these(request: pytest.FixtureRequest, case: int):
    names = [item.name for item in request.session.items if item.name.startswith("test_the_gate_r")]
    assert len(names) == 1 or not request.config.getoption("--gate")
    assert f"test_the_gate_runs_one_of_these[{case}]" in names
