"""Which definition of a schedule rules, and where a renamed schedule continues.

Replicas declare the definitions they know (decision 9). A definition that the store has never seen
rules at once. An older one takes over when no replica has declared the ruling one for DECLARED_FOR
seconds. A rename takes the cursor, the last run and the longest freeze along, and leaves the old
name with a `successor`. Pure: `runtime.scheduling` loads what is needed here, and commits.
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

__all__ = ["Known", "Planted", "Planting", "names_to_read", "plant"]

_NEVER: Final = 2**63


class Planting(Struct, frozen=True, kw_only=True):
    """A schedule as a replica declares it."""

    name: str
    digest: str
    """Tells one definition from another."""
    calendar: str = ""
    """The same for definitions with the same ticks: the next one goes on where one was."""
    definition: bytes
    """JSON."""
    renamed_from: tuple[str, ...] = ()


class Planted(Struct, frozen=True, kw_only=True):
    """How a declared schedule stands."""

    ruler: str
    """Under which to move its cursor; empty: another definition rules, leave it alone."""
    revision: int
    """How often it has changed hands; 0 if another definition rules."""
    cursor: int
    last_run: int = 0
    """The nominal instant of the last tick that ran; 0 if none did."""
    now: int


Known: TypeAlias = Mapping[str, Schedule | None]
"""Schedules that were looked up, by name; None: it is not there, or cannot be read."""


def names_to_read(planting: Planting, known: Known) -> list[str]:
    """Return the names that have to be looked up before it can be decided; none if all are."""
    names = {planting.name, *planting.renamed_from}
    names |= {
        schedule.standing.successor
        for schedule in known.values()
        if schedule is not None and schedule.standing.successor
    }
    return sorted(names - known.keys())


def plant(
    planting: Planting, known: Known, *, versions: Mapping[str, str], id_: str, now: int
) -> tuple[Commit | None, Planted]:
    """Decide about a declaration: the commit that makes it rule, if it needs one; how it stands.

    `versions` are those of the records looked up, also of those that cannot be read.
    """
    return _Deployment(planting, known, versions, now).decide(id_)


class _Deployment:
    """One definition, and the schedules that it meets."""

    def __init__(
        self, planting: Planting, known: Known, versions: Mapping[str, str], now: int
    ) -> None:
        self._planting = planting
        self._known = known
        self._versions = versions
        self._now = now
        self._own = known[planting.name]
        self._heir = None if self._own is None else self._heir_of(self._own)
        self._others = self._taken_over()

    def decide(self, id_: str) -> tuple[Commit | None, Planted]:
        own = self._own
        if (own is not None and self._must_yield(own)) or not self._are_ours():
            return None, self._planted(None if own is None else own.standing, rules=False)
        if own is not None and self._is_unchanged(own):
            return None, self._planted(own.standing)
        standing = self._standing()
        return self._commit(id_, standing), self._planted(standing)

    @property
    def _all(self) -> list[Schedule]:
        return self._others if self._own is None else [self._own, *self._others]

    def _heir_of(self, schedule: Schedule) -> Schedule:
        """Return the last of its chain of successors that is there; itself if it has none."""
        passed = {schedule.name}
        while (following := self._known.get(schedule.standing.successor)) is not None:
            if following.name in passed:  # only damaged records go round in a circle
                break
            passed.add(following.name)
            schedule = following
        return schedule

    def _taken_over(self) -> list[Schedule]:
        """Return the schedules that this one takes over from."""
        former = [self._known[name] for name in self._planting.renamed_from]
        found = [schedule for schedule in former if schedule is not None]
        if self._own is None:
            found = [self._heir_of(schedule) for schedule in found]
        else:
            # What another name has taken over stays with that name.
            found = [schedule for schedule in found if self._heir_of(schedule) is schedule]
            assert self._heir is not None
            found = [self._heir, *found]
        by_name = {schedule.name: schedule for schedule in found}
        by_name.pop(self._planting.name, None)
        return list(by_name.values())

    def _must_yield(self, own: Schedule) -> bool:
        if self._yields_to_heir and self._heir is not None and self._is_declared(self._heir):
            return True
        return self._is_older(own) and self._is_declared(own)

    def _is_declared(self, schedule: Schedule) -> bool:
        """Return whether to leave it alone, because a replica with its definition is alive.

        A declaration in the store's future would count for too long. It is tried to take over from
        it: the store refuses that, and sets the declaration back to now.
        """
        return schedule.is_declared(self._now) and schedule.record.declared <= self._now

    @property
    def _yields_to_heir(self) -> bool:
        """Return whether it was renamed, and does not name its heir as a former name."""
        heir = self._heir
        return heir is not None and heir.name not in {
            self._planting.name,
            *self._planting.renamed_from,
        }

    def _rules(self, own: Schedule) -> bool:
        return own.charter.digests[-1:] == (self._planting.digest,)

    def _is_older(self, own: Schedule) -> bool:
        """Return whether this definition has ruled before, and another one has since."""
        return self._planting.digest in own.charter.digests and not self._rules(own)

    def _are_ours(self) -> bool:
        """Return whether this release may rewrite all that it would have to."""
        return all(schedule.standing.is_ours for schedule in self._all)

    def _is_unchanged(self, own: Schedule) -> bool:
        is_current = not own.standing.successor and not self._others
        return is_current and self._rules(own) and own.record.ruler == self._planting.digest

    def _commit(self, id_: str, standing: Standing) -> Commit:
        name = self._planting.name
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
            ruler=self._planting.digest,
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
        name = self._planting.name
        is_older = own is not None and self._is_older(own)
        yield Expected(name, self._versions.get(name, ""), DECLARED_FOR if is_older else None)
        for schedule in self._others:
            must_be_silent = schedule is self._heir and self._yields_to_heir
            silent_for = DECLARED_FOR if must_be_silent else None
            yield Expected(schedule.name, schedule.record.version, silent_for)
        for former in dict.fromkeys(self._planting.renamed_from):
            if self._known[former] is None:  # if it came meanwhile, both would tick
                yield Expected(former, self._versions.get(former, ""))

    def _definition(self) -> str | None:
        """Return the charter to write; None if the one that is there stays."""
        own, planting = self._own, self._planting
        if own is not None and self._rules(own):
            return None
        charter = Charter(definition=Raw(b""), digests=(), calendar="", planted=self._now)
        if own is not None:
            charter = own.charter if own.charter.digests else charter
        earlier = [digest for digest in charter.digests if digest != planting.digest]
        charter = replace(
            charter,
            definition=Raw(planting.definition),
            digests=(*earlier, planting.digest)[-DIGESTS_MAX:],
            calendar=planting.calendar,
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
        """Return where it goes on.

        That is now, unless ticks of the same calendar were decided about until lately.
        """
        own, others = self._own, self._others
        calendar = self._planting.calendar
        cursors = [one.standing.cursor for one in others if one.charter.calendar == calendar]
        is_current = (
            own is not None and not own.standing.successor and own.charter.calendar == calendar
        )
        # The chain of names leads to one that was forgotten since.
        heirs = others if self._heir is None else [self._heir]
        is_forgotten = any(heir.standing.successor for heir in heirs)
        if is_forgotten or not (cursors or is_current):
            # Beside now, because the clock may have been set back.
            cursors += [self._now, *(schedule.standing.cursor for schedule in others)]
        return max([0 if own is None else own.standing.cursor, *cursors])

    def _freeze(self) -> Freeze | None:
        """Return the freeze that lasts longest. A name that was renamed has lost its own."""
        standings = [one.standing for one in self._all if not one.standing.successor]
        freezes = [standing.freeze for standing in standings if standing.freeze is not None]
        return max(freezes, key=_end_of, default=None)

    def _planted(self, standing: Standing | None, *, rules: bool = True) -> Planted:
        standing = standing or Standing(cursor=0)
        return Planted(
            ruler=self._planting.digest if rules else "",
            revision=standing.revision if rules else 0,
            cursor=standing.cursor,
            last_run=max([schedule.last_run for schedule in self._all], default=0),
            now=self._now,
        )


def _end_of(freeze: Freeze) -> int:
    return _NEVER if freeze.until is None else freeze.until
