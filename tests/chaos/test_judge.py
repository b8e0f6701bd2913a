"""The judges of the chaos: each of them must be able to find a violation."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from tenure import Job
from tenure.core.jobs.history import AttemptLine, AttemptOutcome, write_history
from tenure.core.jobs.records import JobRecord
from tests.chaos.__main__ import parsed, report
from tests.chaos.diary import Diary, read_diaries
from tests.chaos.failovers import Strike, lost_by_none
from tests.chaos.judge import (
    Books,
    judge_clock_steps,
    judge_effects,
    judge_locks,
    judge_order_of_ticks,
)
from tests.chaos.labour import result_of
from tests.chaos.sink import Sink
from tests.chaos.tally import Tally, sum_of, table, write_summary
from tests.process.job_ledger import Line
from tests.sim.history import Entry


def stay(by: str, fence: int, start: float, end: float | None, key: str = "a") -> list[Entry]:
    came = Entry(at=start, by=by, what="entered", key=key, fence=fence, limit=1, ttl=1.0)
    left = [Entry(at=end, by=by, what="leaves", key=key, fence=fence)] if end else []
    return [came, *left]


def world(at: float, what: str, by: str) -> Entry:
    return Entry(at=at, by="world", what=what, detail=by)


def judged(*entries: Entry, clock_was_set: bool = False) -> Tally:
    tally = Tally("test")
    history = sorted(entries, key=lambda entry: entry.at)
    judge_locks(history, tally, clock_was_set=clock_was_set)
    judge_effects(history, tally)
    return tally


def test_two_inside_at_once_are_found():
    assert not judged(*stay("x", 1, 0, 1), *stay("y", 2, 2, 3)).violations
    assert judged(*stay("x", 1, 0, 2.5), *stay("y", 2, 2, 3)).violations


def test_a_killed_holder_is_no_longer_inside():
    killed = [*stay("x", 1, 0, None), world(1, "crash", "x")]
    assert not judged(*killed, *stay("y", 2, 2, 3)).violations
    assert judged(*stay("x", 1, 0, None), *stay("y", 2, 2, 3)).violations


def test_a_lease_stolen_from_the_living_or_the_dead_is_found():
    came = stay("x", 1, 0, None)
    lasts = Entry(at=0, by="x", what="acts", key="a", fence=1, limit=1, seconds=0.9)
    for end in (
        Entry(at=1, by="x", what="notified of loss", key="a", fence=1),
        world(0.3, "crash", "x"),
    ):
        assert not judged(*came, lasts, end, *stay("y", 2, 0.9, 2)).violations
        assert judged(*came, lasts, end, *stay("y", 2, 0.8, 2)).violations


@pytest.mark.parametrize("clock_was_set", [False, True])
@pytest.mark.parametrize("second", [1, 2])
def test_fences_that_fall_or_repeat_are_found(second: int, clock_was_set: bool):
    tally = judged(*stay("x", 2, 0, 1), *stay("y", second, 2, 3), clock_was_set=clock_was_set)
    assert tally.violations
    assert tally.counts["repeated fences"] == (second == 2)


def test_a_stale_holder_must_notice_its_loss():
    paused = [world(1, "pause", "x"), world(3, "resume", "x")]
    loss = Entry(at=3.1, by="x", what="noticed loss", key="a", fence=1)
    good = judged(*stay("x", 1, 0, None), *paused, loss)
    assert (good.counts["stale holders"], good.counts["stale holders told"]) == (1, 1)
    assert not good.violations
    bad = judged(*stay("x", 1, 0, 3.1), *paused)
    assert (bad.counts["stale holders"], bad.counts["stale holders told"]) == (1, 0)
    assert bad.violations


def test_a_short_pause_makes_no_holder_stale():
    paused = [world(1, "pause", "x"), world(1.5, "resume", "x")]
    assert judged(*stay("x", 1, 0, 3), *paused).counts["stale holders"] == 0


def test_the_sink_refuses_what_is_stale_and_its_ledger_shows_if_it_does_not(tmp_path: Path):
    for fenced in (True, False):
        folder = tmp_path / str(fenced)
        folder.mkdir()
        granted = Diary(folder, "holders")
        granted.write("entered", key="a", fence=1, limit=2)
        granted.write("entered", key="a", fence=2, limit=2)
        sink = Sink(folder, fenced=fenced)
        answers = [sink.take("x", "a", fence, once=False) for fence in (1, 2, 1)]
        assert answers == ["accepted", "accepted", "refused" if fenced else "accepted"]
        tally = Tally("test")
        judge_effects(read_diaries(folder), tally)
        assert tally.counts["stale effects accepted"] == (not fenced)
        assert bool(tally.violations) is not fenced


def test_the_sink_takes_what_may_happen_once_a_single_time(tmp_path: Path):
    sink = Sink(tmp_path, fenced=True)
    assert [sink.take("x", "job", fence, once=True) for fence in (1, 2)] == ["accepted", "done"]
    diary = [(entry.what, entry.fence) for entry in read_diaries(tmp_path)]
    assert diary == [("effect", 1), ("repeat", 2)]


@pytest.mark.parametrize("first", ["lost", "succeeded"])
def test_a_repeat_is_doubled_only_if_the_job_had_succeeded(first: AttemptOutcome, tmp_path: Path):
    sink = Sink(tmp_path, fenced=True)
    for fence in (1, 2):
        sink.take("x", "job", fence, once=True)
    attempts = [AttemptLine(1, "r", 1, 2, first), AttemptLine(2, "r", 3, 4, "succeeded")]
    record = JobRecord(
        id="job",
        task="toil",
        queue="default",
        priority=0,
        state="succeeded",
        payload=b"[7]",
        created=1,
        due=1,
        attempt=2,
        result=str(result_of(7, 2)).encode(),
        history=write_history(attempts),
    )
    offered = Entry(at=0, by="p", what="offered", number=7)
    tally = Tally("test")
    Books([offered, *read_diaries(tmp_path)], [Job(cast("Any", None), record)], []).judge(tally)
    assert tally.counts["repeats refused"] == 1
    assert tally.counts["doubled"] == (first == "succeeded")
    assert bool(tally.violations) == (first == "succeeded")


def accepted(at: float, now: float) -> Entry:
    return Entry(at=at, by="p", what="accepted", now=round(now * 1e6))


@pytest.mark.parametrize(
    ("instants", "ahead", "back"),
    [([5000, 5001, 5009], 0, 0), ([5000, 5031, 5032], 1, 0), ([5000, 1401, 5032], 1, 1)],
)
def test_only_steps_that_show_in_the_stores_instants_count(
    instants: list[int], ahead: int, back: int
):
    tally = Tally("test")
    judge_clock_steps((accepted(at, now) for at, now in enumerate(instants)), tally)
    assert (tally.counts["clock steps ahead"], tally.counts["clock steps back"]) == (ahead, back)


def test_a_timer_that_follows_the_clock_back_is_found():
    def violations(*ticks: int) -> list[str]:
        tally = Tally("test")
        entries = [Entry(at=at, by="w", what="chimed", tick=tick) for at, tick in enumerate(ticks)]
        judge_order_of_ticks(entries, tally)
        return tally.violations

    assert not violations(5000, 5100, 5001, 5101)
    assert len(violations(5000, 1400, 5001)) == 1


def test_a_fail_over_may_lose_its_tail_and_nothing_else():
    killed = Strike("kill", began=10, over=12)
    cut_off = Strike("cut off", began=40, over=42, is_served_on=True)
    accepted = [Line(what="accepted", boot=at, pid=1) for at in (8, 9.5, 11, 13, 38, 39.5, 49, 51)]
    sure = lost_by_none([killed, cut_off], accepted)
    assert [line.boot for line in sure] == [8, 13, 38, 51]


def test_tallies_add_up_and_fail_on_floors_and_violations(tmp_path: Path, capsys):
    first, other = Tally("one"), Tally("other")
    first.add("kills", 3)
    other.add("kills", 4)
    other.expect_none("lost")
    assert [first.failed, other.failed] == [False, False]
    assert sum_of([first, other]).counts == {"kills": 7, "lost": 0}
    first.demand("kills", 4)
    assert first.failed
    other.add("lost")
    other.expect_none("lost")
    assert other.violations == ["other: 1 lost"]
    assert "kills" in table([first, other])
    write_summary(tmp_path / "summary.json", [first, other])
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["all"]["counts"]["kills"] == 7
    assert summary["parts"][0]["missed"] == ["one: 3 kills, at least 4 were demanded"]
    assert report([first, other], sum_of([first, other])) == 1
    printed = capsys.readouterr().out
    assert "TOO LITTLE: one" in printed
    assert "VIOLATION: other: 1 lost" in printed
    assert report([Tally("calm")], Tally("all")) == 0


def test_a_run_that_could_not_do_anything_is_no_success(capsys):
    skipped = Tally("redis storm")
    skipped.skip("there is no server")
    assert report([skipped], sum_of([skipped])) == 1
    assert "nothing could be run" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--minutes 0", "it must be above 0"),
        ("--minutes -1", "it must be above 0"),
        ("--scale nan", "it must be above 0"),
        (
            "--store sqlite --part failovers",
            "nothing of that runs on sqlite, only failovers on redis",
        ),
    ],
)
def test_a_size_or_a_choice_that_leaves_nothing_is_refused(
    words: str, expected: str, monkeypatch, capsys
):
    monkeypatch.setattr("sys.argv", ["chaos", *words.split()])
    with pytest.raises(SystemExit, match="2"):
        parsed()
    assert expected in capsys.readouterr().err
