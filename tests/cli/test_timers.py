"""`tenure timers`, on every store."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from tests.cli.clockwork import EVIL, STEERING, Clockwork, clockwork_at
from tests.cli.conftest import Place, Run
from tests.cli.terminal import on_a_terminal, plain
from tests.contract.schedule_calls import bound
from tests.rig.endings import bury

NAMED = (["next"], ["history"], ["pause"], ["resume"], ["trigger"])


@pytest.fixture
def work(place: Place) -> Iterator[Clockwork]:
    with clockwork_at(place) as work:
        yield work


@pytest.fixture
def file_work(file_place: Place) -> Iterator[Clockwork]:
    with clockwork_at(file_place) as work:
        yield work


def test_what_is_not_there_yet(cli: Run, place: Place, work: Clockwork):
    result = cli(*place.options, "timers", "ls")
    assert (result.code, result.out) == (
        0,
        "There are no timers. A worker registers the timers that its app declares.\n",
    )
    document = cli(*place.options, "timers", "ls", "--json").json
    about = {"store": place.url, "namespace": place.namespace}
    assert document == {**about, "frozen": None, "timers": []}
    work.register("sweep")
    assert cli(*place.options, "timers", "history", "sweep").out == "sweep has not ticked yet.\n"
    assert cli(*place.options, "timers", "history", "sweep", "--json").json["ticks"] == []


@pytest.mark.parametrize("command", NAMED, ids=lambda command: command[0])
@pytest.mark.parametrize("name", ["nope", "*", EVIL])
def test_unknown_names_are_explained(cli: Run, file_place: Place, command: list[str], name: str):
    result = cli(*file_place.options, "timers", *command, name)
    assert (result.code, result.out) == (2, "")
    assert "the store knows no timer or schedule" in result.err
    assert "'tenure timers ls' lists the timers in the store" in result.err
    assert not STEERING & set(result.err)
    result = cli(*file_place.options, "timers", *command, name, "--json")
    assert (result.code, result.json["kind"]) == (2, "TimerNotFound")


def test_ls_tells_how_each_one_stands(cli: Run, place: Place, work: Clockwork):
    work.register()
    work.tick()
    work.skip()
    result = cli(*place.options, "timers", "ls")
    assert result.code == 0
    header, sweep, weekly = result.out.splitlines()
    assert header.split() == ["NAME", "RULE", "NEXT", "LAST", "RUNNING", "DECLARED"]
    last = r"skipped [\d.]+ m?s ago, overlap +1 +[\d.]+ m?s ago"
    assert re.fullmatch(rf"sweep +every 1 h +in (\d+ min( \d+ s)?|[\d.]+ m?s|1 h) +{last}", sweep)
    assert re.fullmatch(
        r"weekly +At 06:00 on Monday, Europe/Berlin +in [\dhdms ]+ +0 +[\d.]+ m?s ago", weekly
    )
    first, second = cli(*place.options, "timers", "ls", "--json").json["timers"]
    assert (first["kind"], second["kind"], second["task"]) == ("timer", "schedule", "report")
    assert (first["latest"]["outcome"], first["latest"]["reason"]) == ("skipped", "overlap")
    assert (first["running"], first["pause"], first["is_declared"]) == (1, None, True)
    assert (first["declared"][-1], first["renamed_to"]) == ("Z", "")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:00:00\.000000Z", first["next"])


def test_who_is_not_declared_any_more_is_told(cli: Run, place: Place, work: Clockwork):
    work.register("old name")
    work.register("sweep", renamed_from=("old name",))
    listed = cli(*place.options, "timers", "ls").out
    assert re.search(r"^old name +every 1 h +now sweep +0 +\d", listed, re.MULTILINE)
    result = cli(*place.options, "timers", "next", "old name").out
    assert result.endswith("It was renamed to 'sweep'.\nSee: tenure why --timer sweep\n")
    [old] = [
        timer
        for timer in cli(*place.options, "timers", "ls", "--json").json["timers"]
        if timer["name"] == "old name"
    ]
    assert old["next"] is None
    result = cli(*place.options, "timers", "trigger", "old name")
    assert result.code == 2
    assert "Error: 'old name' is called 'sweep' now; trigger that.\n" in result.err


def test_a_trigger_that_nobody_takes_is_told(cli: Run, file_place: Place, file_work: Clockwork):
    file_work.register("sweep")
    with closing(sqlite3.connect(file_place.url.removeprefix("sqlite:///"))) as db:
        db.execute("UPDATE tenure_schedule SET declared = 1")
        db.commit()
    assert re.search(
        r"no worker runs it +0 +\d+ d( \d+ h)? ago", cli(*file_place.options, "timers", "ls").out
    )
    result = cli(*file_place.options, "timers", "next", "sweep").out
    assert re.search(r"\nNo worker is alive, .*: no process has declared it for \d+ d", result)
    result = cli(*file_place.options, "timers", "trigger", "sweep")
    assert result.code == 0
    assert "It waits: no process has declared this timer for a minute.\n" in result.err


def test_next_shows_when_it_ticks(cli: Run, place: Place, work: Clockwork):
    work.register("sweep")
    work.settle(work.tick(), "succeeded")
    result = cli(*place.options, "timers", "next", "sweep", "--number", "3")
    title, why, _, header, *rows = result.out.splitlines()
    assert re.fullmatch(r"Its next tick is at .*:00:00 UTC, in [\dhmins. ]+\.", why)
    assert (title, header.split()) == ("sweep  every 1 h", ["UTC", "IN"])
    assert len(rows) == 3
    assert all(re.fullmatch(r"[A-Z]\w\w \d{4}-\d\d-\d\d \d\d:00:00 +[\dhmins. ]+", r) for r in rows)
    document = cli(*place.options, "timers", "next", "sweep", "--json").json
    ticks = [datetime.fromisoformat(tick) for tick in document["next"]]
    assert [later - tick for tick, later in pairwise(ticks)] == [timedelta(hours=1)] * 4
    assert (document["rule"], document["pause"], document["frozen"]) == ("every 1 h", None, None)
    assert document["why"]["code"] == "scheduled"


@pytest.mark.parametrize(
    ("command", "number"), [("next", "0"), ("next", "1001"), ("history", "101"), ("history", "x")]
)
def test_numbers_have_bounds(cli: Run, file_place: Place, command: str, number: str):
    result = cli(*file_place.options, "timers", command, "sweep", "--number", number)
    assert result.code == 2
    assert "'--number'" in result.err


def test_history_says_that_missed_ticks_are_counted_up_to_a_bound(
    cli: Run, place: Place, work: Clockwork
):
    work.register("sweep")
    work.miss(1000)
    result = cli(*place.options, "timers", "history", "sweep")
    assert "1,000x or more late since" in result.out


def test_history_tells_what_became_of_each_tick(cli: Run, place: Place, work: Clockwork):
    work.register("sweep")
    good, bad, lost = work.tick(), work.tick(), work.tick()
    work.settle(good, "succeeded")
    work.settle(bad, "failed", "no address")
    work.call(bury(work.store, "web-1", [lost.id], delays=(0.0,)))
    running = work.tick()
    work.skip()
    work.skip()
    work.miss(7)
    result = cli(*place.options, "timers", "history", "sweep")
    assert result.code == 0
    header, *rows = result.out.splitlines()
    assert header.split() == ["TICK", "(UTC)", "OUTCOME", "TOOK", "JOB", "REPLICA", "DETAILS"]
    words = [row.split(maxsplit=2)[2] for row in rows]
    since = r"since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    assert re.fullmatch(rf"missed +7x late {since}", words[0])
    assert re.fullmatch(rf"skipped +2x overlap {since}", words[1])
    assert re.fullmatch(rf"running +{running.id} +web-1", words[2])
    assert re.fullmatch(rf"failed +\d+ ms +{lost.id} +web-1 +lost", words[3])
    assert re.fullmatch(rf"failed +\d+ ms +{bad.id} +web-1 +ValueError: no address", words[4])
    assert re.fullmatch(rf"succeeded +\d+ ms +{good.id} +web-1", words[5])
    ticks = cli(*place.options, "timers", "history", "sweep", "--json").json["ticks"]
    assert [tick["outcome"] for tick in ticks] == [
        *("missed", "skipped", "running", "failed", "failed", "succeeded")
    ]
    assert [tick["ticks"] for tick in ticks] == [7, 2, 1, 1, 1, 1]
    assert (ticks[3]["reason"], ticks[4]["error"]) == ("lost", "ValueError: no address")
    assert ticks[5]["finished"].endswith("Z")
    newest = cli(*place.options, "timers", "history", "sweep", "--number", "1", "--json").json
    assert newest["ticks"] == ticks[:1]


def test_pause_and_resume(cli: Run, place: Place, work: Clockwork):
    work.register("sweep")
    work.settle(work.tick(), "succeeded")
    result = cli(*place.options, "timers", "pause", "sweep", "--reason", "migration")
    assert (result.code, result.out) == (0, "Paused sweep until it is resumed: migration.\n")
    assert re.search(r"every 1 h +paused: migration", cli(*place.options, "timers", "ls").out)
    result = cli(*place.options, "timers", "next", "sweep", "--number", "1")
    assert "\nIt is paused until it is resumed (migration), so it skips its ticks.\n" in result.out
    assert "\nResume it: tenure timers resume sweep\n" in result.out
    assert result.out.endswith("skipped\n")
    cli(*place.options, "timers", "pause", "sweep", "--reason", "It is late.")
    result = cli(*place.options, "timers", "next", "sweep")
    assert "\nIt is paused until it is resumed (It is late), so it skips" in result.out
    cli(*place.options, "timers", "pause", "sweep", "--reason", "migration")
    document = cli(*place.options, "timers", "next", "sweep", "--json").json
    assert (document["pause"]["reason"], document["pause"]["until"]) == ("migration", None)
    resume = (*place.options, "timers", "resume", "sweep")
    assert cli(*resume).out == "Resumed sweep.\n"
    assert cli(*resume).out == "sweep was not paused.\n"
    assert cli(*resume, "--json").json["was_paused"] is False
    assert work.sync.timer_handle("sweep").info().pause is None


def test_a_pause_may_have_an_end(cli: Run, place: Place, work: Clockwork):
    work.register("sweep")
    work.settle(work.tick(), "succeeded")
    result = cli(*place.options, "timers", "pause", "sweep", "--until", "2h")
    moment = r"until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, for (2 h|1 h 59 min)"
    assert re.fullmatch(rf"Paused sweep {moment}\.\n", result.out)
    assert re.search(r" paused (2 h|1 h 59 min) ", cli(*place.options, "timers", "ls").out)
    result = cli(*place.options, "timers", "next", "sweep", "--number", "3").out
    end = moment.replace("for ", "for another ")
    assert re.search(rf"It is paused {end}, so it skips its ticks, and its next tick that ", result)
    # Of three, one or two come before its end, as the hour has it.
    assert "skipped" in result.splitlines()[-3]
    assert not result.endswith("skipped\n")


def test_everything_can_be_frozen(cli: Run, place: Place, work: Clockwork):
    freeze = (*place.options, "timers", "freeze")
    result = cli(*freeze, "--reason", "release")
    answer = "All timers are frozen until 'tenure timers unfreeze': release.\n"
    assert (result.code, result.out) == (0, answer)
    work.register("sweep")
    assert cli(*place.options, "timers", "ls").out.startswith(answer)
    result = cli(*place.options, "timers", "next", "sweep", "--number", "1").out
    assert "and all timers are frozen until they are unfrozen (release)." in result
    assert result.endswith("skipped\n")
    document = cli(*place.options, "timers", "ls", "--json").json
    assert (document["frozen"]["reason"], document["frozen"]["until"]) == ("release", None)
    assert cli(*freeze, "--end").out == "All timers tick again.\n"
    assert cli(*place.options, "timers", "unfreeze").out == "The timers were not frozen.\n"
    assert cli(*freeze, "--end", "--json").json["was_frozen"] is False
    assert "for 30 min." in cli(*freeze, "--until", "30m").out
    assert cli(*freeze, "--until", "30m", "--json").json["frozen"]["until"].endswith("Z")


def test_what_has_another_name_here_is_told(cli: Run, file_place: Place):
    for word, instead in (("show", "next"), ("list", "ls"), ("run", "trigger"), ("stop", "pause")):
        result = cli(*file_place.options, "timers", word, "sweep")
        assert (result.code, result.out) == (2, "")
        assert f"There is no command 'tenure timers {word}'. " in result.err
        assert f"'tenure timers {instead}" in result.err


def test_an_end_has_no_reason(cli: Run, file_place: Place):
    result = cli(*file_place.options, "timers", "freeze", "--end", "--reason", "x")
    assert result.code == 2
    assert "use it without --until, --for and --reason" in result.err


def test_trigger_runs_it_once_even_while_paused(cli: Run, place: Place, work: Clockwork):
    work.register()
    work.sync.timer_handle("sweep").pause()
    document = cli(*place.options, "timers", "trigger", "sweep", "--json").json
    job = work.sync.job(document["job"])
    assert (job.task, job.queue, job.state) == ("@sweep", "@timers", "waiting")
    assert document["is_declared"]
    result = cli(*place.options, "timers", "trigger", "sweep")
    assert result.code == 2
    busy = f"it has as many unfinished runs as it may (overlap): job {job.id}, waiting."
    assert f"{busy} A run that waits" in result.err
    assert "start one, or cancel the run.\n" in result.err
    result = cli(*place.options, "timers", "trigger", "weekly")
    [waiting] = work.sync.jobs(task="report")
    assert result.out == f"Triggered weekly: job {waiting.id}\n"
    assert f"Follow it with 'tenure jobs show {waiting.id[-12:]}'.\n" in result.err
    assert "It waits" not in result.err


def test_what_cannot_be_read_ends_no_command(cli: Run, place: Place, work: Clockwork):
    work.register("sweep")
    work.register("future", definition=b'{"kind":"moon"}', digest="x")
    lines = cli(*place.options, "timers", "ls").out.splitlines()
    assert re.fullmatch(r"future +unreadable +unreadable +0 +[\d.]+ m?s ago", lines[1])
    assert lines[-1] == "Timers with an unreadable rule were declared by a newer version of Tenure."
    first, _ = cli(*place.options, "timers", "ls", "--json").json["timers"]
    assert (first["kind"], first["rule"], first["next"]) == ("unknown", "", None)
    for command in ("next", "trigger"):
        result = cli(*place.options, "timers", command, "future")
        assert (result.code, result.out) == (2, "")
        assert result.err.splitlines()[-1].startswith("Error: Cannot read how 'future' was")
    for command in ("history", "pause", "resume"):
        assert cli(*place.options, "timers", command, "future").code == 0


def test_texts_cannot_steer_the_terminal(cli: Run, place: Place, work: Clockwork):
    work.register(EVIL)
    run = work.tick(EVIL)
    work.tick(EVIL, limit=bound(1, EVIL))
    work.settle(run, "failed", EVIL)
    for command in (
        *(["ls"], ["history", EVIL], ["pause", EVIL, "--reason", EVIL], ["next", EVIL]),
        *(["freeze", "--reason", EVIL], ["ls"], ["trigger", EVIL], ["resume", EVIL]),
    ):
        for form in ((), ("--json",)):
            result = cli(*place.options, "timers", *command, *form)
            assert result.code == (2 if command[0] == "trigger" and form else 0)
            assert not STEERING & set(result.out + result.err)


def test_a_reason_may_be_any_text(cli: Run, place: Place, work: Clockwork):
    work.register("sweep")
    assert (
        cli(*place.options, "timers", "pause", "sweep", "--reason", "\udcff" + "x" * 2000).code == 0
    )
    assert cli(*place.options, "timers", "freeze", "--reason", "\udcff").code == 0
    assert len(work.sync.timer_handle("sweep").info().pause.reason) == 1000
    work.sync.pause_timers(reason="a\0b")
    assert work.sync.timers_paused().reason == "a\N{REPLACEMENT CHARACTER}b"


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("90", 85, 90),
        ("1h30m", 5390, 5400),
        ("0:00", 0, 86400),
        ("9:30:15", 0, 86400),
        ("2096-12-01", 2e9, 4e9),
        ("2096-12-01T06:00", 2e9, 4e9),
        ("2096-12-01T06:00+01:00", 2e9, 4e9),
        ("2096-12-01T06:00:00Z", 2e9, 4e9),
    ],
)
def test_until_has_many_forms(
    cli: Run, file_place: Place, file_work: Clockwork, text: str, least: float, most: float
):
    frozen = cli(*file_place.options, "timers", "freeze", "--until", text, "--json").json["frozen"]
    end = datetime.fromisoformat(frozen["until"])
    assert least < (end - datetime.now(UTC)).total_seconds() <= most
    if "T" in text and text[16:]:
        assert end == datetime.fromisoformat(text)
    elif ":" in text:
        hour, minute = re.findall(r"(\d+):(\d+)", text)[0]
        assert (end.astimezone().hour, end.astimezone().minute) == (int(hour), int(minute))


@pytest.mark.parametrize(
    "text", ["soon", "25:00", "9:5", "", "inf", "2026-13-01", "-1", "0001-01-01"]
)
def test_a_senseless_end_is_refused(cli: Run, file_place: Place, text: str):
    result = cli(*file_place.options, "timers", "freeze", f"--until={text}")
    assert (result.code, result.out) == (2, "")
    assert re.search(
        "is neither a length of time such as 2h nor an instant|is not in the fut", result.err
    )


@pytest.mark.parametrize("text", ["0", "2020-01-01T00:00Z", "2020-01-01"])
def test_what_has_passed_is_no_end(cli: Run, file_place: Place, text: str):
    result = cli(*file_place.options, "timers", "freeze", f"--until={text}")
    assert result.code == 2
    assert f"'{text}' is not in the future." in result.err


def test_an_end_too_far_away_is_refused(cli: Run, file_place: Place):
    result = cli(*file_place.options, "timers", "freeze", "--until", "90000d")
    assert result.code == 2
    assert "until must be at most" in result.err


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (["90"], "every 90 s"),
        (["1h 30m"], "every 90 min"),
        (["0", "7", "1", "1", "*"], "At 07:00 on January 1, UTC"),
        (["@daily"], "At 00:00 every day, UTC"),
        (["0 6 * * 1", "--tz", "Europe/Berlin"], "At 06:00 on Monday, Europe/Berlin"),
    ],
)
def test_explain_says_what_a_rule_means(cli: Run, rule: list[str], words: str):
    result = cli("timers", "explain", *rule, "--number", "2")
    assert (result.code, result.err) == (0, "")
    words, _, header, *rows = result.out.splitlines()
    assert (words, len(rows)) == (words, 2)
    assert header.split() == ["UTC", *(["Europe/Berlin"] if "--tz" in rule else []), "IN"]
    assert "06:00:00" in rows[0] or "--tz" not in rule
    document = cli("timers", "explain", *rule, "--json").json
    text = " ".join(rule).partition(" --tz")[0]
    assert (document["rule"], document["words"], len(document["next"])) == (text, words, 5)


def test_a_rule_that_never_ticks(cli: Run):
    result = cli("timers", "explain", "0 0 30 2 *")
    assert result.code in (0, 2)
    assert "never" in result.out + result.err or "no day" in result.out + result.err


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (["soon"], "has 1 field."),
        (["sweep"], "If it is the name of a timer: 'tenure timers next sweep'."),
        (["hourly"], "Did you mean '@hourly'?"),
        (["every", "5", "minutes"], "For a period write every='5m'."),
        (["30", "2", "a.py", "b.py", "c.py"], "Put the rule in quotes: the shell replaces a bare"),
        (["61 * * * *"], "61 is not from 0 to 59"),
        (["0.5"], "at least 1 s"),
        (["@daily", "--tz", "Mars/Base"], "Mars/Base"),
        (["60s", "--tz", "Europe/Berlin"], "has no meaning for every="),
    ],
)
def test_a_wrong_rule_is_explained(cli: Run, rule: list[str], words: str):
    result = cli("timers", "explain", *rule)
    assert (result.code, result.out) == (2, "")
    assert words in result.err
    assert cli("timers", "explain", *rule, "--json").json["kind"] == "ConfigError"


@pytest.mark.parametrize("columns", [60, 80])
def test_a_narrow_terminal_shows_the_gist(file_place: Place, file_work: Clockwork, columns: int):
    file_work.register()
    run = file_work.tick()
    file_work.settle(run, "failed", "no address for user " + "7" * 100)
    file_work.sync.timer_handle("weekly").pause(reason="a migration of everything", until="2h")

    def lines(*command: str) -> list[str]:
        seen = on_a_terminal(*file_place.options, "timers", *command, COLUMNS=str(columns))
        lines = [line.rstrip() for line in plain(seen).splitlines()]
        return lines[[line[:4] in ("NAME", "TICK") for line in lines].index(True) :]

    header, sweep, weekly = lines("ls")
    assert ("RULE" in header) == (columns == 80)
    assert re.search(r" paused [12] h.*\.\. ", weekly)
    header, row = lines("history", "sweep")
    assert "REPLICA" not in header
    assert re.search(rf"failed +\d+ ms +{run.id[-8:]} +ValueError: .*\.\.$", row)
    assert max(map(len, (sweep, weekly, header, row))) <= columns


def test_jobs_tell_whose_run_they_are(cli: Run, place: Place, work: Clockwork):
    work.register()
    run = work.sync.timer_handle("sweep").trigger().id
    shown = cli(*place.options, "jobs", "show", run).out
    assert re.search(r"\nrun of +the timer sweep, tick \d{4}-.* UTC, [\d.]+ m?s ago\n", shown)
    assert "arguments" not in shown
    weekly = work.sync.timer_handle("weekly").trigger().id
    shown = cli(*place.options, "jobs", "show", weekly).out
    assert "the schedule weekly\narguments" in re.sub(" {2,}", " ", shown).replace("\n ", "\n")
    for options, timers in (
        ([], {"weekly"}),
        (["--timers"], {"sweep", "weekly"}),
        (["--task", "@sweep"], {"sweep"}),
    ):
        jobs = cli(*place.options, "jobs", "ls", *options, "--json").json["jobs"]
        assert {job["schedule"] for job in jobs} == timers


def test_a_run_is_triggered_and_not_requeued(cli: Run, place: Place, work: Clockwork):
    work.register("sweep")
    run = work.tick()
    work.settle(run, "failed", "x")
    result = cli(*place.options, "jobs", "requeue", run.id)
    answer = "A run of a timer or schedule; use 'tenure timers trigger': "
    assert (result.code, result.out) == (2, f"{answer}{run.id}\n")
    result = cli(*place.options, "jobs", "requeue", "--state", "failed", "--yes")
    answer = "Left 1 job as before: runs of timers and schedules; use 'tenure timers trigger'.\n"
    assert (result.code, result.out) == (0, answer)
