"""Events of a job: revisions rise, none is sent twice, and the last one is always sent."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import httpx2
import msgspec
import pytest

from tenure import Tenure
from tenure.http import AsyncRouter
from tenure.http.server import event_stream, store_trouble
from tenure.jobs import changes
from tenure.testing import Faults
from tests.http.conftest import Replica
from tests.http.service import Face, Service, Stage, as_face, user
from tests.http.wire import client_of, remote, served
from tests.rig.sizes import SIZE
from tests.rig.waiting import wait_until_async

STREAMS = 20 if SIZE.name == "short" else 200


class Event(NamedTuple):
    id: int
    kind: str
    data: dict[str, Any]


def read(block: str) -> Event | None:
    """Return an event as a browser parses it; None for a ping."""
    lines = [line for line in block.split("\n") if line]
    if all(line.startswith(":") for line in lines):
        return None
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        fields[name] = f"{fields[name]}\n{value}" if name in fields else value
    assert set(fields) == {"id", "event", "data"}
    return Event(int(fields["id"]), fields["event"], json.loads(fields["data"]))


async def listen(client: httpx2.AsyncClient, url: str, last: int = 0) -> AsyncIterator[Event]:
    """Yield the events of one stream as they come."""
    headers = {"Last-Event-ID": str(last)} if last else {}
    async with client.stream("GET", url, headers=headers) as answer:
        if answer.status_code == 204:
            return
        assert answer.status_code == 200
        assert answer.headers["content-type"].split(";")[0] == "text/event-stream"
        text = ""
        async for part in answer.aiter_text():
            text += part
            while "\n\n" in text:
                block, _, text = text.partition("\n\n")
                if (event := read(block)) is not None:
                    yield event


@dataclass
class Listener:
    """A client that listens on any of several servers until the end, and reconnects."""

    clients: list[httpx2.AsyncClient]
    url: str
    drops_after: int = 0
    """Disconnects after this many events and resumes at another server."""
    pause: float = 0.0
    """Seconds that the client spends on each event."""
    seen: list[Event] = field(default_factory=list)
    connections: int = 0

    @property
    def last(self) -> int:
        return self.seen[-1].id if self.seen else 0

    @property
    def has_ended(self) -> bool:
        return bool(self.seen) and self.seen[-1].data["finished"] is not None

    async def run(self) -> None:
        while not self.has_ended:
            client = self.clients[self.connections % len(self.clients)]
            self.connections += 1
            with suppress(httpx2.TransportError):
                await self.listen_once(client)
            await asyncio.sleep(0.01)

    async def listen_once(self, client: httpx2.AsyncClient) -> None:
        heard = 0
        async with aclosing(listen(client, self.url, self.last)) as events:
            async for event in events:
                self.seen.append(event)
                heard += 1
                await asyncio.sleep(self.pause)
                if heard == self.drops_after:
                    return

    def check(self) -> None:
        ids = [event.id for event in self.seen]
        assert all(id_ < other for id_, other in pairwise(ids)), ids
        *before, last = self.seen
        assert (last.kind, last.data["state"], last.data["result"]) == (
            "result",
            "succeeded",
            "done",
        )
        assert all(event.data["finished"] is None for event in before)


async def test_many_dropped_resumed_and_slow_streams_get_every_event(
    real_replica: Replica, stage: Stage
):
    """On two servers, one without a worker, with clients that move between them."""
    first = await real_replica()
    second = await real_replica(works=False)
    async with (
        served(first.face("fastapi")) as here,
        served(second.face("starlette")) as there,
        remote(here) as at_one,
        remote(there) as at_other,
    ):
        location = (await at_other.post("/reports/slow?steps=20")).headers["location"]
        url = f"{location}/events"
        clients = [at_one, at_other]
        listeners = [
            Listener(
                clients if number % 2 else clients[::-1],
                url,
                drops_after=number % 4,
                pause=0.15 if number % 5 == 4 else 0.0,
            )
            for number in range(STREAMS)
        ]
        async with asyncio.timeout(SIZE.patience), asyncio.TaskGroup() as group:
            for listener in listeners:
                group.create_task(listener.run())
            await wait_until_async(
                lambda: all(listener.seen for listener in listeners), SIZE.patience
            )
            stage.go.set()
        for listener in listeners:
            listener.check()
            # A client that stayed connected was not disconnected before the last event.
            assert listener.drops_after or listener.connections == 1

        # A client that has seen the end is asked not to reconnect.
        for client in clients:
            headers = {"Last-Event-ID": str(listeners[0].last)}
            assert (await client.get(url, headers=headers)).status_code == 204
            [only] = [event async for event in listen(client, url)]
            assert only == listeners[0].seen[-1]


async def test_a_stream_goes_on_after_a_restart(real_replica: Replica, stage: Stage):
    """After a restart of the server, a new app serves the rest of the stream."""
    before, worker = await real_replica(works=False), await real_replica()
    assert worker.stage is stage
    async with served(before.face("fastapi")) as url, remote(url) as client:
        location = (await client.post("/reports/slow?steps=3")).headers["location"]
        listener = Listener([client], f"{location}/events")
        task = asyncio.create_task(listener.listen_once(client))
        await wait_until_async(lambda: listener.seen, SIZE.patience)
    with suppress(httpx2.TransportError):
        await task
    assert not listener.has_ended

    after = await real_replica(works=False)
    async with served(after.face("fastapi")) as url, remote(url) as client:
        stage.go.set()
        listener.clients = [client]
        async with asyncio.timeout(SIZE.patience):
            await listener.run()
    listener.check()


async def test_each_event_has_kind_revision_and_job(
    ann: httpx2.AsyncClient, stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    seen: list[str] = []
    kind_of = event_stream._kind
    monkeypatch.setattr(event_stream, "_kind", lambda *now: seen.append(kind_of(*now)) or seen[-1])
    location = (await ann.post("/reports/slow?steps=1000")).headers["location"]
    listening = asyncio.create_task(ann.get(f"{location}/events"))
    await wait_until_async(lambda: "progress" in seen, SIZE.patience)
    stage.go.set()
    answer = await listening
    assert answer.headers["cache-control"] == "private, no-cache"
    events = [read(block) for block in answer.text.split("\n\n") if block]
    kinds = [event.kind for event in events]
    assert kinds[0] == "state"
    assert kinds[-1] == "result"
    assert "progress" in kinds
    progress = next(event.data["progress"] for event in events if event.kind == "progress")
    assert set(progress) == {"part", "message"}
    last = await ann.get(location)
    assert last.json() == events[-1].data
    assert last.headers["etag"] == f'"{events[-1].id}"'


async def test_a_failed_job_ends_its_stream_with_its_problem(ann: httpx2.AsyncClient):
    for path, kind in (
        ("/reports/failing", "job-failed"),
        ("/reports/timing-out", "job-timed-out"),
    ):
        location = (await ann.post(path)).headers["location"]
        answer = await ann.get(f"{location}/events")
        last = read(answer.text.split("\n\n")[-2])
        assert (last.kind, last.data["state"]) == ("state", "failed")
        assert last.data["error"]["type"] == f"urn:tenure:problem:{kind}"


async def test_a_result_of_several_lines_stays_one_event(namespace: str, face: Face):
    app = Tenure(f"memory://{namespace}", namespace=namespace)
    router = AsyncRouter(app, prefix="/own", owner=user)

    @router.post("")
    async def in_lines():
        return msgspec.Raw(b'{"a":\n1,\r\n\n"b": [\r2]}')

    async with app, app.worker(), client_of(as_face(router, face), timeout=20) as ann:
        location = (await ann.post("/own")).headers["location"]
        answer = await ann.get(f"{location}/events")
        assert "\r" not in answer.text
        [*_, last] = [read(block) for block in answer.text.split("\n\n") if block]
        assert (last.kind, last.data["result"]) == ("result", {"a": 1, "b": [2]})
        assert last.data == (await ann.get(location)).json()


async def test_a_cancel_is_seen_at_once(
    replica: Replica, face: Face, faults: Faults, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(changes, "POLL_EVERY", 10 * SIZE.patience)  # it has to be woken
    service = await replica(works=False)
    async with client_of(service.face(face), timeout=20) as ann:
        location = (await ann.post("/reports/slow")).headers["location"]
        before = faults.calls["get"]
        listening = asyncio.create_task(ann.get(f"{location}/events"))
        await wait_until_async(lambda: faults.calls["get"] >= before + 2, SIZE.patience)
        await ann.delete(location)
        async with asyncio.timeout(SIZE.patience):
            answer = await listening
    states = [read(block).data["state"] for block in answer.text.split("\n\n") if block]
    assert states == ["waiting", "cancelled"]


async def test_a_resumed_stream_sends_only_new_events(replica: Replica, face: Face, faults: Faults):
    service = await replica(works=False)
    async with client_of(service.face(face), timeout=20) as ann:
        location = (await ann.post("/reports/slow")).headers["location"]
        seen = (await ann.get(location)).headers["etag"].strip('"')
        headers = {"Last-Event-ID": seen}
        before = faults.calls["get"]
        listening = asyncio.create_task(ann.get(f"{location}/events", headers=headers))
        await wait_until_async(lambda: faults.calls["get"] >= before + 2, SIZE.patience)
        await ann.delete(location)
        answer = await listening
    [event] = [read(block) for block in answer.text.split("\n\n") if block]
    assert event.data["state"] == "cancelled"
    assert event.id > int(seen)


async def test_a_head_request_does_not_wait_for_events(replica: Replica):
    service = await replica(works=False)
    async with client_of(service.face("starlette"), timeout=20) as ann:
        location = (await ann.post("/reports/slow")).headers["location"]
        async with asyncio.timeout(SIZE.patience):
            answer = await ann.head(f"{location}/events")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.content == b""


async def test_a_dropped_stream_leaves_nothing_behind(service: Service, face: Face):
    async with served(service.face(face)) as url:
        async with remote(url) as client:
            location = (await client.post("/reports/slow")).headers["location"]
            await client.get(location)
            before = len(asyncio.all_tasks())
            for _ in range(5):
                async with aclosing(listen(client, f"{location}/events")) as events:
                    await anext(events)
        await wait_until_async(lambda: len(asyncio.all_tasks()) <= before, SIZE.patience)


async def test_a_silent_stream_sends_keep_alive_comments(
    replica: Replica, face: Face, faults: Faults, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(event_stream, "_PING_EVERY", 0.02)
    monkeypatch.setattr(changes, "POLL_EVERY", 0.01)
    service = await replica(works=False)
    async with client_of(service.face(face), timeout=20) as ann:
        location = (await ann.post("/reports/slow")).headers["location"]
        before = faults.calls["get"]
        listening = asyncio.create_task(ann.get(f"{location}/events"))
        await wait_until_async(lambda: faults.calls["get"] >= before + 10, SIZE.patience)
        await ann.delete(location)
        blocks = [block for block in (await listening).text.split("\n\n") if block]
    assert read(blocks[0]) is not None
    assert read(blocks[1]) is None
    assert read(blocks[-1]).data["state"] == "cancelled"


async def test_a_stream_ends_when_the_store_fails_and_can_be_resumed(
    replica: Replica,
    face: Face,
    faults: Faults,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    monkeypatch.setattr(store_trouble, "_AT_MOST_EVERY", 0.0)
    service = await replica(works=False)
    async with client_of(service.face(face), timeout=20) as ann:
        location = (await ann.post("/reports/slow")).headers["location"]
        before = faults.calls["get"]
        listening = asyncio.create_task(ann.get(f"{location}/events"))
        await wait_until_async(lambda: faults.calls["get"] >= before + 2)
        faults.lose_request("get", times=1)
        await service.app._store.jobs.cancel([location.rpartition("/")[2]])
        cut_off = await listening
        faults.heal()
        assert "the store is away" in caplog.text
        [first] = [read(block) for block in cut_off.text.split("\n\n") if block]
        headers = {"Last-Event-ID": str(first.id)}
        rest = await ann.get(f"{location}/events", headers=headers)
        [last] = [read(block) for block in rest.text.split("\n\n") if block]
        assert last.id > first.id
        assert last.data["state"] == "cancelled"
