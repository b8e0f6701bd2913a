"""Filters, searches and bulk actions: which jobs they are about, and what they say about it."""

from typing import Any

import msgspec
import pytest

from tenure import Tenure
from tenure.core.ids import JobIds
from tenure.core.jobs.error_report import ErrorReport
from tenure.core.jobs.records import NewJob, Settlement
from tenure.core.jobs.search import contains, search_bytes
from tenure.core.schedules.records import TIMERS_QUEUE
from tenure.dashboard import Viewer, matches
from tenure.dashboard.owners import owner_of, tags_to_show
from tenure.dashboard.selection import Criteria
from tenure.http.request import owner_tag
from tenure.testing import Faults, ManualClock
from tests.dashboard.desk import Desk, desk_on, passing

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
        assert (page["searched"], page["note"]) == (3, "Searched all jobs.")
        missing = ids[1][:-12] + "0" * 12
        page = await desk.get("api/jobs", id=missing)
        assert (page["jobs"], page["searched"]) == ([], None)
        for wrong in ("abc", "xyz-xyz", "a" * 37):
            await desk.get("api/jobs", 400, id=wrong)


async def test_the_text_of_an_error_is_searched(
    app: Tenure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matches, "PATIENCE", 60.0)  # for all states, however busy the machine is
    jobs = Jobs(app)
    full = await jobs.add(3)
    await jobs.add(2)
    await jobs.fail(full)
    async with desk_on(app) as desk:
        page = await desk.get("api/jobs", error="disk full")
        assert ids_of(page) == full
        assert page["note"] == "Searched all failed, waiting, running and cancelled jobs."
        listed = await pages(desk, error="Disk", state="cancelled", limit="2")
        assert [id_ for page in listed for id_ in page] == full
        assert ids_of(await desk.get("api/jobs", error="disk full", state="waiting")) == []


async def test_searches_for_errors_go_on_from_state_to_state(app: Tenure) -> None:
    jobs = Jobs(app)
    store = app._engine.services().store
    await jobs.fail(cancelled := await jobs.add(2))
    claimed = await jobs.add(4)
    await store.jobs.beat(["r"], ttl=60, meta={})
    answer = await store.jobs.claim("r", 1, ["default"], 4)
    assert answer is not None
    error = msgspec.json.encode(ErrorReport("OSError", "the disk: full"))
    ends = ["waiting", "waiting", "failed", "failed"]
    await store.jobs.settle(
        [
            Settlement(id=job.id, fence=job.fence, outcome="retry", state=end, error=error)
            for job, end in zip(answer.jobs, ends, strict=True)
        ]
    )
    await jobs.add(2)
    async with desk_on(app) as desk:
        listed = await pages(desk, error="OSError: the DISK", limit="1")
        assert [id_ for page in listed for id_ in page] == claimed
        listed = await pages(desk, error="disk", limit="3")
        assert [id_ for page in listed for id_ in page] == claimed + cancelled
        assert ids_of(await desk.get("api/jobs", error="disk", state="succeeded")) == []
        for wrong in ("succeeded:", "lost:", claimed[0], f"failed:{claimed[0][:-1]}", ":"):
            await desk.get("api/jobs", 400, error="disk", cursor=wrong)
        for wrong in ("failed:", f"failed:{claimed[0]}"):
            await desk.get("api/jobs", 400, cursor=wrong)


async def test_a_page_takes_a_tenth_of_a_second_and_goes_on_where_it_ended(
    still: Tenure, faults: Faults, clock: ManualClock
) -> None:
    jobs = Jobs(still)
    store = still._engine.services().store
    [oldest] = await jobs.add()
    await store.jobs.cancel([oldest], reason="Größe 0")
    await jobs.fail(others := await jobs.add(600))
    await jobs.add(600, queue=TIMERS_QUEUE, task="@tick")
    async with desk_on(still) as desk:
        faults.delay("find", 0.06)
        for query, fitting in (({"error": "größe 0"}, [oldest]), ({"limit": "20"}, others[:20])):
            ids, requests = list[str](), 0
            while not ids:
                began = clock.boot()
                page = await passing(clock, desk.get("api/jobs", **query))
                assert clock.boot() - began < 0.2
                ids, requests = ids_of(page), requests + 1
                if not ids and "error" in query:
                    assert page["note"].endswith(" may match.")
                query["cursor"] = page["cursor"]
            assert (ids, requests > 1) == (fitting, True)


@pytest.mark.parametrize(
    ("error", "literal"),
    [
        ("oserror: no answer", "no answer"),
        ('key "a" is missing', "is missing"),
        ("größe", "gr"),
        ("ä", None),
        ("\\x1b[31m", None),
    ],
)
def test_stores_look_for_what_json_leaves_as_it_is(error: str, literal: str | None) -> None:
    assert Criteria(error=error).literal == literal
    if literal is not None:
        kind, _, message = error.rpartition(": ")
        stored = msgspec.json.encode(ErrorReport(kind.title(), message.upper()))
        assert contains(stored, search_bytes(literal))


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


async def test_a_count_that_finds_nothing_in_time_is_no_count(
    still: Tenure, faults: Faults, clock: ManualClock
) -> None:
    await Jobs(still).fail(await Jobs(still).add(600))
    counting = {"filter": {"error": "disk füll", "state": "cancelled"}, "action": "delete"}
    async with desk_on(still) as desk:
        assert (await desk.post("api/jobs/count", **counting))["count"] == 0
        faults.delay("find", 3.0)
        await passing(clock, desk.post("api/jobs/count", 409, **counting))


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
