"""Describes what a commit of schedules did, as entries of a history.

The checkers judge `core.schedules` by these entries, so nothing here asks `core` what it meant. The
entries come from the stored documents, read as plain JSON, and from the difference between the
store before and after the commit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw

from tenure.core.calendar.rules import Every
from tenure.core.schedules.definition import Definition
from tenure.core.schedules.records import Commit, Committed, TickLine
from tenure.stores.memory.schedule_table import Schedule

__all__ = ["EVERYTHING", "FOR_EVER", "StoredSchedule", "StoredSchedules", "entries_of", "names_in"]

EVERYTHING: Final = "*"
FOR_EVER: Final = 2**62
"""The end of a pause that has no end."""
_Facts: TypeAlias = tuple[str, dict[str, Any]]
"""The kind of an entry, and its other fields."""


class StoredSchedule(NamedTuple):
    """A schedule in the store, at one instant.

    The time of the last declaration is left out: even a refused commit may correct that.
    """

    version: str
    definition: str
    text: str
    ruler: str
    last_run: int
    last_job: str
    last_fence: int
    lines: int
    newest: TickLine | None

    @classmethod
    def of(cls, schedule: Schedule) -> StoredSchedule:
        return cls(
            schedule.version,
            schedule.definition,
            schedule.standing,
            schedule.ruler,
            schedule.last_run,
            schedule.last_job,
            schedule.last_fence,
            len(schedule.history),
            schedule.history[-1] if schedule.history else None,
        )

    @property
    def standing(self) -> dict[str, Any]:
        return _decoded(self.text)


StoredSchedules: TypeAlias = Mapping[str, StoredSchedule]
"""Schedules by name, without those that the store does not have."""


def entries_of(
    commit: Commit,
    answer: Committed,
    before: StoredSchedules,
    after: StoredSchedules,
    *,
    is_repeat: bool,
) -> Iterator[_Facts]:
    """Yield the entries of a commit: for each, its kind and its other fields."""
    is_done = answer.outcome in ("done", "instead") and not is_repeat
    if not is_done and before != after:
        yield "changed by a refusal", {"key": commit.name, "outcome": answer.outcome}
    is_move = commit.run is not None or bool(commit.lines)
    if is_move:
        yield "moved", _move(commit, answer, before, is_repeat=is_repeat)
    elif not is_done:
        silent = [head.name for head in commit.expects if head.silent_for is not None]
        yield "refused commit", {"key": commit.name, "outcome": answer.outcome, "ids": silent}
    if is_done:
        yield from _written(commit, before, after, is_move=is_move)


def _written(
    commit: Commit, before: StoredSchedules, after: StoredSchedules, *, is_move: bool
) -> Iterator[_Facts]:
    name = commit.name
    for write in commit.writes:
        if write.standing is None:
            yield "forgotten", {"key": write.name}
    if name not in after:
        return
    if name != EVERYTHING and _is_registration(commit, before, after):
        yield "registered", _registration(commit, before, after)
        return
    was, now = _standing(before, name), after[name].standing
    if was.get("freeze") != now.get("freeze"):
        yield _freezing(name, was.get("freeze"), now.get("freeze"))
    if not is_move and was.get("cursor", 0) != now["cursor"]:
        # A cursor that moves without a line in the history was reset by an operator.
        yield "reset", {"key": name, "seen": was.get("cursor", 0), "tick": now["cursor"]}


def _is_registration(commit: Commit, before: StoredSchedules, after: StoredSchedules) -> bool:
    return any(_ruling(before, write.name) != _ruling(after, write.name) for write in commit.writes)


def _ruling(stores: StoredSchedules, name: str) -> tuple[str, str, str]:
    """Return the fields that decide which definition rules."""
    stored = stores.get(name)
    if stored is None:
        return "", "", ""
    return stored.definition, stored.ruler, stored.standing.get("successor", "")


def _registration(
    commit: Commit, before: StoredSchedules, after: StoredSchedules
) -> dict[str, Any]:
    stored = after[commit.name]
    standing, charter = stored.standing, _fields(stored.definition)
    definition = bytes(charter["definition"]).decode()
    return {
        "key": commit.name,
        "revision": standing.get("revision", 1),
        "tick": standing["cursor"],
        "seen": _end_of(standing.get("freeze")),
        "seconds": _period(definition),
        "ids": _taken_over(commit, before, after),
        "answer": msgspec.json.decode(charter["calendar"]),
        "detail": stored.ruler,
        "definition": definition,
    }


def _taken_over(commit: Commit, before: StoredSchedules, after: StoredSchedules) -> list[str]:
    return [
        write.name
        for write in commit.writes
        if _standing(after, write.name).get("successor") == commit.name
        and before.get(write.name) != after.get(write.name)
    ]


def _freezing(name: str, was: dict[str, Any] | None, now: dict[str, Any] | None) -> _Facts:
    """Return "frozen" if a new pause began; "thawed" if its end changed, or it is gone."""
    is_new = now is not None and (was is None or was["since"] != now["since"])
    return "frozen" if is_new else "thawed", {"key": name, "tick": _end_of(now)}


def _end_of(freeze: dict[str, Any] | None) -> int:
    """Return when a pause ends; 0 without a pause."""
    return 0 if freeze is None else freeze.get("until", FOR_EVER)


def _move(
    commit: Commit, answer: Committed, before: StoredSchedules, *, is_repeat: bool
) -> dict[str, Any]:
    lines = [*commit.lines]
    outcome: str = answer.outcome
    detail, wants = "", _wants(commit)
    match answer.outcome:
        case "done" if commit.run_line is not None:
            lines.append(commit.run_line)
        case "done" if wants:
            outcome, detail = "skipped", _body(lines[-1])[1]
        case "instead":
            line = commit.rooms[answer.room].instead
            assert line is not None
            lines.append(line)
            outcome, detail = "skipped", _body(line)[1]
        case "full":
            outcome = "held"
            detail = "per_replica" if commit.rooms[answer.room].on else "full"
        case "expired":
            outcome, detail = "held", "expired"
    is_born = answer.outcome == "done" and not is_repeat and answer.run is not None
    run = answer.run if is_born else None
    passed = lines[:-1] if wants and outcome in ("done", "skipped") else lines
    return {
        "key": commit.name,
        "replica": commit.start_on,
        "ids": [commit.id],
        "seen": _cursor_left(commit, before),
        "tick": commit.tick or max((line.last for line in lines), default=0),
        "number": sum(line.ticks for line in passed),
        "answer": wants,
        "outcome": outcome,
        "detail": detail,
        "ok": is_repeat,
        "job": "" if run is None else run.id,
        "fence": 0 if run is None else run.fence,
        "again": run is not None and _runs_again(run.options),
        "lines": [(*_body(line), line.first, line.last, line.ticks) for line in lines],
    }


def _wants(commit: Commit) -> str:
    """Return "run" for a tick, even a paused one; "trigger" for a run beside the ticks; or ""."""
    if commit.run_line is not None and _body(commit.run_line)[1] == "triggered":
        return "trigger"
    is_paused = bool(commit.lines) and _body(commit.lines[-1]) == ("skipped", "paused")
    return "run" if commit.run is not None or is_paused else ""


def _cursor_left(commit: Commit, before: StoredSchedules) -> int:
    """Return the cursor that a move started from; 0 if it does not move the cursor."""
    texts = [before[commit.name].text if commit.name in before else ""]
    texts += [write.standing or "" for write in commit.writes if write.name == commit.name]
    cursors = [_decoded(text).get("cursor", 0) for text in texts if text]
    is_moved = len(cursors) > 1 and cursors[0] != cursors[1]
    return cursors[0] if is_moved else 0


def _standing(stores: StoredSchedules, name: str) -> dict[str, Any]:
    return stores[name].standing if name in stores else {}


def names_in(commit: Commit) -> Collection[str]:
    """Return the names of all schedules that a commit reads or writes."""
    heads = (head.name for head in commit.expects)
    writes = (write.name for write in commit.writes)
    return dict.fromkeys([commit.name, *heads, *writes])


def _body(line: TickLine) -> tuple[str, str]:
    """Return the outcome of a line, and the reason for it."""
    outcome, reason, *_ = msgspec.json.decode(line.body)
    return outcome, reason


def _runs_again(options: str) -> bool:
    return bool(_decoded(options or "{}").get("rerun", True))


@lru_cache(1000)  # bounded, as each tick writes a new standing
def _decoded(text: str) -> dict[str, Any]:
    return msgspec.json.decode(text, type=dict[str, Any])


@cache
def _fields(text: str) -> dict[str, Raw]:
    return msgspec.json.decode(text, type=dict[str, Raw])


@cache
def _period(definition: str) -> float:
    """Return the seconds between two ticks of a definition; 0 if they vary."""
    read = msgspec.json.decode(definition, type=Definition)
    return read.rule.period_us / 1e6 if isinstance(read.rule, Every) and not read.rests else 0.0
