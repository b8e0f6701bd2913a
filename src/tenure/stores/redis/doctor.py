"""Examines a Redis or Valkey server: facts, and settings that would lose leases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TypeAlias

from redis.exceptions import RedisError, ResponseError

from tenure.core.leases import Finding
from tenure.errors import StoreError, TenureError
from tenure.stores.redis.connection import FORMAT, Connection, read_format
from tenure.stores.redis.errors import Misled, missing_rights
from tenure.stores.redis.rights import NEEDED_RIGHTS
from tenure.stores.redis.wire import Word

__all__ = ["Doctor", "judge"]

Facts: TypeAlias = Mapping[str, str]
"""The facts of INFO and CONFIG GET by name; missing ones are unknown."""

_OLDEST = (6, 2)
_NEARLY_FULL = 0.9

# SHA-1 of the script "return 1", which is loaded and run to check the rights of this user.
_PROBE = ("SCRIPT", "LOAD", "return 1"), ("EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", 0)


class Doctor:
    """Examines the server of a store, open or not."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def examine(self) -> list[Finding]:
        """Return the findings about the server."""
        connection = self._connection
        where = f"{connection.url}, namespace {connection.namespace}"
        findings = [Finding("ok", "store", where)]
        try:
            async with connection.visit():
                await self._look(findings)
        except TenureError as error:
            findings.append(_no_answer(error))
        return findings

    async def _look(self, findings: list[Finding]) -> None:
        info = await self._connection.read_info()
        settings = await self._settings()
        server, *others = judge(info, settings, follows=self._connection.address.moves)
        grade = self._connection.traits.grade
        findings += [
            server,
            Finding("ok", "grade", f"{grade.name}, {grade.value}"),
            Finding("ok", "scope", "any number of machines"),
            await self._clock_finding(),
            *await self._topology_findings(),
            *others,
        ]
        if info.get("redis_mode") == "sentinel":
            return
        if info.get("role") != "slave":
            rights = await self._rights_finding()
            findings.append(rights)
            if rights.subject == "commands":
                return  # another finding says the same
        findings.append(await self._format_finding())

    async def _topology_findings(self) -> list[Finding]:
        try:
            finding = await self._connection.address.census()
        except RedisError as error:
            raise self._connection.fault(error) from error
        return [finding] if finding else []

    async def _settings(self) -> Facts:
        """Return the settings that INFO lacks; none if CONFIG is forbidden."""
        settings: dict[str, str] = {}
        for name in ("appendfsync", "save", "maxmemory-policy"):
            with suppress(StoreError):
                reply = await self._connection.ask("CONFIG", "GET", name)
                if len(reply) == 2:
                    settings[name] = reply[1].decode(errors="replace")
        return settings

    async def _clock_finding(self) -> Finding:
        clock, read_clock = self._connection.clock, self._connection.now
        # The first reply on a connection may take longer than the next ones.
        await read_clock()
        sent, began = clock.wall(), clock.boot()
        server = await read_clock()
        half = (clock.boot() - began) / 2
        return Finding.of_clock((server - sent) / 1e6 - half, half)

    async def _rights_finding(self) -> Finding:
        """Try, without effect, what leases need: run a script, write, publish a wake-up."""
        unused = f"{self._connection.tag}doctor"
        commands: tuple[tuple[Word, ...], ...]
        commands = (*_PROBE, ("DEL", unused), ("PUBLISH", unused, ""))
        for command in commands:
            try:
                await self._connection.ask(*command)
            except StoreError as error:
                return self._refusal(str(command[0]), error)
        user = self._connection.address.user
        refused = await self._connection.run("rights", [unused], unused)
        if not refused:
            return Finding("ok", "rights", f"{user!r} may do all that leases need")
        names = [name.decode().lower() for name in refused]
        return Finding(
            "error",
            "rights",
            f"{user!r} may not run {', '.join(names)}",
            f"ACL SETUSER {user} {' '.join(f'+{name}' for name in names)}",
        )

    def _refusal(self, command: str, error: StoreError) -> Finding:
        """Return the server's reply to a command, errors included. Raises other errors."""
        reply = error.__cause__
        if not isinstance(reply, ResponseError):
            raise error
        if not missing_rights(reply):
            return Finding(
                "error",
                "commands",
                f"{command} fails: {_line(error)}",
                "Put this right on the server; until then nothing can be acquired.",
            )
        return Finding(
            "error",
            "rights",
            f"{command} was refused: {_line(reply)}",
            f"ACL SETUSER {self._connection.address.user} {NEEDED_RIGHTS}",
        )

    async def _format_finding(self) -> Finding:
        try:
            stored = await self._connection.read_format()
        except StoreError as error:
            return self._refusal("GET", error)
        if stored is None:
            return Finding(
                "note",
                "format",
                f"none so far: no app has opened namespace {self._connection.namespace!r} here",
                "Run 'tenure migrate', or let an app with migrate=\"auto\" do it. If it should be "
                "there: check the namespace and the database number in the URL.",
            )
        numbers = read_format(stored)
        if numbers is None:
            return Finding(
                "error",
                "format",
                f"{stored[:50]!r} is not Tenure's",
                "Use another namespace, or another database.",
            )
        version, readable_from = numbers
        if readable_from > FORMAT:
            return Finding(
                "error",
                "format",
                f"{version}, from a newer Tenure; this one knows formats up to {FORMAT}",
                "Upgrade Tenure here.",
            )
        return Finding("ok", "format", str(version))


def _no_answer(error: TenureError) -> Finding:
    """Return why the server cannot be used, with the usual reason."""
    reason = error.__cause__ if isinstance(error.__cause__, Exception) else error
    if missing_rights(reason):
        return Finding(
            "error",
            "log-in",
            f"refused: {_line(reason)}",
            "Check the user and the password in the URL.",
        )
    if isinstance(reason, Misled):
        return Finding("error", "topology", f"the URL {reason.what}", reason.advice)
    if isinstance(reason, ResponseError):
        return Finding(
            "error", "connection", _line(error), "Check the URL, and see the server's log."
        )
    return Finding(
        "error",
        "connection",
        _line(reason),
        "Check that the server runs, and the host and the port in the URL.",
    )


def _line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")


def judge(info: Facts, settings: Facts, *, follows: bool = False) -> Iterator[Finding]:
    """Return findings about the role and the replicas of the server."""
    if not info:
        yield Finding(
            "note",
            "server",
            "INFO is forbidden, so the grade is taken as D",
            "Give the user the right '+info'.",
        )
    else:
        yield _server(info)
        yield _role(info)
        yield from _replication(info, follows=follows)
        yield _persistence(info, settings)
        yield _memory(info)
    if not settings:
        yield Finding(
            "note",
            "settings",
            "CONFIG GET is forbidden, so appendfsync and save are not known",
            "Check them where the server is configured, or give the user '+config|get'.",
        )
    yield _eviction(info.get("maxmemory_policy") or settings.get("maxmemory-policy"))


def _server(info: Facts) -> Finding:
    if version := info.get("valkey_version"):
        return Finding("ok", "server", f"Valkey {version}")
    version = info.get("redis_version", "0")
    number = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if number < _OLDEST:
        return Finding(
            "error",
            "server",
            f"Redis {version}; Tenure needs 6.2 or later",
            "Upgrade the server, for instance to Valkey.",
        )
    return Finding("ok", "server", f"Redis {version}")


def _role(info: Facts) -> Finding:
    if info.get("redis_mode") == "sentinel":
        return Finding(
            "error",
            "role",
            "this is a Sentinel, which keeps no data",
            "Use redis+sentinel://host:26379/service-name: it follows the primary.",
        )
    if info.get("role") == "slave":
        primary = f"{info.get('master_host', '?')}:{info.get('master_port', '?')}"
        return Finding(
            "error",
            "role",
            f"a read-only replica of {primary}",
            "Put the primary's address into the URL.",
        )
    return Finding("ok", "role", "primary")


def _replication(info: Facts, *, follows: bool) -> Iterator[Finding]:
    replicas = info.get("connected_slaves", "0")
    if replicas != "0":
        yield Finding(
            "note",
            "replicas",
            f"{replicas} attached: what was acknowledged last can be lost if one takes over",
            "Fences still grow: check them where you write. Demand a better grade with require=.",
        )
    if info.get("cluster_enabled") == "1" and not follows:
        yield Finding(
            "note",
            "cluster",
            "a namespace lives on one node of a cluster",
            "Use redis+cluster://: it finds that node, and the next one when it is replaced.",
        )


def _persistence(info: Facts, settings: Facts) -> Finding:
    fsync = settings.get("appendfsync", "not known")
    if info.get("aof_enabled") != "1":
        # An empty text means no snapshots; unknown counts as none.
        snapshots = settings.get("save", "")
        kept = f"snapshots only (save {snapshots})" if snapshots else "off"
        return Finding(
            "warning",
            "persistence",
            f"{kept}: a restart of the server loses jobs and frees locks",
            "Set appendonly to yes, with appendfsync everysec or always.",
        )
    if fsync == "no":
        return Finding(
            "warning",
            "persistence",
            "append-only file, but appendfsync is no: a power loss may cost half a minute",
            "Set appendfsync to everysec or always.",
        )
    return Finding("ok", "persistence", f"append-only file, appendfsync {fsync}")


def _memory(info: Facts) -> Finding:
    used, most = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    if not most:
        return Finding("ok", "memory", f"{_mebibytes(used)} used, no limit")
    detail = f"{_mebibytes(used)} of {_mebibytes(most)} used"
    if used < most * _NEARLY_FULL:
        return Finding("ok", "memory", detail)
    return Finding(
        "warning" if used < most else "error",
        "memory",
        f"{detail}: {'a full server takes' if used < most else 'it is full and takes'} no new jobs",
        "Raise maxmemory, shorten the retention of jobs, or move other data elsewhere.",
    )


def _eviction(policy: str | None) -> Finding:
    if policy is None:
        return Finding(
            "note",
            "eviction",
            "maxmemory-policy is not known",
            "Make sure that it is noeviction.",
        )
    if policy == "noeviction":
        return Finding("ok", "eviction", policy)
    return Finding(
        "warning",
        "eviction",
        f"{policy}: a server short of memory drops leases that are held",
        "Set maxmemory-policy to noeviction.",
    )


def _mebibytes(size: int) -> str:
    return f"{size / 1024**2:.1f} MiB"
