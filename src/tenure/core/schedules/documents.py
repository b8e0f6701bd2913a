"""Reads and writes the documents of a schedule. Stores keep them as opaque text.

The *charter* says how a schedule was declared, and changes with deploys. The *standing* holds its
cursor, and changes with every tick, so it is small. Both keep fields that this release does not
know, because a newer release may have written them. Reading never raises.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.structs import replace

from tenure.core.bounds import Fence, Instant
from tenure.core.durations import micros
from tenure.core.schedules.definition import Definition
from tenure.core.schedules.records import ScheduleHead, ScheduleRecord, TickLine

__all__ = [
    "ANSWERED_LATE",
    "DECLARED_FOR",
    "DIGESTS_MAX",
    "DOCUMENT_FORMAT",
    "EVERYTHING",
    "RAN_UNLOCKED",
    "UNLOCKED",
    "Charter",
    "Decision",
    "Freeze",
    "Schedule",
    "Standing",
    "decision_in",
    "is_frozen",
    "line_of",
    "read_definition",
    "read_schedule",
    "read_standing",
    "write_document",
]

EVERYTHING: Final = "*"
"""The name of the record that pauses all schedules at once."""
DECLARED_FOR: Final = 60.0
"""Seconds for which a definition rules after a replica has declared it."""
DIGESTS_MAX: Final = 10
"""How many definitions of a schedule are remembered, so that an older one is recognised."""
UNLOCKED: Final = "unlocked"
"""Why a tick ran without a job: the store did not answer."""
RAN_UNLOCKED: Final = "its tick ran without the store"
"""Why a run was cancelled: the store has made it, but its reply was lost."""
ANSWERED_LATE: Final = "the store answered too late for its tick"
"""Why a run was cancelled: the store has made it too late for its tick, which counts as missed."""
DOCUMENT_FORMAT: Final = 1
"""The newest format of standings that this release can rewrite safely."""


class Freeze(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pause of one schedule, or of all."""

    since: Instant
    until: Instant | None = None
    """Ticks before this instant are skipped; None: all of them."""
    reason: str = ""
    unknown: dict[str, Raw] = {}

    def covers(self, tick: int) -> bool:
        """Return whether a tick is skipped."""
        return self.until is None or tick < self.until


class Charter(Struct, frozen=True, kw_only=True):
    """How a schedule is declared, and the digests of its earlier definitions."""

    definition: Raw
    """JSON, as `Definition.encode` writes it."""
    digests: tuple[str, ...]
    """The definitions that have ruled, the present one last."""
    calendar: str
    """The same for definitions with the same ticks."""
    registered: Instant
    """When it was declared for the first time."""
    unknown: dict[str, Raw] = {}


class Standing(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The position of a schedule: its cursor, and whether it is paused or renamed."""

    cursor: Instant
    """The nominal instant of the last tick that was decided. Ticks up to it never run again,
    unless an operator resets the cursor."""
    revision: Fence = 1
    """Grows with each definition that takes over, and with each rename."""
    # A name with a NUL would make PostgreSQL fail the read of all names in the same call.
    successor: Annotated[str, Meta(pattern=r"^[^\x00]*$")] = ""
    """Its new name, if it was renamed."""
    ran: Instant = 0
    """The nominal instant of the last run without the store, until a newer tick has a run."""
    freeze: Freeze | None = None
    needs: int = DOCUMENT_FORMAT
    """A release that knows only older formats must not rewrite it."""
    unknown: dict[str, Raw] = {}

    @property
    def is_ours(self) -> bool:
        """Return whether this release may rewrite it."""
        return self.needs <= DOCUMENT_FORMAT


class Schedule(Struct, frozen=True, kw_only=True):
    """A schedule as the store has it, with its documents read."""

    record: ScheduleRecord
    standing: Standing
    charter: Charter

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def last_run(self) -> int:
        """The nominal instant of the last tick that ran, with a job or without the store."""
        return max(self.record.last_run, self.standing.ran)

    def is_declared(self, now: int) -> bool:
        """Return whether a replica has declared the ruling definition lately.

        A declaration in the store's future counts only if it is near: a living replica would soon
        replace it.
        """
        return abs(now - self.record.declared) < micros(DECLARED_FOR)


class Decision(Struct, frozen=True, kw_only=True):
    """The outcome of a tick, or of several in a row with the same outcome and without a run."""

    outcome: Literal["ran", "skipped", "missed"]
    reason: str = ""
    first: int
    """The nominal instant of the first of them."""
    last: int
    ticks: int = 1
    at: int = 0
    """When it was decided; the store fills it in."""
    job: str = ""
    """The run."""
    replica: str = ""
    """The replica on which the run started at once; empty if it had to wait for a worker."""


class _Form(Struct, frozen=True):
    """The field of a standing that every release can read."""

    needs: int = DOCUMENT_FORMAT


class _Body(Struct, frozen=True, array_like=True):
    """The body of a line of history."""

    outcome: Literal["ran", "skipped", "missed"]
    reason: str = ""
    job: str = ""
    replica: str = ""


Document = TypeVar("Document", Charter, Standing, Freeze)

# Stands for an unreadable charter: the next definition that is registered rules.
_NO_CHARTER: Final = Charter(definition=Raw(b"null"), digests=(), calendar="", registered=0)
_MALFORMED = (ValueError, RecursionError)


def line_of(decision: Decision) -> TickLine:
    """Return a decision as a line of history. Decisions without a run may join the newest line."""
    has_run = decision.outcome == "ran"
    values: tuple[str, ...] = (decision.outcome, decision.reason)
    if has_run:
        values += (decision.job, decision.replica)
    return TickLine(
        like="" if has_run else f"{decision.outcome} {decision.reason}",
        first=decision.first,
        last=decision.last,
        ticks=decision.ticks,
        body=msgspec.json.encode(values).decode(),
    )


def decision_in(line: TickLine) -> Decision | None:
    """Return the decision in a line of history; None if this release cannot read it."""
    try:
        body = msgspec.json.decode(line.body, type=_Body)
    except _MALFORMED:
        return None
    return Decision(
        outcome=body.outcome,
        reason=body.reason,
        first=line.first,
        last=line.last,
        ticks=line.ticks,
        at=line.at,
        job=body.job,
        replica=body.replica,
    )


def read_standing(text: str) -> Standing | None:
    """Return a standing; None if it cannot be read: the next registration begins anew.

    A standing in a newer format that this release cannot read is returned with `is_ours` False.
    """
    return _read(text, Standing) or _in_newer_form(text)


def _in_newer_form(text: str) -> Standing | None:
    try:
        needs = msgspec.json.decode(text, type=_Form).needs
    except _MALFORMED:
        return None
    return Standing(cursor=0, needs=needs) if needs > DOCUMENT_FORMAT else None


def read_schedule(record: ScheduleRecord) -> Schedule | None:
    """Return a schedule with its documents; None if its standing cannot be read."""
    standing = read_standing(record.standing)
    if standing is None:
        return None
    charter = _read(record.definition, Charter) or _NO_CHARTER
    return Schedule(record=record, standing=standing, charter=charter)


def read_definition(charter: Charter) -> Definition | None:
    """Return the definition in a charter; None if this release cannot read it."""
    try:
        return msgspec.json.decode(charter.definition, type=Definition)
    except _MALFORMED:
        return None


def write_document(document: Charter | Standing | Freeze) -> str:
    """Return a document as it is stored, fields that this release does not know included."""
    text = msgspec.json.encode(replace(document, unknown={}))
    fields: dict[str, Any] = msgspec.json.decode(text, type=dict[str, Raw])
    fields.pop("unknown", None)
    if isinstance(document, Standing) and document.freeze is not None:
        fields["freeze"] = Raw(write_document(document.freeze).encode())
    return msgspec.json.encode({**document.unknown, **fields}).decode()


def _read(text: str | Raw, kind: type[Document]) -> Document | None:
    try:
        document = msgspec.json.decode(text, type=kind)
        fields = msgspec.json.decode(text, type=dict[str, Raw])
    except _MALFORMED:
        return None
    unknown = {name: value for name, value in fields.items() if name not in kind.__struct_fields__}
    has_freeze = getattr(document, "freeze", None) is not None
    nested = {"freeze": _read(fields["freeze"], Freeze)} if has_freeze else {}
    return replace(document, unknown=unknown, **nested)


def is_frozen(tick: int, *heads: ScheduleHead | None) -> bool:
    """Return whether one of these schedules is frozen at a tick."""
    freezes = [_freeze_of(head) for head in heads if head is not None]
    return any(freeze is not None and freeze.covers(tick) for freeze in freezes)


def _freeze_of(head: ScheduleHead) -> Freeze | None:
    standing = read_standing(head.standing)
    return None if standing is None else standing.freeze
