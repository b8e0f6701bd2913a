"""Clients of the routes: they submit until they are answered, follow their jobs, and pry.

Each request goes to any replica. What was not answered is asked again, under the same key.
"""

from __future__ import annotations

from random import Random
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tenure.core.jobs.states import FINISHED
from tenure.http.server.response import ResponseData
from tests.sim.client_network import ClientNetwork, ClientRequest, Exchange
from tests.sim.fleet import Fleet
from tests.sim.plan import Plan
from tests.sim.scenarios.jobs import JobSpec

__all__ = ["HttpClient", "http_clients"]

T = TypeVar("T")

_OWNERS = ("ann", "ben", "ann")
_TRIES_MAX = 400
_PATIENCE = (0.5, 2.0, 2.0, 6.0)
_ANOTHER_BODY = 0.15
_AGAIN = 0.3
_OTHER_OWNER_CHANCE = 0.3
_CANCELS = 0.15
_LISTS = 0.3
_OTHER = 1000
"""The number of another body under the same key is so much higher."""


class _Shown(Struct):
    """What a client reads of a job."""

    id: str
    state: str


class _Listed(Struct):
    jobs: list[_Shown]


def http_clients(fleet: Fleet, network: ClientNetwork) -> list[HttpClient]:
    """Return clients of two owners. All use the same keys, and some for the same request."""
    rng = Random(f"visitors {fleet.plan.seed}")
    first = [_spec(rng, number, fleet.plan) for number in range(2)]
    second = [
        spec if rng.random() < 0.5 else _spec(rng, 100 + spec.number, fleet.plan) for spec in first
    ]
    # The third one is the first owner once more, with the same request at the same time.
    third = first[: rng.choice((0, 1))]
    return [
        HttpClient(fleet, network, place, specs)
        for place, specs in enumerate((first, second, third))
        if specs
    ]


def _spec(rng: Random, number: int, plan: Plan) -> JobSpec:
    is_poison = "crash" in plan.faults and rng.random() < 0.1
    length = rng.choice((0.0, 0.01, 0.3, 1.0, 1.5)) * plan.ttl
    return JobSpec(
        number=number,
        seconds=round(length * rng.uniform(0.5, 1.0), 3),
        fails=rng.choice((0, 0, 0, 1, 3)),
        kills=rng.choice((1, 9)) if is_poison else 0,
        rejects=rng.random() < 0.05,
        saves=rng.random() < 0.5,
    )


class HttpClient:
    """One client, who does one thing at a time."""

    def __init__(
        self, fleet: Fleet, network: ClientNetwork, place: int, specs: list[JobSpec]
    ) -> None:
        self.name = f"c{place}"
        self.is_done = False
        self._fleet = fleet
        self._network = network
        self._owner = _OWNERS[place]
        self._specs = specs
        self._rng = Random(f"visitor {fleet.plan.seed} {place}")
        self._doing = ""
        self._tries = 0

    def __repr__(self) -> str:
        return f"{self.name}: {'done' if self.is_done else self._doing}"

    def _record(self, what: str, **facts: Any) -> None:
        facts = {"holder": self._owner, **facts}
        self._fleet.history.add(self._fleet.loop.time(), self.name, what, **facts)

    def _count(self, what: str) -> None:
        self._fleet.counts[what] += 1

    async def _pause(self, most: float) -> None:
        await self._fleet.server.store_clock.sleep(self._rng.uniform(0.02, most))

    async def run(self) -> None:
        """Have all orders done, one after the other."""
        try:
            for place, order in enumerate(self._specs):
                await self._pause(1.0)
                await self._have_done(f"k{place}", order)
        except Exception as error:  # noqa: BLE001 - for the checkers
            self._record("raised", detail=repr(error))
        self.is_done = True

    async def _have_done(self, key: str, order: JobSpec) -> None:
        rng = self._rng
        job, got = await self._submit(key, order)
        if rng.random() < _AGAIN:
            await self._submit(key, got)
        if rng.random() < _OTHER_OWNER_CHANCE:
            await self._request_as_other_owner(job)
        if rng.random() < _LISTS:
            await self._list()
        if rng.random() < 0.5:
            await self._read_stream(job)
        await self._look(job)
        await self._get(job, got)
        await self._look(job)

    # One request.

    def _send(self, verb: str, job: str = "", **facts: Any) -> Exchange:
        self._tries += 1
        self._doing = f"{verb} {job}"
        if self._tries > _TRIES_MAX:
            msg = f"no end of {verb}"
            raise RuntimeError(msg)
        return self._network.send(
            ClientRequest(**{"verb": verb, "owner": self._owner, "job": job, **facts})
        )

    async def _ask(
        self, verb: str, job: str = "", **facts: Any
    ) -> tuple[ResponseData | None, float]:
        """Return an answer that says something, and when it was asked for; None without one."""
        exchange = self._send(verb, job, **facts)
        answer = await exchange.next(self._rng.choice(_PATIENCE))
        assert not isinstance(answer, bytes)
        if answer is None:
            self._count("lost answers")
            return None, exchange.began
        return None if answer.status == 503 else answer, exchange.began

    # Submitting.

    async def _submit(self, key: str, order: JobSpec) -> tuple[str, JobSpec]:
        """Return the job of a key, and what it does; whatever is lost is sent again."""
        sent, other = order, replace(order, number=(order.number + _OTHER) % (2 * _OTHER))
        while True:
            if self._rng.random() < _ANOTHER_BODY:
                sent, other = other, sent
            answer = await self._offer(key, sent)
            if answer is not None and answer.status in (200, 202):
                return answer.headers["Location"].rpartition("/")[2], sent
            if answer is not None:
                sent, other = other, sent  # the other one was stored
            await self._pause(0.6)

    async def _offer(self, key: str, order: JobSpec) -> ResponseData | None:
        self._record("offered", number=order.number, key=key)
        self._count("submissions")
        headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
        if self._rng.random() < 0.25:
            headers["Prefer"] = "wait=1"
        answer, _ = await self._ask("submit", headers=headers, body=msgspec.json.encode(order))
        if answer is None:
            return None
        facts: dict[str, Any] = {"key": key, "number": order.number, "answer": str(answer.status)}
        if answer.status not in (200, 202):
            self._count("refused requests")
            self._record("refused", detail=_kind(answer), **facts)
            return answer
        location, is_replay = answer.headers["Location"], "Idempotency-Replayed" in answer.headers
        job = location.rpartition("/")[2]
        self._count("replays" if is_replay else "new jobs")
        ids = [_read(answer, _Shown).id] if answer.status == 202 else [job]
        self._record("accepted", job=job, ok=is_replay, detail=location, ids=ids, **facts)
        if answer.status == 200:
            self._record("got", job=job, number=_read(answer, int), answer="200")
        return answer

    # Following.

    async def _look(self, job: str) -> None:
        """Ask for its status until that is final."""
        etag = ""
        while True:
            if self._rng.random() < _CANCELS:
                await self._cancel(job)
            headers = {"Prefer": "wait=1"} if self._rng.random() < 0.5 else {}
            headers |= {"If-None-Match": etag} if self._rng.random() < 0.5 else {}
            answer, began = await self._ask("get", job, headers=headers)
            if answer is not None and answer.status == 404:
                self._record("denied", job=job)
                return
            if answer is not None and answer.status == 200:
                etag = answer.headers["ETag"]
                if self._see(answer, int(etag.strip('"')), began):
                    return
            await self._pause(0.8)

    def _see(self, answer: ResponseData, revision: int, began: float, owner: str = "") -> bool:
        shown = _read(answer, _Shown)
        facts = {"holder": owner or self._owner, "revision": revision, "seconds": began}
        self._record("saw", job=shown.id, outcome=shown.state, **facts)
        return shown.state in FINISHED

    async def _cancel(self, job: str) -> None:
        answer, began = await self._ask("cancel", job)
        if answer is not None and answer.status == 404:
            self._record("denied", job=job)
        elif answer is not None:
            self._see(answer, 0, began)

    async def _get(self, job: str, order: JobSpec) -> None:
        """Ask for the result until there is an answer."""
        while True:
            answer, _ = await self._ask("result", job)
            if answer is not None:
                break
            await self._pause(0.5)
        if answer.status == 404:
            self._record("denied", job=job)
        elif answer.status == 200:
            self._record("got", job=job, number=_read(answer, int), answer="200")
        else:
            self._record("got", job=job, number=order.number, answer=_kind(answer))

    async def _list(self) -> None:
        answer, began = await self._ask("list")
        if answer is not None:
            ids = [job.id for job in _read(answer, _Listed).jobs]
            self._record("paged", ids=ids, seconds=began)

    # Streams.

    async def _read_stream(self, job: str) -> None:
        """Read events until the last, from one replica after the other."""
        self._record("follows", job=job)
        last, is_over = 0, False
        while not is_over:
            headers = {"Last-Event-ID": str(last)} if last else {}
            exchange = self._send("events", job, headers=headers)
            answer = await exchange.next(self._rng.choice(_PATIENCE))
            assert not isinstance(answer, bytes)
            if answer is not None and answer.status in (204, 404):
                self._record("closed" if answer.status == 204 else "denied", job=job)
                return
            if answer is not None and answer.status == 200:
                self._count("resumed streams" if last else "streams")
                last, is_over = await self._read_events(exchange, job, last)
            exchange.close()
            await self._pause(0.4)
        if self._rng.random() < 0.2:  # who comes back after the end is told so
            answer, _ = await self._ask("events", job, headers={"Last-Event-ID": str(last)})
            if answer is not None and answer.status == 200:
                self._record("reopened", job=job)

    async def _read_events(self, exchange: Exchange, job: str, last: int) -> tuple[int, bool]:
        """Return the last revision that was read, and whether it was the last of all."""
        for _ in range(self._rng.choice((1, 1, 2, 100))):
            part = await exchange.next(self._rng.choice(_PATIENCE))
            if not isinstance(part, bytes):
                break
            if part.startswith(b":"):
                continue
            last, state = self._note(job, part, self._owner)
            if state in FINISHED:
                return last, True
        return last, False

    def _note(self, job: str, part: bytes, owner: str) -> tuple[int, str]:
        fields = dict(line.split(": ", 1) for line in part.decode().strip().split("\n"))
        shown = msgspec.json.decode(fields["data"], type=_Shown)
        revision = int(fields["id"])
        facts = {"revision": revision, "outcome": shown.state, "ok": shown.id == job}
        self._record("streamed", job=job, holder=owner, answer=fields["event"], **facts)
        return revision, shown.state

    # Prying.

    async def _request_as_other_owner(self, job: str) -> None:
        """Ask for a job as another owner."""
        owner = "ben" if self._owner == "ann" else "ann"
        verb = self._rng.choice(("get", "result", "events", "cancel"))
        exchange = self._send(verb, job, owner=owner)
        answer = await exchange.next(1.0)
        if isinstance(answer, ResponseData) and answer.status == 404:
            self._count("denied")
            self._record("denied", job=job, holder=owner)
        elif isinstance(answer, ResponseData) and answer.status != 503:
            self._record("saw", job=job, holder=owner, detail=verb, answer=str(answer.status))
        exchange.close()


def _read(answer: ResponseData, kind: type[T]) -> T:
    assert isinstance(answer.body, bytes)
    return msgspec.json.decode(answer.body, type=kind)


def _kind(answer: ResponseData) -> str:
    """Return the last part of a problem's type."""
    assert isinstance(answer.body, bytes)
    kind: str = msgspec.json.decode(answer.body)["type"]
    return kind.rpartition(":")[2]
