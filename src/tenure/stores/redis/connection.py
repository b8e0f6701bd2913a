"""The connections of a store object to its server: one for calls, one for wake-ups."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NoReturn, Self

from redis.exceptions import RedisError, ResponseError

from tenure.core.clock import Clock
from tenure.core.leases import Grade, Pong, Topic, Traits
from tenure.core.redaction import Secret
from tenure.errors import ConfigError, StoreError, StoreFull
from tenure.stores.contract import Migrate, Purpose, Watch
from tenure.stores.damage import Damage
from tenure.stores.redis.errors import Misled, missing_rights
from tenure.stores.redis.listener import Listener
from tenure.stores.redis.scripts import SCRIPTS
from tenure.stores.redis.sender import Sender
from tenure.stores.redis.topology import address_of
from tenure.stores.redis.wire import Word
from tenure.stores.transaction import no_transactions
from tenure.stores.watchers import ARM_SECONDS, Watchers

__all__ = ["FORMAT", "READABLE_FROM", "Connection", "grade_of", "read_format"]

FORMAT = 1
"""The shape of what is stored; described in lua/leases.lua, lua/record.lua, lua/jobs.lua and
lua/schedules.lua."""
READABLE_FROM = 1
"""The oldest format whose code can work with the data of this version."""

# The flags of idle workers are hints, so those that were not renewed for a day are removed.
_FLAGS_LIFE_MS = 86_400_000

_log = logging.getLogger("tenure")
_warned: set[tuple[str, str]] = set()


class Connection:
    """The connection that the parts of a Redis store share."""

    traits = Traits(grade=Grade.D, scope="fleet", push=True, transactional=False)

    def __init__(self, url: str, *, namespace: str, clock: Clock) -> None:
        # The braces are a hash tag: in a cluster, all keys of a namespace lie on one node.
        self.tag = f"{{tenure:{namespace}}}:"
        self.address = address_of(url, self.tag)
        self._secret_url = Secret(url)
        self.url = self.address.text
        self.namespace = namespace
        self.clock = clock
        self.damage = Damage(self.url, namespace)
        self.channel = f"{self.tag}ear:{clock.token()}"
        """The channel of wake-ups for this store object alone."""
        self.bells = f"{self.tag}bell:"
        """The prefix of the channels of wake-ups, before the kind of topic."""
        self._watchers = Watchers(clock)
        self._sender: Sender | None = None
        self._listener: Listener | None = None

    async def open(self, migrate: Migrate = "auto") -> None:
        was_closed = self._sender is None
        if was_closed:
            self._sender = Sender(self.address, self.clock.random)
            self._listener = Listener(
                self.address,
                channel=self.channel,
                bells=self.bells,
                watchers=self._watchers,
                clock=self.clock,
                ask_again=self._ask_again,
            )
        try:
            await self._log_in()
            self._judge(await self.read_info())
            if migrate != "skip":
                await self._check_format(migrate)
        except BaseException:
            if was_closed:
                await self.close()
            raise

    async def close(self) -> None:
        sender, self._sender = self._sender, None
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.close()
        if sender is not None:
            await sender.close()

    def abandon(self) -> None:
        """Close without the event loop, which is closed: cut both connections."""
        for part in (self._listener, self._sender):
            if part is not None:
                part.abandon()
        self._listener = self._sender = None

    @asynccontextmanager
    async def visit(self) -> AsyncIterator[None]:
        """Log in, for as long as this takes if the store is not open."""
        was_closed = self._sender is None
        if was_closed:
            self._sender = Sender(self.address, self.clock.random)
        try:
            await self._log_in()
            yield
        finally:
            if was_closed:
                await self.close()

    def clone(self) -> Self:
        return type(self)(self._secret_url(), namespace=self.namespace, clock=self.clock)

    def within(self, connection: object, purpose: Purpose) -> NoReturn:
        del connection
        raise no_transactions(purpose, self.url)

    async def ping(self) -> Pong:
        return Pong(await self.now(), await self._incarnation())

    async def now(self) -> int:
        """Return the store's time."""
        virtual = self.clock.for_server()
        if virtual is not None and self._sender is not None:
            return virtual
        seconds, micros = await self.ask("TIME")
        return int(seconds) * 1_000_000 + int(micros)

    async def _incarnation(self) -> str:
        key = f"{self.tag}incarnation"
        token = await self.ask("GET", key)
        if token is None:
            # The server is new or has lost its data. Open stores continue and write in this format,
            # so programs that only check the format must find its number.
            with suppress(StoreFull):  # a caller that needs only the time gets it all the same
                await self._write_format()
                # SET NX: of concurrent callers, only the first one writes it.
                await self.ask("SET", key, self.clock.token(), "NX")
            token = await self.ask("GET", key)
        return (token or b"").decode(errors="replace")

    @asynccontextmanager
    async def watch(self, *topics: Topic) -> AsyncIterator[Watch]:
        if self._listener is None:
            raise self._not_open()
        async with self._watchers.watch(*topics) as armed:
            await self._listener.listen({kind for kind, _ in topics})
            queues = [name for kind, name in topics if kind == "queue"]
            if queues:
                # First the channel, then the flag, then the caller's claim: a job that arrives in
                # between is either found by the claim or announced on the channel.
                await asyncio.wait((self._ask_for(queues),), timeout=ARM_SECONDS)
            yield armed

    def _ask_for(self, queues: Sequence[str]) -> asyncio.Future[Any]:
        """Register for a wake-up by the next job in these queues; see `ring` in lua/jobs.lua."""
        words: tuple[Word, ...] = (1, f"{self.tag}job:sleeping", _FLAGS_LIFE_MS, *queues)
        return self._open_sender.run(SCRIPTS["sleep"], words)

    def _ask_again(self, queues: Sequence[str]) -> None:
        if queues and self._sender is not None:  # otherwise it is being closed
            self._ask_for(queues)

    @property
    def _open_sender(self) -> Sender:
        if self._sender is None:
            raise self._not_open()
        return self._sender

    def _not_open(self) -> StoreError:
        return StoreError(f"the store {self.url} is not open. Use it inside 'async with app:'.")

    @property
    def _now(self) -> Word:
        """The first argument of every script: a test's instant, or empty for the server's clock."""
        virtual = self.clock.for_server()
        return "" if virtual is None else virtual

    async def ask(self, *words: Word) -> Any:
        """Send a plain command and return its reply."""
        reply = await self._open_sender.send(*words)
        if isinstance(reply, RedisError):
            raise self.fault(reply)
        return reply

    async def run(self, script: str, keys: Sequence[str], *arguments: Word) -> list[Any]:
        """Run a script, whose reply is a list."""
        words = (len(keys), *keys, self._now, *arguments)
        reply = await self._open_sender.run(SCRIPTS[script], words)
        if type(reply) is not list:
            raise self.fault(reply)
        return reply

    def fault(self, error: RedisError) -> StoreError:
        """Return the error to raise for an error in place of a reply."""
        fault = self.address.fault(error)
        fault.__cause__ = error
        return fault

    async def _log_in(self) -> None:
        reply = await self._open_sender.send("PING")
        if not isinstance(reply, RedisError):
            return
        fault = self.fault(reply)
        # After opening it is a StoreError, for example for a changed password: the arguments of the
        # call were right.
        if missing_rights(reply) or isinstance(reply, Misled):
            raise ConfigError(str(fault)) from reply
        raise fault

    async def read_format(self) -> bytes | None:
        """Return the stored format; None if there is none."""
        stored: bytes | None = await self.ask("GET", f"{self.tag}format")
        return stored

    async def _write_format(self) -> None:
        # SET NX: of concurrent openings, only the first one writes it.
        await self.ask("SET", f"{self.tag}format", f"{FORMAT} {READABLE_FROM}", "NX")

    async def _check_format(self, migrate: Migrate) -> None:
        stored = await self.read_format()
        # A full server rejects the write even if the key exists.
        if stored is None and migrate == "auto":
            await self._write_format()
            stored = await self.read_format()
        if stored is None:
            msg = (
                f"the store {self.url} has no namespace {self.namespace!r} yet. "
                "Open it once with migrate='auto', or run 'tenure migrate'."
            )
            raise ConfigError(msg)
        numbers = read_format(stored)
        if numbers is None:
            msg = (
                f"the store {self.url} has a key {f'{self.tag}format'!r} that is not Tenure's: "
                f"{stored[:50]!r}. Use another namespace, or another database."
            )
            raise ConfigError(msg)
        version, readable_from = numbers
        if readable_from > FORMAT:
            msg = (
                f"the store {self.url} has format {version} in namespace {self.namespace!r}, "
                f"and this version of Tenure knows only {FORMAT}. Install a newer Tenure."
            )
            raise ConfigError(msg)

    async def read_info(self) -> dict[str, str]:
        """Return the facts of INFO by name, and set the grade; empty if INFO is forbidden."""
        reply = await self._open_sender.send("INFO")
        if isinstance(reply, ResponseError):
            _log.debug("%s forbids INFO (%s); its grade is taken as D.", self.url, reply)
            return {}
        if isinstance(reply, RedisError):
            raise self.fault(reply)
        lines = reply.decode(errors="replace").splitlines()
        facts = dict(line.split(":", 1) for line in lines if ":" in line)
        # A server that may be replaced can lose its last acknowledged writes, with or without
        # replicas.
        grade = Grade.C if self.address.moves else grade_of(facts)
        self.traits = Traits(grade=grade, scope="fleet", push=True, transactional=False)
        return facts

    def _judge(self, facts: dict[str, str]) -> None:
        """Raise ConfigError for a Sentinel, and warn about settings that would lose leases."""
        if facts.get("redis_mode") == "sentinel":
            msg = (
                f"the store {self.url} is a Sentinel, which keeps no data. Use "
                "redis+sentinel://host:26379/service-name: it follows the primary."
            )
            raise ConfigError(msg)
        policy = facts.get("maxmemory_policy")
        if facts and policy is None:
            _log.debug("%s does not tell its maxmemory-policy; it must be noeviction.", self.url)
        elif policy not in (None, "noeviction") and (self.url, policy) not in _warned:
            _warned.add((self.url, policy))
            _log.warning(
                "%s has maxmemory-policy %s: it may drop leases that are held. "
                "Set maxmemory-policy to noeviction.",
                self.url,
                policy,
            )


def read_format(value: bytes) -> tuple[int, int] | None:
    """Return the number of a stored format, and the oldest format whose code can use it.

    None if Tenure has not written it.
    """
    version, _, readable_from = value.partition(b" ")
    numbers = version, readable_from or version
    if not all(number.isdigit() and len(number) < 10 for number in numbers):
        return None
    return int(numbers[0]), int(numbers[1])


def grade_of(facts: dict[str, str]) -> Grade:
    """Return the grade that follows from the facts of INFO."""
    replicated = facts.get("connected_slaves", "0") != "0" or facts.get("role") == "slave"
    if replicated or facts.get("cluster_enabled") == "1":
        return Grade.C
    # Snapshots alone lose minutes, which is as bad as losing everything.
    return Grade.B if facts.get("aof_enabled") == "1" else Grade.D
