"""The clients, each promise on both: against a real server, over a network that misbehaves."""

import asyncio
import inspect
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from uuid import UUID, uuid4

import httpx2
import pytest

from tenure import (
    ConfigError,
    JobCancelled,
    JobFailed,
    JobNotFound,
    RequestRefused,
    ServerUnreachable,
    UnusableAnswer,
)
from tenure.http import AsyncClient, Client, JobEvent
from tenure.http.known import _Lines
from tests.http.network import (
    Answered,
    Cut,
    Doubled,
    HeaderSet,
    HeldOpen,
    HurriedClock,
    Mishap,
    Network,
    ReplyLost,
    RequestHeaderLost,
    Trickled,
    Unreachable,
)
from tests.http.serving import Server, Wanted
from tests.rig.servers import free_port
from tests.rig.waiting import wait_until_async


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path = tmp_path_factory.mktemp("client") / "jobs.db"
    with Server(f"sqlite:///{path}").running() as server:
        yield server


@pytest.fixture(params=[Client, AsyncClient])
def kind(request: pytest.FixtureRequest) -> type[Client] | type[AsyncClient]:
    return request.param


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def clock() -> HurriedClock:
    return HurriedClock()


@pytest.fixture
def user() -> str:
    """Whose jobs these are: nobody else's are counted."""
    return uuid4().hex


@pytest.fixture
async def client(kind, server: Server, network: Network, clock: HurriedClock, user: str):
    client = kind(server.url, transport=network, clock=clock, headers={"X-User": user})
    yield client
    await got(client.close())


async def got(value):
    """Return what either client answers; the server has a thread of its own."""
    return await value if inspect.isawaitable(value) else value


async def each(events) -> AsyncIterator[JobEvent]:
    if isinstance(events, Iterator):
        for one in events:
            yield one
    else:
        async for one in events:
            yield one


async def followed(events, server: Server, gate: str) -> list[JobEvent]:
    """Return all events of a job that takes its next step when one was seen."""
    seen = []
    async for one in each(events):
        seen.append(one)
        server.open(gate)
    return seen


def jobs_of(server: Server, user: str) -> list[dict[str, object]]:
    answer = httpx2.get(
        f"{server.url}/reports/jobs?limit=200", headers={"X-User": user}, verify=False
    )
    return answer.json()["jobs"]


@pytest.fixture
def gate(server: Server) -> str:
    return uuid4().hex


# What clients are for.


async def test_a_job_is_submitted_and_its_result_comes_back(client, server, user):
    job = await got(client.submit("/reports", {"steps": 1, "size": 3}))
    assert job.status.status in ("waiting", "running", "succeeded")
    assert job.id == job.status.id == jobs_of(server, user)[0]["id"]
    assert await got(job.result(timeout=20)) == {"pages": "xxx"}
    assert job.is_finished
    assert job.status.finished >= job.status.created
    assert job.id in repr(job)


async def test_results_are_what_the_handler_returned(client):
    submit, larger_than_a_resource_shows = client.submit, 100_000
    job = await got(submit("/reports", Wanted(size=larger_than_a_resource_shows)))
    assert len((await got(job.result(timeout=20)))["pages"]) == larger_than_a_resource_shows
    assert await got((await got(submit("/reports", {}))).result(timeout=20)) is None
    csv = await got(submit("/reports/2024", method="PUT", params={"header": True}))
    assert await got(csv.result(timeout=20)) == b"year\n2024\n"


async def test_a_failure_carries_the_problem(client):
    job = await got(client.submit("/reports", {"problem": "The year has 12."}))
    with pytest.raises(JobFailed, match=r"No such month\. The year has 12\.") as failed:
        await got(job.result(timeout=20))
    assert failed.value.reason == "urn:x:month"
    assert failed.value.problem == {
        "type": "urn:x:month",
        "title": "No such month",
        "status": 422,
        "detail": "The year has 12.",
    }

    job = await got(client.submit("/reports", {"error": "a secret"}))
    await got(job.wait(timeout=20))
    with pytest.raises(JobFailed, match="The job failed") as failed:
        await got(job.result())
    assert failed.value.reason == "job-failed"


async def test_a_job_is_cancelled(client, gate):
    job = await got(client.submit("/reports", {"gate": gate}))
    assert await got(job.cancel()) is job
    await got(job.wait(timeout=20))
    with pytest.raises(JobCancelled, match="by its owner") as cancelled:
        await got(job.result())
    assert cancelled.value.problem["status"] == 410
    assert await got(job.cancel()) is job  # a second time is not too late


async def test_a_job_is_found_again_by_its_url(client, kind, server, user):
    job = await got(client.submit("/reports", {"size": 1}, wait=20))
    assert job.is_finished
    again = await got(client.job(job.url))
    assert (again.id, await got(again.result())) == (job.id, {"pages": "x"})
    with pytest.raises(JobNotFound, match="there is no job"):
        await got(client.job("/reports/jobs/nothing"))


async def test_headers_go_along_with_all_that_is_asked_about_a_job(client, network, gate):
    other = {"x-USER": uuid4().hex, "Prefer": "respond-async", "Content-Type": "application/json"}
    job = await got(client.submit("/reports", {"size": 1}, headers=other))
    assert await got(job.result(timeout=20)) == {"pages": "x"}
    assert set(network.header("x-user")) == {other["x-USER"]}
    assert network.header("content-type")[1:] == [None] * (len(network.sent) - 1)


async def test_a_result_in_the_answer_itself_is_understood(client):
    job = await got(client.submit("/reports", {"size": 1}, headers={"Prefer": "wait=20"}))
    assert job.is_finished
    assert await got(job.result()) == {"pages": "x"}


# Submitting.


async def test_a_reply_that_is_lost_after_the_effect_leaves_one_job(client, network, server, user):
    network.expect(ReplyLost(), Unreachable(), ReplyLost())
    job = await got(client.submit("/reports", {"size": 1}))
    assert [one["id"] for one in jobs_of(server, user)] == [job.id]
    keys = network.header("idempotency-key")
    assert len(keys) == 4
    assert len(set(keys)) == 1
    assert str(UUID(keys[0])) == keys[0]

    await got(client.submit("/reports", {"size": 1}))
    assert len(jobs_of(server, user)) == 2


async def test_a_key_of_ones_own_leads_to_the_same_job(client, network):
    first = await got(client.submit("/reports", {"size": 1}, key="mine"))
    second = await got(client.submit("/reports", {"size": 1}, headers={"idempotency-key": "mine"}))
    assert second.id == first.id
    with pytest.raises(RequestRefused, match="belongs to another request") as refused:
        await got(client.submit("/reports", {"size": 2}, key="mine"))
    assert refused.value.type == "urn:tenure:problem:idempotency-key-reused"
    assert len(network.sent) == 3


async def test_a_server_that_is_busy_is_asked_again_when_it_says(client, network, clock):
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True)
    network.expect(
        Answered(503, {"Retry-After": "7"}),
        Answered(429, {"Retry-After": soon}),
        Answered(502),
        Answered(500),
    )
    await got(client.submit("/reports", {}))
    busy, date, first, second = clock.pauses
    assert 7 <= busy < 7.5
    assert 10 < date < 22
    assert first <= 1
    assert second <= 2


async def test_retry_after_by_the_clock_of_the_server(client, network, clock):
    hour = datetime(2020, 1, 1, 12, tzinfo=UTC)
    told = {
        "Date": format_datetime(hour, usegmt=True),
        "Retry-After": format_datetime(hour + timedelta(seconds=9), usegmt=True),
    }
    network.expect(Answered(503, told), Answered(503, {"Retry-After": "soon"}))
    await got(client.submit("/reports", {}))
    assert 9 <= clock.pauses[0] < 9.5
    assert clock.pauses[1] <= 0.5


@pytest.mark.parametrize("status", [301, 307, 400, 401, 403, 404, 413, 501])
async def test_what_will_not_change_is_not_asked_again(client, network, status):
    network.expect(Answered(status, {"Location": "/elsewhere"}, b"<html>"))
    with pytest.raises(RequestRefused, match=str(status)) as refused:
        await got(client.submit("/reports", {}))
    assert refused.value.status == status
    assert "/elsewhere" in refused.value.detail
    assert len(network.sent) == 1


async def test_a_request_that_does_not_fit_says_where(client, network, server, user):
    with pytest.raises(RequestRefused, match="does not fit") as refused:
        await got(client.submit("/reports", {"steps": "many"}))
    assert refused.value.status == 422
    assert refused.value.errors[0]["pointer"] == "/steps"
    assert refused.value.headers["Content-Type"] == "application/problem+json"
    assert len(network.sent) == 1
    assert jobs_of(server, user) == []


async def test_patience_ends(kind, server, clock):
    away = Network(*[Unreachable()] * 1000)
    client = kind(server.url, transport=away, clock=clock, patience="30s")
    with pytest.raises(ServerUnreachable, match=r"POST /reports has no answer: planned") as gone:
        await got(client.submit("/reports", {}))
    assert isinstance(gone.value, ConnectionError)
    assert isinstance(gone.value.__cause__, httpx2.ConnectError)
    assert 15 < sum(clock.pauses) <= 30
    assert len(set(clock.pauses)) == len(clock.pauses)  # nobody comes back in step with others
    await got(client.close())


async def test_a_refusal_for_longer_than_there_is_patience_is_told_at_once(client, network, clock):
    network.expect(Answered(429, {"Retry-After": "3600"}, b'{"title": "Too many", "status": 429}'))
    with pytest.raises(RequestRefused, match="Too many") as refused:
        await got(client.submit("/reports", {}))
    assert refused.value.headers["retry-after"] == "3600"
    assert clock.pauses == []


async def test_the_deadline_of_a_submission(client, network, clock, server, user):
    network.expect(ReplyLost(), Answered(503, {"Retry-After": "30"}))
    with pytest.raises(TimeoutError, match="not within 10 s") as late:
        await got(client.submit("/reports", {}, key="mine", timeout=10))
    assert "key='mine'" in str(late.value)
    assert sum(clock.pauses) < 10
    assert len(jobs_of(server, user)) == 1


@pytest.mark.parametrize(
    "place",
    [
        "http://127.0.0.1:1/reports/jobs/1",
        "https://elsewhere.example/reports/jobs/1",
        "//elsewhere.example/reports/jobs/1",
        "http://127.0.0.1@elsewhere.example/jobs/1",
        "http://127.0.0.1:x/",
        "",
    ],
)
async def test_an_address_on_another_host_is_not_followed(client, network, place):
    network.expect(HeaderSet("Location", place))
    with pytest.raises(UnusableAnswer, match="another host" if place else "no Location"):
        await got(client.submit("/reports", {}))
    assert len(network.sent) == 1


async def test_answers_of_somebody_else_are_not_taken_for_jobs(client, network):
    network.expect(Answered(202, {"Location": "/reports/jobs/1"}, b"<html>"))
    with pytest.raises(UnusableAnswer, match="POST /reports"):
        await got(client.submit("/reports", {}))


# Waiting.


async def test_waiting_survives_what_happens_on_the_way(client, network, clock, server, gate):
    job = await got(client.submit("/reports", {"gate": gate, "size": 1}))
    server.open(gate)
    network.expect(ReplyLost(), Answered(502), Unreachable(), Answered(503, {"Retry-After": "4"}))
    assert await got(job.result(timeout=60)) == {"pages": "x"}
    assert clock.pauses[3] >= 4
    assert len(network.sent) >= 6


async def test_one_look_lasts_as_long_as_it_takes(client, network, clock, server, gate):
    job = await got(client.submit("/reports", {"gate": gate}))
    loop = asyncio.get_running_loop()
    opened = loop.run_in_executor(None, lambda: (time.sleep(0.2), server.open(gate)))
    await got(job.wait())
    await opened
    assert network.header("prefer")[1:] == ["wait=20"]
    assert clock.pauses == []


async def test_a_server_that_does_not_wait_is_asked_as_often_as_it_says(
    client, network, clock, server, gate
):
    job = await got(client.submit("/reports", {"gate": gate}))
    network.expect(
        RequestHeaderLost("prefer"),
        Then(RequestHeaderLost("prefer"), HeaderSet("Retry-After", "5")),
        Then(RequestHeaderLost("prefer"), Opened(server, gate)),
    )
    await got(job.wait(timeout=600))
    assert clock.pauses[:2] == [1, 5]


class Then(Mishap):
    def __init__(self, *mishaps: Mishap):
        self._mishaps = mishaps

    def instead(self, request):
        for one in self._mishaps:
            one.instead(request)

    def afterwards(self, response):
        for one in self._mishaps:
            response = one.afterwards(response)
        return response


class Opened(Mishap):
    """A gate opens while an answer is under way."""

    def __init__(self, server: Server, gate: str):
        self._server, self._gate = server, gate

    def afterwards(self, response):
        self._server.open(self._gate)
        return response


async def test_the_deadline_passes_and_the_job_goes_on(client, server, gate):
    job = await got(client.submit("/reports", {"gate": gate, "size": 1}))
    since = time.monotonic()
    with pytest.raises(TimeoutError, match="goes on"):
        await got(job.result(timeout=0.3))
    assert 0.2 < time.monotonic() - since < 5
    server.open(gate)
    assert await got(job.result(timeout="20s")) == {"pages": "x"}


async def test_an_answer_that_never_ends_does_not_outlast_the_deadline(client, network, gate):
    job = await got(client.submit("/reports", {"gate": gate}))
    network.expect(Trickled())
    since = time.monotonic()
    with pytest.raises(TimeoutError):
        await got(job.wait(timeout=0.2))
    assert time.monotonic() - since < 5
    await got(job.cancel())


# Events.


async def test_events_follow_a_job_to_its_end(client, server, gate):
    job = await got(client.submit("/reports", {"steps": 2, "size": 1, "gate": gate}))
    seen = await followed(job.events(), server, gate)
    assert strictly_rise(seen)
    assert (seen[-1].kind, seen[-1].job.result) == ("result", {"pages": "x"})
    assert seen[-1].job.progress.message == "step\u20281"
    assert job.status == seen[-1].job

    assert [one async for one in each(job.events())] == seen[-1:]
    assert [one async for one in each(job.events(after=seen[-1].revision))] == []


def strictly_rise(seen: list[JobEvent]) -> bool:
    revisions = [one.revision for one in seen]
    return bool(revisions) and revisions == sorted(set(revisions))


@pytest.mark.parametrize("cleanly", [False, True])
async def test_a_stream_that_is_cut_is_taken_up_where_it_ended(
    client, network, clock, server, gate, cleanly
):
    job = await got(client.submit("/reports", {"steps": 3, "size": 1, "gate": gate}))
    network.expect(Cut(1, cleanly=cleanly), Unreachable(), Answered(503), Cut(1, cleanly=cleanly))
    seen = await followed(job.events(), server, gate)
    assert strictly_rise(seen)
    assert seen[-1].job.status == "succeeded"
    asked = network.header("last-event-id", of=lambda request: request.url.path.endswith("/events"))
    first, second = str(seen[0].revision), str(seen[1].revision)
    assert asked == [None, first, first, first, second]
    assert len(clock.pauses) == 4


async def test_what_is_sent_twice_is_seen_once(client, network, server, gate):
    job = await got(client.submit("/reports", {"steps": 3, "gate": gate}))
    network.expect(Doubled())
    seen = await followed(job.events(), server, gate)
    assert strictly_rise(seen)
    assert seen[-1].job.status == "succeeded"

    network.expect(RequestHeaderLost("last-event-id"))
    after = seen[-1].revision
    assert [one async for one in each(job.events(after=after))] == []


async def test_events_end_with_the_job_however_long_the_stream_is_open(client, network):
    job = await got(client.submit("/reports", {}, wait=20))
    network.expect(HeldOpen())
    assert len([one async for one in each(job.events(timeout=30))]) == 1


async def test_the_deadline_of_events(client, gate):
    job = await got(client.submit("/reports", {"gate": gate}))
    since = time.monotonic()
    with pytest.raises(TimeoutError, match="goes on"):
        async for _ in each(job.events(timeout=0.3)):
            pass
    assert time.monotonic() - since < 10
    await got(job.cancel())


async def test_events_say_when_there_are_none(client, network, clock):
    job = await got(client.submit("/reports", {}))
    gone = b'{"type": "urn:tenure:problem:not-found", "title": "", "status": 404}'
    network.expect(Answered(404, body=gone), Answered(401), Answered(200, body=b"<html>"))
    for error in (JobNotFound, RequestRefused, UnusableAnswer):
        with pytest.raises(error):
            [one async for one in each(job.events())]
    network.expect(*[Unreachable()] * 1000)
    with pytest.raises(ServerUnreachable):
        [one async for one in each(job.events())]
    assert sum(clock.pauses) <= 60


async def test_who_stops_listening_leaves_no_connection_behind(client, server, gate):
    job = await got(client.submit("/reports", {"gate": gate}))
    events = job.events()
    async for _ in each(events):
        break
    await got(events.aclose() if hasattr(events, "aclose") else events.close())
    server.open(gate)
    await got(job.wait(timeout=20))


EVENTS = (
    'id: 1\nevent: status\ndata: {"a":"\u2028\x85"}\n\n'
    ": ping\n\n"
    "id: 2\r\ndata: a\r\ndata: b\r\n\r\n"
)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_are_read_however_they_are_cut_into_parts(size):
    raw, lines = EVENTS.encode(), _Lines()
    parts = [raw[at : at + size] for at in range(0, len(raw), size)]
    assert [fields for part in parts for fields in lines.feed(part)] == [
        {"id": "1", "event": "status", "data": '{"a":"\u2028\x85"}'},
        {"id": "2", "data": "a\nb"},
    ]


async def test_a_restart_of_the_server_goes_by(kind, tmp_path, user, gate):
    url, port = f"sqlite:///{tmp_path}/jobs.db", free_port()
    client = kind(f"http://127.0.0.1:{port}", headers={"X-User": user}, verify=False)
    first, second = Server(url, port), Server(url, port)
    first.start()
    try:
        job = await got(client.submit("/reports", {"steps": 1, "gate": gate}))
        follow = asyncio.to_thread(list, job.events()) if kind is Client else listed(job.events())
        following = asyncio.create_task(follow)
        await wait_until_async(lambda: job.status.status == "running")
    finally:
        await asyncio.to_thread(first.stop)
    assert not following.done()
    second.open(gate, 2)
    with second.running():
        seen = await following
    assert strictly_rise(seen)
    assert seen[-1].job.status == "succeeded"
    await got(client.close())


async def listed(events: AsyncIterator[JobEvent]) -> list[JobEvent]:
    return [one async for one in events]


# How a client is made.


async def test_an_httpx_client_of_ones_own_is_used_and_stays_open(kind, server, user):
    own = getattr(httpx2, kind.__name__)(base_url=server.url, headers={"X-User": user})
    client = kind(http=own)
    job = await got(client.submit("/reports", {"size": 1}))
    assert await got(job.result(timeout=20)) == {"pages": "x"}
    await got(client.close())
    assert not own.is_closed
    await got(own.aclose() if kind is AsyncClient else own.close())
    with pytest.raises(ConfigError, match="give base_url, auth to that one"):
        kind(server.url, http=own, auth=("a", "b"))


async def test_what_is_sent_stays_with_the_server_of_the_client(client, network):
    with pytest.raises(ConfigError, match="not on the server of this client"):
        await got(client.submit("http://elsewhere.example/reports", {}))
    with pytest.raises(ConfigError, match="not on the server of this client"):
        await got(client.job("https://elsewhere.example/reports/jobs/1"))
    assert network.sent == []


async def test_a_client_without_a_server_says_so(kind):
    client = kind()
    with pytest.raises(ConfigError, match="base_url is ''"):
        await got(client.submit("/reports", {}))
    await got(client.close())


@pytest.mark.parametrize("wrong", [{"patience": "soon"}, {"patience": -1}])
def test_a_wrong_option_is_a_config_error(kind, wrong):
    with pytest.raises(ConfigError, match="patience"):
        kind("http://127.0.0.1", **wrong)


def test_without_httpx_there_is_advice(kind, monkeypatch):
    for name in ("httpx2", "httpx"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=r"pip install 'tenure\[client\]'"):
        kind("http://127.0.0.1")


async def test_httpx_will_do_where_httpx2_is_not_there(kind, monkeypatch, server):
    monkeypatch.setitem(sys.modules, "httpx", httpx2)
    monkeypatch.setitem(sys.modules, "httpx2", None)
    client = kind(server.url, transport=Network(ReplyLost()), clock=HurriedClock())
    assert await got((await got(client.submit("/reports", {"size": 1}, wait=20))).result()) == {
        "pages": "x"
    }
    await got(client.close())


def test_a_worker_without_httpx_imports_all_of_it():
    code = "import sys; sys.modules |= dict(httpx=None, httpx2=None); import tenure.http"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
