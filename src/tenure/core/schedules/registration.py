"""Decides which definition of a schedule rules, and where a renamed schedule continues.

Replicas register the definitions they know (decision 9). A definition that the store has never seen
rules at once. An older one takes over when no replica has declared the ruling one for DECLARED_FOR
seconds, as after a roll-back. A rename takes the cursor, the last run and the longest pause along,
and leaves the old name with a `successor`. Pure: `runtime.timers.scheduling` loads what `register`
needs, and commits what it returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from msgspec import Raw, Struct
from msgspec.structs import replace

from tenure.core.schedules.documents import (
    DECLARED_FOR,
    DIGESTS_MAX,
    Charter,
    Freeze,
    Schedule,
    Standing,
    write_document,
)
from tenure.core.schedules.records import Commit, Expected, Write

__all__ = ["Loaded", "Registered", "Registration", "names_to_read", "register"]

_NEVER: Final = 2**63


class Registration(Struct, frozen=True, kw_only=True):
    """A schedule as a replica registers it."""

    name: str
    digest: str
    """Tells one definition from another."""
    calendar: str = ""
    """The same for definitions with the same ticks: the next one goes on where one was."""
    definition: bytes
    """JSON."""
    renamed_from: tuple[str, ...] = ()


class Registered(Struct, frozen=True, kw_only=True):
    """The answer to a registration."""

    ruler: str
    """The digest to advance its cursor under; empty: another definition rules, leave it alone."""
    revision: int
    """How often the ruling definition has changed; 0 if another definition rules."""
    cursor: int
    last_run: int = 0
    """The nominal instant of the last tick that ran; 0 if none did."""
    now: int


Loaded: TypeAlias = Mapping[str, Schedule | None]
"""Schedules that were read, by name. None: it does not exist, or cannot be read."""


def names_to_read(registration: Registration, loaded: Loaded) -> list[str]:
    """Return the names to read before `register` can decide; empty when all are loaded."""
    names = {registration.name, *registration.renamed_from}
    names |= {
        schedule.standing.successor
        for schedule in loaded.values()
        if schedule is not None and schedule.standing.successor
    }
    return sorted(names - loaded.keys())


def register(
    registration: Registration, loaded: Loaded, *, versions: Mapping[str, str], id_: str, now: int
) -> tuple[Commit | None, Registered]:
    """Return the commit that makes this definition rule, or None, and the answer to the replica.

    `versions` are those of the records that were read, unreadable ones included.
    """
    return _Deployment(registration, loaded, versions, now).decide(id_)


class _Deployment:
    """One registration, and the stored schedules that it concerns."""

    def __init__(
        self, registration: Registration, loaded: Loaded, versions: Mapping[str, str], now: int
    ) -> None:
        self._registration = registration
        self._loaded = loaded
        self._versions = versions
        self._now = now
        self._own = loaded[registration.name]
        self._current = None if self._own is None else self._current_of(self._own)
        self._others = self._taken_over()

    def decide(self, id_: str) -> tuple[Commit | None, Registered]:
        own = self._own
        if (own is not None and self._must_yield(own)) or not self._are_ours():
            return None, self._registered(None if own is None else own.standing, rules=False)
        if own is not None and self._is_unchanged(own):
            return None, self._registered(own.standing)
        standing = self._standing()
        return self._commit(id_, standing), self._registered(standing)

    @property
    def _all(self) -> list[Schedule]:
        return self._others if self._own is None else [self._own, *self._others]

    def _current_of(self, schedule: Schedule) -> Schedule:
        """Return the schedule that continues this one: the last of its chain of successors."""
        passed = {schedule.name}
        while (following := self._loaded.get(schedule.standing.successor)) is not None:
            if following.name in passed:  # only damaged records go round in a circle
                break
            passed.add(following.name)
            schedule = following
        return schedule

    def _taken_over(self) -> list[Schedule]:
        """Return the schedules that this one continues."""
        former = [self._loaded[name] for name in self._registration.renamed_from]
        origins = [schedule for schedule in former if schedule is not None]
        if self._own is None:
            origins = [self._current_of(schedule) for schedule in origins]
        else:
            # A schedule that another name continues stays with that name.
            origins = [schedule for schedule in origins if self._current_of(schedule) is schedule]
            assert self._current is not None
            origins = [self._current, *origins]
        by_name = {schedule.name: schedule for schedule in origins}
        by_name.pop(self._registration.name, None)
        return list(by_name.values())

    def _must_yield(self, own: Schedule) -> bool:
        if (
            self._yields_to_successor
            and self._current is not None
            and self._is_declared(self._current)
        ):
            return True
        return self._is_older(own) and self._is_declared(own)

    def _is_declared(self, schedule: Schedule) -> bool:
        """Return whether to leave it alone, because a replica with its definition is alive.

        A declaration in the store's future would count for too long. So the take-over is attempted
        all the same: the store refuses it, and sets the declaration back to now.
        """
        return schedule.is_declared(self._now) and schedule.record.declared <= self._now

    @property
    def _yields_to_successor(self) -> bool:
        """Return whether it was renamed, and does not name its successor as a former name."""
        successor = self._current
        return successor is not None and successor.name not in {
            self._registration.name,
            *self._registration.renamed_from,
        }

    def _rules(self, own: Schedule) -> bool:
        return own.charter.digests[-1:] == (self._registration.digest,)

    def _is_older(self, own: Schedule) -> bool:
        """Return whether this definition has ruled before, and a newer one has replaced it."""
        return self._registration.digest in own.charter.digests and not self._rules(own)

    def _are_ours(self) -> bool:
        """Return whether this release can rewrite all schedules that it has to."""
        return all(schedule.standing.is_ours for schedule in self._all)

    def _is_unchanged(self, own: Schedule) -> bool:
        is_current = not own.standing.successor and not self._others
        return is_current and self._rules(own) and own.record.ruler == self._registration.digest

    def _commit(self, id_: str, standing: Standing) -> Commit:
        name = self._registration.name
        others = [
            Write(
                schedule.name,
                write_document(
                    replace(
                        schedule.standing,
                        successor=name,
                        revision=schedule.standing.revision + 1,
                    )
                ),
            )
            for schedule in self._others
        ]
        own = Write(
            name,
            write_document(standing),
            ruler=self._registration.digest,
            definition=self._definition(),
            above=tuple(schedule.name for schedule in self._others),
        )
        return Commit(
            id=id_,
            name=name,
            expects=tuple(self._expects()),
            writes=(own, *others),
            declares=True,
        )

    def _expects(self) -> Iterable[Expected]:
        own = self._own
        name = self._registration.name
        is_older = own is not None and self._is_older(own)
        yield Expected(name, self._versions.get(name, ""), DECLARED_FOR if is_older else None)
        for schedule in self._others:
            must_be_silent = schedule is self._current and self._yields_to_successor
            silent_for = DECLARED_FOR if must_be_silent else None
            yield Expected(schedule.name, schedule.record.version, silent_for)
        for former in dict.fromkeys(self._registration.renamed_from):
            if self._loaded[former] is None:  # created meanwhile, both names would tick
                yield Expected(former, self._versions.get(former, ""))

    def _definition(self) -> str | None:
        """Return the charter to write; None if the stored one stays."""
        own, registration = self._own, self._registration
        if own is not None and self._rules(own):
            return None
        charter = Charter(definition=Raw(b""), digests=(), calendar="", registered=self._now)
        if own is not None:
            charter = own.charter if own.charter.digests else charter
        earlier = [digest for digest in charter.digests if digest != registration.digest]
        charter = replace(
            charter,
            definition=Raw(registration.definition),
            digests=(*earlier, registration.digest)[-DIGESTS_MAX:],
            calendar=registration.calendar,
        )
        return write_document(charter)

    def _standing(self) -> Standing:
        own = self._own
        fresh = Standing(
            cursor=self._cursor(),
            freeze=self._freeze(),
            ran=max([schedule.standing.ran for schedule in self._all], default=0),
        )
        if own is None:
            return fresh
        return replace(
            own.standing,
            cursor=fresh.cursor,
            revision=own.standing.revision + (not self._rules(own)),
            successor="",
            freeze=fresh.freeze,
            ran=fresh.ran,
        )

    def _cursor(self) -> int:
        """Return where its ticks continue: now, unless a schedule of the same calendar goes on."""
        own, others = self._own, self._others
        calendar = self._registration.calendar
        cursors = [
            schedule.standing.cursor for schedule in others if schedule.charter.calendar == calendar
        ]
        is_current = (
            own is not None and not own.standing.successor and own.charter.calendar == calendar
        )
        # The chain of names leads to a schedule that was forgotten since.
        successors = others if self._current is None else [self._current]
        is_forgotten = any(successor.standing.successor for successor in successors)
        if is_forgotten or not (cursors or is_current):
            # Beside now, because the clock may have been set back.
            cursors += [self._now, *(schedule.standing.cursor for schedule in others)]
        return max([0 if own is None else own.standing.cursor, *cursors])

    def _freeze(self) -> Freeze | None:
        """Return the freeze that lasts longest. A schedule that was renamed has lost its own."""
        standings = [schedule.standing for schedule in self._all if not schedule.standing.successor]
        freezes = [standing.freeze for standing in standings if standing.freeze is not None]
        return max(freezes, key=_end_of, default=None)

    def _registered(self, standing: Standing | None, *, rules: bool = True) -> Registered:
        standing = standing or Standing(cursor=0)
        return Registered(
            ruler=self._registration.digest if rules else "",
            revision=standing.revision if rules else 0,
            cursor=standing.cursor,
            last_run=max([schedule.last_run for schedule in self._all], default=0),
            now=self._now,
        )


def _end_of(freeze: Freeze) -> int:
    return _NEVER if freeze.until is None else freeze.until
