"""A store that is away, at the start or later: pages say so, and work again when it is back."""

import pytest

from tenure import Tenure
from tenure.dashboard import Dashboard
from tenure.testing import Faults, FaultyStore, ManualClock
from tests.dashboard.desk import ANN, desk_of, desk_on

CALLS = ("open", "ping", "counts", "replicas", "read", "find", "get", "cancel", "pause", "release")
PAGES = ("overview", "jobs", "timers", "locks", "replicas")


def lose(faults: Faults) -> None:
    for call in CALLS:
        faults.lose_request(call, 1000)


async def test_pages_say_that_the_store_is_away(
    still: Tenure, faults: Faults, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    @still.task
    async def work() -> None: ...

    job = await work.enqueue()
    async with desk_on(still) as desk:
        lose(faults)
        for page in PAGES:
            answer = await desk.get(f"api/{page}", 503)
            assert answer["title"] == "The store cannot be read"
            assert answer["detail"]
        for action in (f"jobs/{job.id}/cancel", "queues/mail/pause"):
            await desk.post(f"api/{action}", 503, seconds=None, reason="")
        assert (await desk.get("api/session"))["viewer"] == "ann"
        assert (await desk.get("api/events"))["events"] == []
        faults.heal()
        await clock.advance(2)
        for page in PAGES:
            await desk.get(f"api/{page}")
    assert "Traceback" not in caplog.text


async def test_a_store_that_is_away_at_the_start_is_opened_later() -> None:
    faults, clock = Faults(), ManualClock()
    app = Tenure(FaultyStore("memory://", faults, clock=clock))
    lose(faults)
    async with desk_on(app) as desk:
        assert (await desk.get("api/session"))["store"]["grade"] is None
        for page in PAGES:
            await desk.get(f"api/{page}", 503)
        faults.heal()
        await clock.advance(2)
        for page in PAGES:
            await desk.get(f"api/{page}")


async def test_an_app_need_not_be_open_and_may_be_opened_later() -> None:
    app = Tenure("memory://dashboard-open")
    dashboard = Dashboard(app, auth=lambda _scope: ANN)
    async with desk_of(dashboard) as desk:
        assert (await desk.get("api/jobs"))["jobs"] == []
        async with app:
            await app.pause_queue("mail")
            await desk.get("api/jobs")
            desk.dashboard._site.snapshot.looks.forget()
            assert [queue["name"] for queue in (await desk.get("api/overview"))["queues"]]
        await desk.get("api/jobs")
    await dashboard.close()


async def test_an_app_that_waits_for_its_store_answers(caplog: pytest.LogCaptureFixture) -> None:
    faults, clock = Faults(), ManualClock()
    lose(faults)
    app = Tenure(FaultyStore("memory://", faults, clock=clock), connect="lazy")
    async with app, desk_on(app) as desk:
        await desk.get("api/jobs", 503)


async def test_a_store_that_hangs_is_away(
    still: Tenure, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.dashboard.snapshot._PATIENCE", 0.05)
    faults.delay("find", 1000)  # the clock stands still
    async with desk_on(still) as desk:
        answer = await desk.get("api/jobs", 503)
        assert answer["detail"] == "The store did not answer within 0.05 s"
