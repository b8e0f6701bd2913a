"""The board on which a worker tells its supervisor which jobs run."""

import os
from collections.abc import Iterator
from contextlib import closing

import pytest

from tenure.core.ids import is_job_id, job_id
from tenure.runtime.supervised.scoreboard import Scoreboard

PLACES = 3
JOBS = [job_id(1_800_000_000_000 + number, 0, "0123456789abcdef" * 2) for number in range(4)]


@pytest.fixture
def file() -> Iterator[int]:
    made = Scoreboard.make_file(PLACES)
    yield made
    os.close(made)


@pytest.fixture
def written(file: int) -> Iterator[Scoreboard]:
    """The board as the worker has it."""
    with closing(Scoreboard(file, PLACES)) as board:
        yield board


@pytest.fixture
def read(file: int) -> Iterator[Scoreboard]:
    """The same board as the supervisor has it."""
    with closing(Scoreboard(file, PLACES)) as board:
        yield board


def test_a_new_board_is_empty(read: Scoreboard):
    assert (read.started(), read.deadlines(), read.ended, read.ticked) == ([], {}, 0, 0.0)


def test_running_jobs_are_on_the_board(written: Scoreboard, read: Scoreboard):
    first, second, _ = (written.begin(job, 0.0) for job in JOBS[:3])
    assert sorted(read.started()) == JOBS[:3]
    written.end(second)
    assert sorted(read.started()) == [JOBS[0], JOBS[2]]
    written.end(first)
    assert read.started() == [JOBS[2]]


def test_places_are_used_again(written: Scoreboard, read: Scoreboard):
    for _ in range(5):
        places = [written.begin(job, 0.0) for job in JOBS[:PLACES]]
        assert sorted(places) == [*range(PLACES)]
        written.end(places[1])
        assert written.begin(JOBS[3], 0.0) == places[1]
        assert sorted(read.started()) == [JOBS[0], JOBS[2], JOBS[3]]
        for place in places:
            written.end(place)
        assert read.started() == []


def test_only_attempts_with_a_time_out_have_a_deadline(written: Scoreboard, read: Scoreboard):
    written.begin(JOBS[0], 0.0)
    place = written.begin(JOBS[1], 12.5)
    assert read.deadlines() == {JOBS[1]: 12.5}
    written.end(place)
    assert read.deadlines() == {}
    written.begin(JOBS[2], 0.0)  # in the place of the one that had one
    assert read.deadlines() == {}


def test_ends_and_ticks_do_not_disturb_each_other(written: Scoreboard, read: Scoreboard):
    written.tick(1.5)
    for job in JOBS:
        written.end(written.begin(job, 0.0))
    assert (read.ended, read.ticked) == (4, 1.5)
    written.tick(2.5)
    assert (read.ended, read.ticked) == (4, 2.5)


def test_a_blocked_loop_and_the_job_that_blocks_it(written: Scoreboard, read: Scoreboard):
    assert read.blockage == (0.0, 0.0, "")
    written.blocked(3.5, JOBS[0])
    written.tick(4.0)
    written.end(written.begin(JOBS[1], 0.0))
    assert read.blockage == (3.5, 0.0, JOBS[0])
    written.unblocked(5.5)
    assert read.blockage == (3.5, 5.5, JOBS[0])
    assert (read.started(), read.ended) == ([], 1)


@pytest.mark.parametrize("length", [1, 20, 35])
def test_a_line_that_was_torn_names_no_job(
    file: int, written: Scoreboard, read: Scoreboard, length: int
):
    written.begin(JOBS[0], 0.0)
    whole = os.pread(file, 1000, 0)
    begins = whole.index(JOBS[0].encode())
    os.pwrite(file, bytes(len(JOBS[0]) - length), begins + length)
    [torn] = read.started()
    assert torn == JOBS[0][:length]
    assert not is_job_id(torn)


def test_invalid_utf_8_breaks_no_reader(file: int, written: Scoreboard, read: Scoreboard):
    written.begin(JOBS[0], 0.0)
    os.pwrite(file, b"\xff\xfe", os.pread(file, 1000, 0).index(JOBS[0].encode()))
    [torn] = read.started()
    assert not is_job_id(torn)


def test_a_run_without_a_free_place_is_no_error():
    file = Scoreboard.make_file(2)
    board = Scoreboard(file, 2)
    places = [board.begin(f"job-{number}", 0.0) for number in range(3)]
    assert places[-1] == -1
    assert len(board.started()) == 2
    board.end(places[-1])
    board.end(places[0])
    assert board.begin("again", 0.0) == places[0]
    board.close()


def test_the_deadline_of_an_attempt_can_be_put_off():
    board = Scoreboard(Scoreboard.make_file(1), 1)
    place = board.begin(JOBS[0], 9.0)
    board.postpone(place, 0.0)
    assert (board.deadlines(), board.started()) == ({}, [JOBS[0]])
    board.postpone(place, 12.0)
    assert board.deadlines() == {JOBS[0]: 12.0}
    board.end(place)
    board.postpone(-1, 7.0)
    assert board.started() == []
    board.close()
