"""examine: what a store reports about its own setup."""

import pytest

from tests.contract.worlds import World

pytestmark = pytest.mark.leases

REACH = {"process": "process", "host": "host", "fleet": "machines"}


async def test_an_examination_names_grade_and_scope(store):
    findings = {finding.subject: finding for finding in await store.examine()}
    assert findings["grade"].detail.startswith(store.traits.grade.name)
    assert REACH[store.traits.scope] in findings["scope"].detail


async def test_every_finding_that_is_not_ok_comes_with_advice(store):
    for finding in await store.examine():
        assert finding.level in ("ok", "note", "warning", "error")
        assert finding.detail
        assert finding.advice or finding.level == "ok"


async def test_an_examination_changes_nothing(store):
    before = await store.leases.find()
    await store.examine()
    assert await store.leases.find() == before


async def test_an_unopened_store_is_examined_too(world: World, store):
    unopened = world.unopened()
    assert {"grade", "scope"} <= {finding.subject for finding in await unopened.examine()}
    assert unopened.traits.grade == store.traits.grade
