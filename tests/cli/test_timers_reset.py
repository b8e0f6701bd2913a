"""`tenure timers reset`, and how timers that are ahead of the store's clock look elsewhere."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from tenure.core.durations import micros
from tenure.core.ids import JobIds
from tenure.core.schedules.documents import write_document
from tenure.core.schedules.records import Commit, Expected, Write
from tenure.runtime.timers.stored_schedules import read_schedules
from tests.cli.clockwork import EVIL, STEERING, Clockwork, clockwork_at
from tests.cli.conftest import Place, Run
from tests.cli.examination import examined
from tests.cli.terminal import on_a_terminal, plain

YEAR = 365 * 86_400
MAY_RUN_AGAIN = "Workers notice within 20 s. Ticks that ran ahead of their time may run again.\n"


@pytest.fixture
def work(place: Place) -> Iterator[Clockwork]:
    with clockwork_at(place) as work:
        yield work


@pytest.fixture
def file_work(file_place: Place) -> Iterator[Clockwork]:
    with clockwork_at(file_place) as work:
        yield work


def put_ahead(work: Clockwork, name: str = "sweep", seconds: float = YEAR) -> None:
    """Leave a timer as a clock does that was ahead by so many seconds when it ticked last."""
    page = work.call(read_schedules(work.store, [name]))
    [schedule] = page.all
    standing = replace(schedule.standing, cursor=page.now + micros(seconds))
    commit = Commit(
        id=JobIds(work.store.clock).make(),
        name=name,
        expects=(Expected(name, schedule.record.version),),
        writes=(Write(name, write_document(standing), ruler=schedule.record.ruler),),
    )
    [answer] = work.call(work.store.schedules.commit([commit]))
    assert answer.outcome == "done"


def test_a_timer_ticks_from_now_on(cli: Run, place: Place, work: Clockwork):
    work.register("sweep")
    put_ahead(work)
    result = cli(*place.options, "timers", "reset", "sweep")
    assert result.code == 0
    since = re.fullmatch(
        r"Reset sweep: it ticks again from (.*) UTC, the store's time now\.\n", result.out
    )
    assert since is not None
    moment = datetime.strptime(since[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    assert abs(moment - datetime.now(UTC)) < timedelta(minutes=1)
    assert result.err.endswith(MAY_RUN_AGAIN)
    info = work.sync.timer_handle("sweep").info()
    assert info.ahead == 0.0
    assert info.next is not None
    assert info.next <= datetime.now(UTC) + timedelta(hours=1, minutes=1)
    # Once more does no harm.
    result = cli(*place.options, "timers", "reset", "sweep")
    assert (result.code, result.out) == (0, "sweep was not ahead of the store's clock.\n")
    assert MAY_RUN_AGAIN not in result.err


def test_several_at_once(cli: Run, place: Place, work: Clockwork):
    work.register("sweep", "weekly", "third")
    put_ahead(work)
    put_ahead(work, "third")
    document = cli(*place.options, "timers", "reset", "third", "weekly", "third", "--json").json
    assert document["timers"] == [
        {"name": "third", "was_ahead": True},
        {"name": "weekly", "was_ahead": False},
    ]
    assert document["now"].endswith("Z")
    assert (document["store"], document["namespace"]) == (place.url, place.namespace)
    assert work.sync.timer_handle("sweep").info().ahead > 0


def test_all_that_are_ahead(cli: Run, place: Place, work: Clockwork):
    work.register("sweep", "weekly", "third")
    put_ahead(work)
    put_ahead(work, "third")
    result = cli(*place.options, "timers", "reset", "--all")
    assert result.code == 0
    assert re.fullmatch(r"Reset sweep: .*\nReset third: .*\n", result.out)
    assert not any(info.ahead for info in work.sync.timers())
    result = cli(*place.options, "timers", "reset", "--all")
    assert (result.code, result.out) == (0, "No timer is ahead of the store's clock.\n")
    assert cli(*place.options, "timers", "reset", "--all", "--json").json["timers"] == []


@pytest.mark.parametrize("arguments", [[], ["sweep", "--all"]], ids=["none", "both"])
def test_which_ones_must_be_said(cli: Run, file_place: Place, arguments: list[str]):
    result = cli(*file_place.options, "timers", "reset", *arguments)
    assert (result.code, result.out) == (2, "")
    assert "Name timers: NAME..., or use --all for all that are ahead." in result.err


@pytest.mark.parametrize("name", ["nope", "*", EVIL])
def test_an_unknown_name_changes_nothing(
    cli: Run, file_place: Place, file_work: Clockwork, name: str
):
    file_work.register("sweep")
    put_ahead(file_work)
    result = cli(*file_place.options, "timers", "reset", "sweep", name)
    assert (result.code, result.out) == (2, "")
    assert "the store knows no timer or schedule" in result.err
    assert not STEERING & set(result.err)
    assert file_work.sync.timer_handle("sweep").info().ahead > 0
    result = cli(*file_place.options, "timers", "reset", name, "--json")
    assert (result.code, result.json["kind"]) == (2, "TimerNotFound")


def test_a_former_name_is_not_reset(cli: Run, file_place: Place, file_work: Clockwork):
    file_work.register("old name")
    put_ahead(file_work, "old name")
    file_work.register("sweep", renamed_from=("old name",))
    result = cli(*file_place.options, "timers", "reset", "old name")
    assert result.code == 2
    assert "Error: 'old name' is called 'sweep' now; reset that.\n" in result.err
    assert cli(*file_place.options, "timers", "reset", "sweep").code == 0


def test_lists_and_next_tell_that_it_is_silent(cli: Run, place: Place, work: Clockwork):
    work.register()
    assert "silent" not in cli(*place.options, "timers", "ls").out
    put_ahead(work)
    work.sync.timer_handle("sweep").pause(reason="migration")
    result = cli(*place.options, "timers", "ls").out
    assert re.search(r"^sweep +every 1 h +silent for (365 d|364 d 23 h) ", result, re.MULTILINE)
    assert re.search(r"^weekly .* in \d", result, re.MULTILINE)
    assert result.endswith(
        "Check it, then run 'tenure timers reset --all' to let them tick again.\n"
    )
    result = cli(*place.options, "timers", "next", "sweep").out
    assert re.search(
        r"It is silent for (365 d|364 d 23 h), because its last tick is ahead of the store's ",
        result,
    )
    assert "\nCheck that clock, then let it tick: tenure timers reset sweep\n" in result
    sweep, weekly = cli(*place.options, "timers", "ls", "--json").json["timers"]
    assert sweep["ahead"] == pytest.approx(YEAR, abs=60)
    assert weekly["ahead"] == 0.0


@pytest.mark.parametrize("columns", [60, 80])
def test_a_narrow_terminal_shows_that_too(file_place: Place, file_work: Clockwork, columns: int):
    file_work.register()
    put_ahead(file_work)
    seen = on_a_terminal(*file_place.options, "timers", "ls", COLUMNS=str(columns))
    [sweep] = [line for line in plain(seen).splitlines() if line.startswith("sweep")]
    assert re.search(r"silent for (365 d|364 d 23 h)", sweep)
    assert len(sweep.rstrip()) <= columns


def test_the_doctor_warns(cli: Run, place: Place, work: Clockwork):
    work.register("sweep", "weekly")
    code, findings = examined(cli, *place.options)
    assert "timers ahead" not in findings
    put_ahead(work)
    code, findings = examined(cli, *place.options)
    finding = findings["timers ahead"]
    assert (code, finding.level) == (0, "warning")
    assert re.fullmatch(
        r"silent, because their last tick is ahead of the store's clock: "
        r"sweep for (365 d|364 d 23 h)",
        finding.detail,
    )
    assert "'tenure timers reset NAME', or with --all" in finding.advice
    assert cli(*place.options, "doctor", "--strict").code == 1
    cli(*place.options, "timers", "reset", "--all")
    _, findings = examined(cli, *place.options)
    assert "timers ahead" not in findings


def test_the_blocking_facade_resets(work: Clockwork):
    work.register("sweep")
    timer = work.sync.timer_handle("sweep")
    assert not timer.reset()
    put_ahead(work)
    assert timer.info().ahead == pytest.approx(YEAR, abs=60)
    assert timer.reset()
    assert timer.info().ahead == 0.0
