import pytest

from tenure.core.jobs.records import JobRecord
from tenure.core.jobs.replicas import Recovered
from tenure.core.jobs.states import FINISHED, MOVES, STATES, diagram, moves_from


def test_every_state_can_be_reached():
    reached: set[str | None] = {None}
    for _ in STATES:
        reached |= {move.end for move in MOVES if move.start in reached}
    assert reached == {None, *STATES}


def test_a_job_begins_by_waiting():
    (first,) = moves_from(None)
    assert (first.call, first.end) == ("insert", "waiting")


def test_a_job_runs_only_by_a_claim_that_counts_an_attempt():
    (claim,) = [move for move in MOVES if move.end == "running"]
    assert (claim.call, claim.start, claim.counts) == ("claim", "waiting", "attempt")


def test_nothing_else_counts_an_attempt():
    assert [move.call for move in MOVES if move.counts == "attempt"] == ["claim"]


@pytest.mark.parametrize("state", STATES)
def test_from_every_state_there_is_a_way_on(state):
    assert moves_from(state)


@pytest.mark.parametrize("state", sorted(FINISHED))
def test_a_finished_job_can_only_be_requeued(state):
    assert [(move.call, move.end) for move in moves_from(state)] == [("requeue", "waiting")]


def test_only_running_jobs_succeed_or_fail():
    starts = {move.start for move in MOVES if move.end in ("succeeded", "failed")}
    assert starts == {"running"}


def test_each_attempt_is_counted_once():
    counts = {(move.call, move.counts) for move in MOVES if move.start == "running"}
    assert {call for call, count in counts if count == "failures"} == {"fail", "retry"}
    assert {call for call, count in counts if count == "losses"} == {"recover", "give up"}


def test_every_move_says_when_it_happens():
    assert all(move.condition for move in MOVES)
    assert len({(move.call, move.start, move.end) for move in MOVES}) == len(MOVES)


def test_a_move_counts_only_what_a_job_has():
    assert {move.counts for move in MOVES} - {""} <= set(JobRecord.__struct_fields__)


def test_a_job_that_has_not_finished_waits_or_runs():
    assert set(STATES) - FINISHED == {"waiting", "running"}


def test_the_diagram_draws_every_way_once():
    lines = diagram().splitlines()
    assert lines[0] == "stateDiagram-v2"
    ways = {(move.start or "[*]", move.end) for move in MOVES}
    drawn = [tuple(line.split(":")[0].split(" --> ")) for line in lines[1:]]
    assert {(start.strip(), end) for start, end in drawn} == ways
    assert len(drawn) == len(ways)
    assert "    [*] --> waiting: insert" in lines
    assert "    running --> waiting: retry, hand back, recover" in lines


def test_recovering_ends_where_the_table_says():
    ends = {move.end for move in MOVES if move.call in ("recover", "give up", "stop")}
    for end in ends:
        assert Recovered(id="1", replica="ann", state=end).state == end
    assert ends == {"waiting", "failed", "cancelled"}
