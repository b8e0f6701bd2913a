"""Steps 1 to 4: Ada and Bob use the service over HTTP."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import httpx2

from tour.screen import Screen
from tour.service import APIS, Service
from tour.verdict import Verdict

PAGES = 8
SECONDS = 0.2  # that a page takes, in examples/reports
AT_ONCE = 10  # requests with one idempotency key
REUSED = "urn:tenure:problem:idempotency-key-reused"


@dataclass(frozen=True)
class Event:
    """A server-sent event of a job."""

    id: int
    kind: str
    job: dict[str, Any]

    @property
    def part(self) -> float:
        return self.job["progress"]["part"] if self.job["progress"] else 0.0

    @property
    def message(self) -> str:
        return self.job["progress"]["message"] if self.job["progress"] else self.job["state"]


class User:
    """A client with one user's token, for any of the API processes."""

    def __init__(self, service: Service, token: str) -> None:
        self._service = service
        self._http = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {token}"}, timeout=30, trust_env=False
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def ask(
        self, method: str, path: str, at: str = APIS[0], *, json: Any = None, **headers: str
    ) -> httpx2.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self._http.request(
            method, self._service.url(at) + path, json=json, headers=named
        )

    async def submit(self, title: str, pages: int, at: str = APIS[0]) -> str:
        """Request a report; return the path of its job."""
        reply = await self.ask("POST", "/reports", at, json={"title": title, "pages": pages})
        return reply.headers["Location"]

    async def events(self, location: str, at: str) -> AsyncIterator[Event]:
        """Yield the events of a job until the server ends the stream."""
        url = f"{self._service.url(at)}{location}/events"
        async with self._http.stream("GET", url) as stream:
            fields: dict[str, str] = {}
            async for line in stream.aiter_lines():
                name, _, value = line.partition(": ")
                fields[name] = value
                if not line and "data" in fields:
                    yield Event(int(fields["id"]), fields["event"], json.loads(fields["data"]))
                    fields = {}


class HttpSteps:
    """Submits, follows, repeats and cancels requests, and judges the answers."""

    def __init__(self, service: Service, screen: Screen, verdict: Verdict) -> None:
        self._service = service
        self._screen = screen
        self._verdict = verdict
        self.ada = User(service, "ada-token")
        self.bob = User(service, "bob-token")

    async def close(self) -> None:
        await self.ada.close()
        await self.bob.close()

    async def submit(self) -> None:
        screen, judge = self._screen, self._verdict.judge
        screen.title("1  A slow request becomes a job")
        screen.say(
            f"Ada requests a report of {PAGES} pages at api-1: {PAGES * SECONDS:g} s of work."
        )
        begun = time.monotonic()
        report = {"title": "May", "pages": PAGES}
        reply = await self.ada.ask("POST", "/reports", json=report)
        took = time.monotonic() - begun
        accepted = reply.status_code == 202 and {"location", "retry-after"} <= set(reply.headers)
        location = reply.headers.get("Location")
        screen.report("api-1", f"{reply.status_code}, Location: {location}")
        early = accepted and reply.json()["state"] in ("waiting", "running")
        judge(f"api-1 answers 202 after {took:.2f} s, before the work is done", kept=early)
        screen.say("She follows the job at api-2, the other API process.")
        seen = [event async for event in self.follow(reply.headers["Location"], "api-2")]
        judge(
            f"{len(seen)} events arrive in order, and progress never goes back", kept=rising(seen)
        )
        last = seen[-1]
        complete = last.kind == "result" and last.job["result"]["pages"] == PAGES
        judge(f"the last event has the result: {last.job['result']}", kept=complete)
        result = await self.ada.ask("GET", last.job["links"]["result"])
        same = result.status_code == 200 and result.json() == last.job["result"]
        judge("the result also has a URL of its own", kept=same)
        await self._wait_for_result()

    async def _wait_for_result(self) -> None:
        screen, report = self._screen, {"title": "In short", "pages": 2}
        screen.say("For a short report she asks the server to wait: `Prefer: wait=10`.")
        reply = await self.ada.ask("POST", "/reports", json=report, Prefer="wait=10")
        plain = reply.status_code == 200 and reply.json()["title"] == "In short"
        applied = reply.headers.get("Preference-Applied")
        self._verdict.judge(
            f"the response is the report itself: {reply.status_code}, {applied}",
            kept=plain and applied == "wait=10",
        )

    async def retry(self) -> None:
        screen, judge, key = self._screen, self._verdict.judge, "order-4711"
        screen.title("2  A retry does not create a second job")
        screen.say(f"Ada sends a request {AT_ONCE} times at once, to both APIs, with one key.")
        once, other = {"title": "June", "pages": 1}, {"title": "July", "pages": 1}
        replies = await asyncio.gather(
            *(
                self.ada.ask("POST", "/reports", APIS[n % 2], json=once, Idempotency_Key=key)
                for n in range(AT_ONCE)
            )
        )
        jobs = {reply.headers.get("Location") for reply in replies}
        again = sum(reply.headers.get("Idempotency-Replayed") == "true" for reply in replies)
        ok = all(reply.status_code == 202 for reply in replies) and None not in jobs
        judge(
            f"{len(replies)} requests create {len(jobs)} job; {again} responses are replays",
            kept=ok and len(jobs) == 1 and again == AT_ONCE - 1,
        )
        self._verdict.note(f"jobs of {AT_ONCE} requests with one key", str(len(jobs)), "1")
        changed = await self.ada.ask("POST", "/reports", json=other, Idempotency_Key=key)
        refused = changed.status_code == 422 and changed.json()["type"] == REUSED
        judge(f"the same key with another body is refused: {changed.status_code}", kept=refused)
        bobs = await self.bob.ask("POST", "/reports", json=once, Idempotency_Key=key)
        own = bobs.status_code == 202 and bobs.headers["Location"] not in jobs
        judge("the same key sent by Bob creates a job of his own", kept=own)

    async def separate_users(self) -> None:
        judge = self._verdict.judge
        self._screen.title("3  Users see only their own jobs")
        self._screen.say("Bob asks for a job of Ada's, and for a job that does not exist.")
        location = await self.ada.submit("Private", 1)
        head, digit = location[:-1], location[-1]
        never = f"{head}{'0' if digit != '0' else '1'}"
        same = True
        for method, below in (("GET", ""), ("GET", "/result"), ("GET", "/events"), ("DELETE", "")):
            existing = await self.bob.ask(method, location + below)
            missing = await self.bob.ask(method, never + below)
            same &= existing.status_code == missing.status_code == 404
            same &= existing.content == missing.content
        judge("he gets the same 404 for both, byte for byte, on every route", kept=same)
        listed = (await self.bob.ask("GET", "/reports/jobs")).json()["jobs"]
        ids = {job["id"] for job in listed}
        private = location.rpartition("/")[2] not in ids
        judge(f"his list has only his own jobs: {len(ids)}", kept=private and len(ids) == 1)
        stranger = User(self._service, "no-token")
        reply = await stranger.ask("GET", location)
        await stranger.close()
        judge(
            f"a request with an unknown token is refused: {reply.status_code}",
            kept=reply.status_code == 401,
        )

    async def cancel(self) -> None:
        screen, judge = self._screen, self._verdict.judge
        screen.title("4  A running job can be cancelled")
        screen.say("Ada requests 200 pages, then sends DELETE for the job to api-2.")
        location = await self.ada.submit("Everything", 200)
        seen, reply = [], None
        async for event in self.follow(location, "api-1"):
            seen.append(event)
            if reply is None and event.part > 0:
                reply = await self.ada.ask("DELETE", location, "api-2")
        ended = seen[-1].job["state"]
        accepted = reply is not None and reply.status_code == 202
        judge("the running job is asked to stop: 202", kept=accepted)
        judge(f"its last event says {ended}, at {seen[-1].message}", kept=ended == "cancelled")
        result = await self.ada.ask("GET", f"{location}/result")
        judge(f"the URL of its result answers {result.status_code}", kept=result.status_code == 410)

    async def follow(self, location: str, at: str) -> AsyncIterator[Event]:
        """Yield the events of a job and show its progress."""
        async for event in self.ada.events(location, at):
            text = f"{self._screen.bar(event.part, 20)} {event.kind} {event.id}: {event.message}"
            self._screen.move(self._screen.paint(text, at))
            yield event


def rising(events: list[Event]) -> bool:
    """Return whether each event has a later revision, and progress never goes back."""
    return all(
        event.id < after.id and event.part <= after.part for event, after in pairwise(events)
    )
