"""Filters, searches and bulk actions: which jobs they are about, and what they say about it."""

from typing import Any

import pytest

from tenure import Tenure
from tenure.core.ids import JobIds
from tenure.core.jobs.records import NewJob
from tenure.core.schedules.records import TIMERS_QUEUE
from tenure.dashboard import Viewer, selection
from tenure.dashboard.owners import owner_of, tags_to_show
from tenure.http.request import owner_tag
from tests.dashboard.desk import Desk, desk_on

HELPER = Viewer("hal", may_act=True, may_see_owners=False)


class Jobs:
    """Jobs of an app, as stores have them."""

    def __init__(self, app: Tenure) -> None:
        self._app = app
        self._ids = JobIds(app._engine.store.clock)

    async def add(self, number: int = 1, **options: Any) -> list[str]:
        """Store jobs; return their ids, newest first."""
        store = self._app._engine.services().store
        new = [NewJob(**{"id": self._ids.make(), "task": "t"} | options) for _ in range(number)]
        for first in range(0, number, 200):
            await store.jobs.insert(new[first : first + 200])
        return [job.id for job in reversed(new)]

    async def fail(self, ids: list[str]) -> None:
        """Let jobs be cancelled, which have an error text as well: their reason."""
        store = self._app._engine.services().store
        for first in range(0, len(ids), 200):
            await store.jobs.cancel(ids[first : first + 200], reason="disk FULL")


def ids_of(page: dict[str, Any]) -> list[str]:
    return [job["id"] for job in page["jobs"]]


async def pages(desk: Desk, **query: str) -> list[list[str]]:
    """Return the ids on each page of a list."""
    listed = []
    while True:
        page = await desk.get("api/jobs", **query)
        listed.append(ids_of(page))
        if page["cursor"] is None:
            return listed
        query["cursor"] = page["cursor"]


async def test_lists_go_on_where_they_ended(app: Tenure) -> None:
    ids = await Jobs(app).add(7)
    async with desk_on(app) as desk:
        listed = await pages(desk, limit="3")
        assert [id_ for page in listed for id_ in page] == ids
        assert max(map(len, listed)) == 3
        for wrong in ("x", ids[0][:-1], "%00"):
            await desk.get("api/jobs", 400, cursor=wrong)


async def test_filters_meet_all_conditions(app: Tenure) -> None:
    jobs = Jobs(app)
    [mail] = await jobs.add(queue="mail", tags=("a", "b"))
    [other] = await jobs.add(queue="mail", task="u")
    async with desk_on(app) as desk:
        assert ids_of(await desk.get("api/jobs", queue="mail")) == [other, mail]
        assert ids_of(await desk.get("api/jobs", queue="mail", task="u")) == [other]
        assert ids_of(await desk.get("api/jobs", state="waiting", tag="b")) == [mail]
        assert ids_of(await desk.get("api/jobs", state="running")) == []
        for wrong in ({"state": "lost"}, {"queue": "x" * 201}, {"colour": "red"}, {"tag": "\0"}):
            await desk.get("api/jobs", 400, **wrong)


async def test_an_id_or_its_end_finds_a_job(app: Tenure) -> None:
    ids = await Jobs(app).add(3)
    async with desk_on(app) as desk:
        assert ids_of(await desk.get("api/jobs", id=ids[1])) == [ids[1]]
        page = await desk.get("api/jobs", id=ids[1][-8:].upper())
        assert ids_of(page) == [ids[1]]
        assert page["searched"] == 3
        assert page["note"] == "Searched 3 jobs: the newest 10,000 of each state at most."
        missing = ids[1][:-12] + "0" * 12
        page = await desk.get("api/jobs", id=missing)
        assert (page["jobs"], page["searched"]) == ([], None)
        for wrong in ("abc", "xyz-xyz", "a" * 37):
            await desk.get("api/jobs", 400, id=wrong)


async def test_the_text_of_an_error_is_searched(app: Tenure) -> None:
    jobs = Jobs(app)
    full = await jobs.add(3)
    await jobs.add(2)
    await jobs.fail(full)
    async with desk_on(app) as desk:
        page = await desk.get("api/jobs", error="disk full")
        assert ids_of(page) == full
        assert "waiting and running and failed and cancelled" in page["note"]
        listed = await pages(desk, error="Disk", state="cancelled", limit="2")
        assert [id_ for page in listed for id_ in page] == full
        assert ids_of(await desk.get("api/jobs", error="disk full", state="waiting")) == []


async def test_searches_end_after_the_newest_of_a_state(
    still: Tenure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "_UNINDEXED", 2)
    ids = await Jobs(still).add(500)
    async with desk_on(still) as desk:
        page = await desk.get("api/jobs", id=ids[399], state="waiting")
        assert ids_of(page) == [ids[399]]
        page = await desk.get("api/jobs", id=ids[399][-10:], state="waiting")
        assert (ids_of(page), page["searched"]) == ([ids[399]], 400)
        page = await desk.get("api/jobs", id=ids[400][-10:], state="waiting")
        assert (ids_of(page), page["searched"]) == ([], 400)


async def test_runs_of_timers_are_listed_on_request(app: Tenure) -> None:
    jobs = Jobs(app)
    await jobs.add(5, queue=TIMERS_QUEUE, task="@tick")
    [job] = await jobs.add()
    async with desk_on(app) as desk:
        assert ids_of(await desk.get("api/jobs")) == [job]
        assert len(ids_of(await desk.get("api/jobs", timers="1"))) == 6
        assert len(ids_of(await desk.get("api/jobs", task="@tick"))) == 5


async def test_no_job_is_left_out_behind_runs_of_timers(app: Tenure) -> None:
    """They are read with the jobs, and a page may end in the middle of what was read."""
    jobs = Jobs(app)
    ids = await jobs.add(7)
    await jobs.add(2, queue=TIMERS_QUEUE, task="@tick")
    async with desk_on(app) as desk:
        listed = await pages(desk, limit="3")
        assert [id_ for page in listed for id_ in page] == ids
        assert max(map(len, listed)) == 3


# Owners.


def test_the_key_of_a_request_is_no_owner() -> None:
    owner = owner_tag("/reports", "ada")
    key = "http:" + "0" * 64
    assert owner_of(("x", key)) is None
    assert owner_of(("x", key, owner)) == owner
    assert tags_to_show(("x", key, owner)) == ["x"]


async def test_owners_are_found_by_those_who_may(app: Tenure) -> None:
    jobs = Jobs(app)
    tags = {name: owner_tag("/reports", name) for name in ("ada", "bob")}
    ada = await jobs.add(5, tags=("x", tags["ada"], "http:" + "0" * 64))
    other = await jobs.add(3, tags=(owner_tag("/mails", "ada"),))
    await jobs.add(2, tags=(tags["bob"],))
    async with desk_on(app, routers=["/reports", "/mails"]) as desk:
        listed = await pages(desk, owner="ada", limit="2")
        assert [id_ for page in listed for id_ in page] == other + ada
        page = await desk.get("api/jobs", owner="ada", tag="x")
        assert ids_of(page) == ada
        assert {job["owner"] for job in page["jobs"]} == {tags["ada"]}
        assert {tuple(job["tags"]) for job in page["jobs"]} == {("x",)}
        assert ids_of(await desk.get("api/jobs", owner=tags["ada"])) == ada
        assert ids_of(await desk.get("api/jobs", owner="eve")) == []


@pytest.mark.parametrize("viewer", [HELPER, None])
async def test_owners_do_not_leak(still: Tenure, viewer: Viewer | None) -> None:
    tag = owner_tag("/reports", "ada")
    [job] = await Jobs(still).add(tags=("x", tag))
    async with desk_on(still, viewer, routers=["/reports"]) as desk:
        for page in ("api/jobs", f"api/jobs/{job}", "api/overview", "api/replicas"):
            assert tag not in str(await desk.get(page))
        await desk.get("api/jobs", 403, owner="ada")
        await desk.get("api/jobs", 403, owner=tag)
        await desk.get("api/jobs", 403, tag=tag)
        if viewer is not None:
            for fields in ({"owner": "ada"}, {"tag": tag}):
                await desk.post("api/jobs/count", 403, filter=fields)
                bulk = {"action": "delete", "filter": fields, "count": 1}
                await desk.post("api/jobs/bulk", 403, **bulk)


# Bulk.


async def test_bulk_actions_touch_what_was_counted(app: Tenure) -> None:
    jobs = Jobs(app)
    mails = await jobs.add(250, queue="mail")
    [other] = await jobs.add()
    chosen = {"queue": "mail"}
    async with desk_on(app) as desk:
        assert await desk.post("api/jobs/count", filter=chosen) == {
            "count": 250,
            "is_capped": False,
        }
        stale = {"action": "cancel", "filter": chosen, "count": 249}
        refused = await desk.post("api/jobs/bulk", 409, **stale)
        assert refused["count"] == 250
        assert (await app.job(mails[0])).state == "waiting"
        done = await desk.post("api/jobs/bulk", **{**stale, "count": 250})
        assert done == {"done": 250, "skipped": 0}
        assert (await app.job(other)).state == "waiting"
        count = {"action": "delete", "filter": chosen}
        assert (await desk.post("api/jobs/count", **count))["count"] == 250
        requeue = {"action": "requeue", "filter": {**chosen, "state": "cancelled"}, "count": 300}
        assert (await desk.post("api/jobs/bulk", **requeue))["done"] == 250
        assert len(await app.jobs(queue="mail", state="waiting", limit=1000)) == 250
        delete = {**count, "count": 250}  # they wait: a person has a right to be forgotten
        assert (await desk.post("api/jobs/bulk", **delete))["done"] == 250
        assert await app.jobs(queue="mail") == []


async def test_bulk_actions_need_a_filter_that_fits(still: Tenure) -> None:
    await Jobs(still).add(3)
    async with desk_on(still) as desk:
        wrong: list[dict[str, Any]] = [
            {"action": "delete", "filter": {}, "count": 9},
            {"action": "delete", "filter": {"timers": "1"}, "count": 9},
            {"action": "delete", "filter": {"state": "running"}, "count": 9},
            {"action": "cancel", "filter": {"state": "failed"}, "count": 9},
            {"action": "burn", "filter": {"state": "failed"}, "count": 9},
            {"action": "cancel", "filter": "queue", "count": 9},
            {"action": "cancel", "filter": {"queue": ["default"]}, "count": 9},
            {"action": "cancel", "filter": {"queue": "default"}},
            {"action": "cancel", "filter": {"queue": "default"}, "count": True},
            {"filter": {"queue": "default"}, "count": 9},
        ]
        for body in wrong:
            await desk.post("api/jobs/bulk", 400, **body)
        assert len(await still.jobs(state="waiting")) == 3


async def test_counts_are_capped(still: Tenure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.dashboard.bulk.SELECTED_MAX", 250)
    await Jobs(still).add(251, queue="mail")
    chosen = {"queue": "mail"}
    async with desk_on(still) as desk:
        count = await desk.post("api/jobs/count", filter=chosen)
        assert count == {"count": 250, "is_capped": True}
        bulk = {"action": "cancel", "filter": chosen, "count": 250}
        assert (await desk.post("api/jobs/bulk", **bulk))["done"] == 250
        assert (await desk.post("api/jobs/bulk", **bulk))["done"] == 1
