"""`examine`, a promise of every store: facts about the place it lives in, without touching it."""

import pytest

from tenure.core.clock import SystemClock
from tenure.core.leases import Finding
from tenure.stores.connect import connect
from tenure.stores.contract import Store
from tenure.testing import Faults, FaultyStore
from tests.contract.worlds import World

FACTS = {"store", "grade", "scope", "clock", "format"}


def by_subject(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.subject: finding for finding in findings}


async def test_the_facts_are_told_by_every_store(store: Store):
    findings = by_subject(await store.examine())
    assert set(findings) >= FACTS
    assert findings["grade"].detail.startswith(f"{store.traits.grade.name}, ")
    assert store.namespace in findings["store"].detail
    assert {findings[fact].level for fact in FACTS - {"scope"}} == {"ok"}


async def test_a_store_that_is_not_open_is_examined_as_well(real_world: World):
    opened, unopened = await real_world.store(), real_world.unopened()
    findings = by_subject(await unopened.examine())
    assert {subject: finding.level for subject, finding in findings.items()} == {
        subject: finding.level for subject, finding in by_subject(await opened.examine()).items()
    }
    assert unopened.traits.grade is opened.traits.grade
    await unopened.open()
    await unopened.close()


async def test_examining_does_not_set_a_store_up(blank_world: World):
    before = by_subject(await blank_world.unopened().examine())["format"]
    assert by_subject(await blank_world.unopened().examine())["format"] == before
    assert before.level == ("ok" if blank_world.family == "memory" else "note")


async def test_a_faulty_store_passes_it_on(store: Store):
    faults = Faults()
    faulty = FaultyStore(store, faults)
    assert [finding.subject for finding in await faulty.examine()] == [
        finding.subject for finding in await store.examine()
    ]
    assert faults.calls["examine"] == 1


@pytest.mark.parametrize(
    "url", ["redis://u:secret@127.0.0.1:1/0", "postgresql://u:secret@127.0.0.1:1/x"]
)
async def test_a_server_that_does_not_answer_is_a_finding(url: str):
    store = connect(url, namespace="app", clock=SystemClock())
    [first, *_, last] = await store.examine()
    assert (first.subject, last.level) == ("store", "error")
    assert "secret" not in first.detail + last.detail + last.advice


def test_a_finding_without_advice_is_a_bug():
    with pytest.raises(AssertionError):
        Finding("warning", "disk", "full")


@pytest.mark.parametrize(
    ("ahead", "error", "level"),
    [(0, 0, "ok"), (0.9, 0.1, "ok"), (1.2, 0.3, "ok"), (1.2, 0.1, "warning"), (-9, 1, "warning")],
)
def test_a_clock_is_off_only_beyond_doubt(ahead: float, error: float, level: str):
    assert Finding.of_clock(ahead, error).level == level
