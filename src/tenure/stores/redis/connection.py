"""A Redis store object's ties to its server: two connections, its keys' names, its errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NoReturn, Self

from redis.exceptions import RedisError, ResponseError

from tenure.core.clock import Clock
from tenure.core.model import Grade, Topic, Traits
from tenure.core.redaction import Secret
from tenure.errors import ConfigError, StoreError
from tenure.stores.contract import Migrate, Purpose, Watch
from tenure.stores.damage import Damage
from tenure.stores.redis.address import address_of
from tenure.stores.redis.ear import Ear
from tenure.stores.redis.faults import Misled, missing_rights, translate
from tenure.stores.redis.scripts import SLEEP
from tenure.stores.redis.sender import Sender
from tenure.stores.redis.wire import Word
from tenure.stores.watching import ARM_SECONDS, Watchers
from tenure.stores.within import no_transactions

__all__ = ["FORMAT", "Connection", "read_format"]

FORMAT = 1
"""The shape of what is stored; described in lua/prelude.lua, lua/jobs.lua and
lua/schedules.lua.

Neither jobs nor schedules raised it: their keys are new, and a version that does not know them
neither reads nor removes them. Runs of schedules are jobs that such a version can read, claim and
settle. So all versions work side by side, as during a rolling deploy.
"""

# What the job scripts take, in the order of lua/jobs.lua.
_JOB_KEYS = (
    *("state", "fixed", "waiting", "held", "unfinished", "tags", "finished", "deadlines"),
    *("cancels", "running", "unique", "ends", "paused", "sleeping"),
    *("replicas", "expiry", "renewed", "joined", "claims", "broken"),
    *("succeeded", "failed", "cancelled", "live", "pauses"),
)

# What the schedule scripts take after these, in the order of lua/schedules.lua.
_TIMER_KEYS = ("schedules", "definitions", "names", "declared", "decisions")

# The flags of sleepers are hints: those that nobody has renewed or answered for a day can go.
_FLAGS_LIFE_MS = 86_400_000

_log = logging.getLogger("tenure")
_warned: set[tuple[str, str]] = set()


class Connection:
    """What every part of the Redis store shares."""

    traits = Traits(grade=Grade.D, scope="fleet", push=True, transactional=False)

    def __init__(self, url: str, *, namespace: str, clock: Clock) -> None:
        # The braces are a hash tag: in a cluster, all keys of a namespace lie on one node.
        self._tag = f"{{tenure:{namespace}}}:"
        self._address = address_of(url, self._tag)
        self._secret_url = Secret(url)
        self.url = self._address.text
        self.namespace = namespace
        self.clock = clock
        self.damage = Damage(self.url, namespace)
        self._names, self._fence = f"{self._tag}names", f"{self._tag}fence"
        self._marks = f"{self._tag}marks"
        self._channel = f"{self._tag}ear:{clock.token()}"
        self._bells = f"{self._tag}bell:"
        self._job_keys = tuple(f"{self._tag}job:{name}" for name in _JOB_KEYS)
        timer_keys = (f"{self._tag}timer:{name}" for name in _TIMER_KEYS)
        self._schedule_keys = (*self._job_keys, *timer_keys)
        self._watchers = Watchers(clock)
        self._sender: Sender | None = None
        self._ear: Ear | None = None

    async def open(self, migrate: Migrate = "auto") -> None:
        was_closed = self._sender is None
        if was_closed:
            self._sender = Sender(self._address, self.clock.random)
            self._ear = Ear(
                self._address,
                channel=self._channel,
                bells=self._bells,
                watchers=self._watchers,
                clock=self.clock,
                ask_again=self._ask_again,
            )
        try:
            await self._log_in()
            self._refuse_sentinel(await self._inspect())
            await self._check_format(migrate)
        except BaseException:
            if was_closed:
                await self.close()
            raise

    async def close(self) -> None:
        sender, self._sender = self._sender, None
        ear, self._ear = self._ear, None
        if ear is not None:
            await ear.close()
        if sender is not None:
            await sender.close()

    def abandon(self) -> None:
        """Close without the event loop, which is closed: cut both connections."""
        sender, self._sender = self._sender, None
        ear, self._ear = self._ear, None
        for part in (ear, sender):
            if part is not None:
                part.abandon()

    def clone(self) -> Self:
        return type(self)(self._secret_url(), namespace=self.namespace, clock=self.clock)

    def within(self, connection: object, purpose: Purpose) -> NoReturn:
        del connection
        raise no_transactions(purpose, self.url)

    async def now(self) -> int:
        virtual = self.clock.for_server()
        if virtual is not None and self._sender is not None:
            return virtual
        seconds, micros = await self._ask("TIME")
        return int(seconds) * 1_000_000 + int(micros)

    async def incarnation(self) -> str:
        key = f"{self._tag}incarnation"
        found = await self._ask("GET", key)
        if found is None:
            # The server is new, or it has lost its data. Open stores go on with it and write in
            # this format, so programs that only check the format must find the number.
            await self._ask("SET", f"{self._tag}format", FORMAT, "NX")
            # Only the first of many that ask at the same time writes it.
            await self._ask("SET", key, self.clock.token(), "NX")
            found = await self._ask("GET", key)
        return (found or b"").decode(errors="replace")

    @asynccontextmanager
    async def watch(self, *topics: Topic) -> AsyncIterator[Watch]:
        if self._ear is None:
            raise self._not_open()
        async with self._watchers.watch(*topics) as armed:
            await self._ear.listen({kind for kind, _ in topics})
            queues = [name for kind, name in topics if kind == "queue"]
            if queues:
                # First the ear, then the flag, then the caller's claim: a job that comes in
                # between is either found by the claim or told to the ear.
                await asyncio.wait((self._ask_for(queues),), timeout=ARM_SECONDS)
            yield armed

    def _ask_for(self, queues: Sequence[str]) -> asyncio.Future[Any]:
        """Ask to be told of the next job in these queues; see `ring` in lua/jobs.lua."""
        key = f"{self._tag}job:sleeping"
        return self._open_sender.run(SLEEP, (1, key, _FLAGS_LIFE_MS, *queues))

    def _ask_again(self, queues: Sequence[str]) -> None:
        if queues and self._sender is not None:  # it is being closed otherwise
            self._ask_for(queues)

    @property
    def _open_sender(self) -> Sender:
        if self._sender is None:
            raise self._not_open()
        return self._sender

    @property
    def _now(self) -> Word:
        """The first argument of every script: a test's instant, or empty for the server's clock."""
        virtual = self.clock.for_server()
        return "" if virtual is None else virtual

    async def _ask(self, *words: Word) -> Any:
        """Send a plain command and return its reply."""
        reply = await self._open_sender.send(*words)
        if isinstance(reply, RedisError):
            raise self._fault(reply)
        return reply

    def _fault(self, error: RedisError) -> StoreError:
        """Return the error to raise for what came instead of a reply."""
        fault = translate(error, self._address)
        fault.__cause__ = error
        return fault

    def _not_open(self) -> StoreError:
        return StoreError(f"the store {self.url} is not open. Use it inside 'async with app:'.")

    async def _log_in(self) -> None:
        reply = await self._open_sender.send("PING")
        if not isinstance(reply, RedisError):
            return
        fault = self._fault(reply)
        # Later on, when a password has been changed, the same is a StoreError: no argument of
        # that call was wrong.
        if missing_rights(reply) or isinstance(reply, Misled):
            raise ConfigError(str(fault)) from reply
        raise fault

    async def _check_format(self, migrate: Migrate) -> None:
        if migrate == "skip":
            return
        key = f"{self._tag}format"
        found = await self._ask("GET", key)
        # A full server refuses to write even what is there already.
        if found is None and migrate == "auto":
            # Only the first of many that open at the same time writes it.
            await self._ask("SET", key, FORMAT, "NX")
            found = await self._ask("GET", key)
        if found is None:
            msg = (
                f"the store {self.url} has no namespace {self.namespace!r} yet. "
                "Open it once with migrate='auto', or run 'tenure migrate'."
            )
            raise ConfigError(msg)
        number = read_format(found)
        if number is None:
            msg = (
                f"the store {self.url} has a key {key!r} that is not Tenure's: {found[:50]!r}. "
                "Use another namespace, or another database."
            )
            raise ConfigError(msg)
        if number > FORMAT:
            msg = (
                f"the store {self.url} has format {number} in namespace {self.namespace!r}, "
                f"and this version of Tenure knows only {FORMAT}. Install a newer Tenure."
            )
            raise ConfigError(msg)

    def _refuse_sentinel(self, facts: dict[str, str]) -> None:
        if facts.get("redis_mode") == "sentinel":
            msg = (
                f"the store {self.url} is a Sentinel, which keeps no data. Use "
                "redis+sentinel://host:26379/service-name: it follows the primary."
            )
            raise ConfigError(msg)

    async def _inspect(self) -> dict[str, str]:
        """Learn what the server survives, and warn about what would lose leases; return INFO."""
        reply = await self._open_sender.send("INFO")
        if isinstance(reply, ResponseError):
            _log.debug("%s forbids INFO (%s); its grade is taken as D.", self.url, reply)
            return {}
        if isinstance(reply, RedisError):
            raise self._fault(reply)
        lines = reply.decode(errors="replace").splitlines()
        facts = dict(line.split(":", 1) for line in lines if ":" in line)
        # Who may be replaced can lose what was acknowledged last, also while alone for now.
        grade = Grade.C if self._address.moves else _grade(facts)
        self.traits = Traits(grade=grade, scope="fleet", push=True, transactional=False)
        policy = facts.get("maxmemory_policy")
        if policy is None:
            _log.debug("%s does not tell its maxmemory-policy; it must be noeviction.", self.url)
        elif policy != "noeviction" and (self.url, policy) not in _warned:
            _warned.add((self.url, policy))
            _log.warning(
                "%s has maxmemory-policy %s: it may drop leases that are held. "
                "Set maxmemory-policy to noeviction.",
                self.url,
                policy,
            )
        return facts


def read_format(value: bytes) -> int | None:
    """Return the number of a format; None if that was not written by Tenure."""
    return int(value) if value.isdigit() and len(value) < 10 else None


def _grade(facts: dict[str, str]) -> Grade:
    """Return the grade that the facts of INFO amount to."""
    replicated = facts.get("connected_slaves", "0") != "0" or facts.get("role") == "slave"
    if replicated or facts.get("cluster_enabled") == "1":
        return Grade.C
    # Snapshots alone lose minutes, which is no better than losing everything.
    return Grade.B if facts.get("aof_enabled") == "1" else Grade.D
