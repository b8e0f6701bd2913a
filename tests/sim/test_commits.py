"""The entries that a simulation writes about commits, from documents written by hand."""

from typing import Any

import msgspec
import pytest

from tenure.core.calendar.rules import Every
from tenure.core.jobs.records import NewJob
from tenure.core.schedules.definition import Definition, RunOptions
from tenure.core.schedules.records import Commit, Expected, Room, TickLine, Write
from tests.sim.clock import EPOCH, StoreClock
from tests.sim.commit_entries import FOR_EVER
from tests.sim.entry_builders import SECOND
from tests.sim.history import Entry, History
from tests.sim.server import Server

DEFINITION = Definition(
    kind="timer", rule=Every(2 * SECOND), run=RunOptions(task="@t", queue="q")
).encode()
CHARTER = f'{{"definition":{DEFINITION.decode()},"digests":["d"],"calendar":"c","registered":1}}'


class Recorder:
    """A store, and what it writes down."""

    def __init__(self) -> None:
        self.history = History()
        self.server = Server(StoreClock(lambda: 0.0), self.history)
        self.server.recorder.caller = "p"
        self._numbers = 0

    async def commit(self, *, expects: str | None = None, name: str = "t", **facts: Any) -> Entry:
        """Commit something about a schedule as it stands; return what was written down of it."""
        self._numbers += 1
        version = self.version_of(name) if expects is None else expects
        expected = Expected(name, version, facts.pop("silent_for", None))
        fields = {"id": f"c{self._numbers}", "expects": (expected,), **facts}
        before = len(self.history.entries)
        await self.server.schedules.commit([Commit(name=name, **fields)])
        written = [entry for entry in self.history.entries[before:] if entry.what != "claimed"]
        [entry] = written
        return entry

    def version_of(self, name: str) -> str:
        schedules = self.server.data.schedules
        return schedules[name].version if name in schedules else ""

    async def register(self, name: str = "t", **facts: Any) -> Entry:
        write = Write(name, standing(10), ruler="d", definition=CHARTER)
        return await self.commit(name=name, **{"writes": (write,), **facts})


def standing(cursor: int, **fields: Any) -> str:
    return msgspec.json.encode({"cursor": cursor, **fields}).decode()


def line(outcome: str, tick: int, reason: str = "", ticks: int = 1) -> TickLine:
    body = msgspec.json.encode([outcome, reason]).decode()
    return TickLine(first=tick - ticks + 1, last=tick, ticks=ticks, body=body)


def run(number: int, **facts: Any) -> NewJob:
    return NewJob(id=f"c{number}", task="@t", queue="q", payload=b"", schedule="t", **facts)


def moves(cursor: int) -> tuple[Write, ...]:
    return (Write("t", standing(cursor), ruler="d"),)


@pytest.fixture
async def recorder() -> Recorder:
    recorder = Recorder()
    await recorder.server.open()
    return recorder


async def test_a_definition_that_rules(recorder: Recorder):
    entry = await recorder.register()
    assert (entry.what, entry.key, entry.holder) == ("registered", "t", "p")
    assert (entry.tick, entry.seen, entry.revision, entry.ids) == (10, 0, 1, [])
    assert (entry.detail, entry.answer, entry.seconds) == ("d", "c", 2.0)
    assert entry.definition == DEFINITION.decode()


async def test_a_rename(recorder: Recorder):
    await recorder.register("old")
    new = Write("t", standing(10, freeze={"since": 1}), ruler="d", definition=CHARTER)
    rested = Write("old", standing(10, successor="t"))
    entry = await recorder.register(expects="", writes=(new, rested), declares=True)
    assert (entry.what, entry.key, entry.ids, entry.seen) == ("registered", "t", ["old"], FOR_EVER)


async def test_a_tick_that_runs(recorder: Recorder):
    await recorder.register()
    await recorder.server.jobs.beat(["r"], ttl=10, meta={})
    facts: dict[str, Any] = {"run": run(2, options='{"rerun":false}'), "run_line": line("ran", 15)}
    lines = (line("missed", 14, "late", ticks=2),)
    entry = await recorder.commit(writes=moves(15), tick=15, start_on="r", lines=lines, **facts)
    assert (entry.what, entry.answer, entry.outcome) == ("moved", "run", "done")
    assert (entry.seen, entry.tick, entry.number) == (10, 15, 2)
    assert (entry.job, entry.replica, entry.again) == ("c2", "r", False)
    assert entry.fence > 0
    assert entry.lines == [("missed", "late", 13, 14, 2), ("ran", "", 15, 15, 1)]
    assert recorder.history.entries[-1].what == "claimed"


async def test_a_repeat(recorder: Recorder):
    await recorder.register()
    facts: dict[str, Any] = {"id": "c2", "run": run(2), "run_line": line("ran", 15), "tick": 15}
    await recorder.commit(writes=moves(15), **facts)
    entry = await recorder.commit(writes=moves(15), expects="another", **facts)
    assert (entry.what, entry.outcome, entry.ok, entry.job) == ("moved", "done", True, "")


async def test_a_trigger(recorder: Recorder):
    await recorder.register()
    facts: dict[str, Any] = {"run": run(2), "run_line": line("ran", 15, "triggered"), "tick": 15}
    entry = await recorder.commit(writes=moves(10), **facts)
    assert (entry.what, entry.answer, entry.outcome) == ("moved", "trigger", "done")
    assert (entry.seen, entry.tick, entry.job, entry.again) == (0, 15, "c2", True)


async def test_a_tick_that_is_paused(recorder: Recorder):
    await recorder.register()
    lines = (line("missed", 14, "late"), line("skipped", 15, "paused"))
    entry = await recorder.commit(writes=moves(15), lines=lines)
    assert (entry.what, entry.answer, entry.outcome) == ("moved", "run", "skipped")
    assert (entry.detail, entry.seen, entry.tick, entry.number) == ("paused", 10, 15, 1)


async def test_ticks_that_are_only_passed(recorder: Recorder):
    await recorder.register()
    entry = await recorder.commit(writes=moves(15), lines=(line("missed", 15, "late", ticks=3),))
    assert (entry.what, entry.answer, entry.outcome) == ("moved", "", "done")
    assert (entry.tick, entry.number) == (15, 3)


@pytest.mark.parametrize(
    ("room", "outcome", "detail"),
    [
        (Room(0, "", line("skipped", 15, "limit")), "skipped", "limit"),
        (Room(0), "held", "full"),
        (Room(0, "r"), "held", "per_replica"),
    ],
)
async def test_a_tick_without_room(recorder: Recorder, room: Room, outcome: str, detail: str):
    await recorder.register()
    facts: dict[str, Any] = {"run": run(2), "run_line": line("ran", 15), "tick": 15}
    entry = await recorder.commit(writes=moves(15), rooms=(room,), **facts)
    assert (entry.what, entry.answer, entry.outcome) == ("moved", "run", outcome)
    assert (entry.detail, entry.tick, entry.job) == (detail, 15, "")


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [({"expects": "another"}, "stale"), ({"not_before": EPOCH + 1}, "early")],
)
async def test_a_refusal(recorder: Recorder, facts: dict[str, Any], outcome: str):
    await recorder.register()
    moved = {"run": run(2), "run_line": line("ran", 15), "tick": 15}
    entry = await recorder.commit(writes=moves(15), **moved, **facts)
    assert (entry.what, entry.outcome, entry.job) == ("moved", outcome, "")
    entry = await recorder.commit(writes=moves(15), **facts)
    assert (entry.what, entry.outcome) == ("refused commit", outcome)


async def test_silence_that_was_looked_at(recorder: Recorder):
    await recorder.register()
    entry = await recorder.register(silent_for=60.0)
    assert (entry.what, entry.outcome, entry.ids) == ("refused commit", "stale", ["t"])


@pytest.mark.parametrize(
    ("was", "now", "what", "until"),
    [
        (None, {"since": 1}, "frozen", FOR_EVER),
        (None, {"since": 1, "until": 20}, "frozen", 20),
        ({"since": 1}, {"since": 2, "until": 20}, "frozen", 20),
        ({"since": 1}, {"since": 1, "until": 20}, "thawed", 20),
        ({"since": 1}, None, "thawed", 0),
    ],
)
@pytest.mark.parametrize("name", ["t", "*"])
async def test_a_pause(recorder: Recorder, name: str, was: Any, now: Any, what: str, until: int):
    definition = CHARTER if name == "t" else ""
    first = Write(name, standing(10, freeze=was), ruler="", definition=definition)
    await recorder.server.schedules.commit([Commit(id="c0", name=name, writes=(first,))])
    write = Write(name, standing(10, freeze=now), ruler="")
    entry = await recorder.commit(name=name, writes=(write,))
    assert (entry.what, entry.key, entry.tick) == (what, name, until)


async def test_a_cursor_that_goes_back(recorder: Recorder):
    await recorder.register()
    entry = await recorder.commit(writes=moves(5))
    assert (entry.what, entry.seen, entry.tick) == ("reset", 10, 5)


async def test_a_schedule_that_is_forgotten(recorder: Recorder):
    await recorder.register()
    entry = await recorder.commit(writes=(Write("t", None),))
    assert (entry.what, entry.key) == ("forgotten", "t")


async def test_a_refusal_that_changes_something(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
):
    await recorder.register()

    def overwrite(commit: Commit, now: int) -> None:
        del commit, now
        recorder.server.data.schedules["t"].standing = standing(12)

    monkeypatch.setattr(recorder.server.schedules, "_repeated", overwrite)
    before = len(recorder.history.entries)
    await recorder.server.schedules.commit(
        [Commit(id="x", name="t", expects=(Expected("t", "another"),))]
    )
    kinds = [entry.what for entry in recorder.history.entries[before:]]
    assert kinds == ["changed by a refusal", "refused commit"]
