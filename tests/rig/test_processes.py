import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.rig.processes import Child, Fleet, _environment
from tests.rig.spawn import alive, family
from tests.rig.wait import wait_until, wait_until_async

PROMPT = "from tests.rig.stdio import hear, tell\n"


def program(code: str) -> tuple[str, str]:
    return "-c", PROMPT + textwrap.dedent(code)


WAITING = program("tell('ready'); hear()")


def test_events_come_in_order_with_their_facts(fleet: Fleet):
    child = fleet.start(*program("tell('one', n=1); tell('two'); tell('one', n=2)"))
    assert child.expect("two")
    assert child.expect("one")["n"] == 1
    assert child.expect("one")["n"] == 2
    assert child.wait() == 0
    assert [event["kind"] for event in child.events] == ["one", "two", "one"]


def test_times_of_events_can_be_compared_with_those_of_the_test(fleet: Fleet):
    before = time.monotonic()
    event = fleet.start(*program("tell('now')")).expect("now")
    assert before < event["at"] < time.monotonic()


def test_a_module_or_a_script_is_started_with_arguments(fleet: Fleet, tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(PROMPT + "import sys; tell('arguments', are=sys.argv[1:])")
    assert fleet.start(script, "a", "b").expect("arguments")["are"] == ["a", "b"]
    module = fleet.start("-m", "timeit", "--help")
    assert module.wait() == 0
    assert any("timeit" in line for line in module.noise)


def test_a_child_hears_what_the_test_sends(fleet: Fleet):
    child = fleet.start(*program("tell('heard', line=hear())"))
    child.send("go")
    assert child.expect("heard")["line"] == "go"


def test_a_child_that_fails_is_shown_with_its_stderr_and_without_waiting(fleet: Fleet):
    child = fleet.start(*program("tell('first'); print('noise'); raise SystemExit('oh dear')"))
    start = time.monotonic()
    with pytest.raises(AssertionError) as failure:
        child.expect("never", timeout=60)
    assert time.monotonic() - start < 30
    child.wait()
    for clue in ("never", "first", "noise", "oh dear"):
        assert clue in str(failure.value)
    assert "ended with 1" in child.story()


def test_expecting_and_waiting_have_deadlines(fleet: Fleet):
    child = fleet.start(*WAITING)
    child.expect("ready")
    with pytest.raises(AssertionError, match="no event 'never' within"):
        child.expect("never", timeout=0.01)
    with pytest.raises(AssertionError, match="did not end"):
        child.wait(0.01)


def test_a_killed_child_takes_its_own_children_along(fleet: Fleet):
    child = fleet.start(
        *program("""
            import subprocess, sys
            subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
            tell("ready")
            hear()
        """)
    )
    child.expect("ready")
    members = family(child.pid)
    assert len(members) == 2
    child.kill()
    assert child.wait() == -signal.SIGKILL
    assert not any(map(alive, members))


def test_terminate_lets_a_child_clean_up(fleet: Fleet):
    child = fleet.start(
        *program("""
            import signal, sys
            signal.signal(signal.SIGTERM, lambda *_: (tell("bye"), sys.exit(3)))
            tell("ready")
            hear()
        """)
    )
    child.expect("ready")
    child.terminate()
    child.expect("bye")
    assert child.wait() == 3


def test_a_stopped_child_does_nothing_until_continued(fleet: Fleet):
    child = fleet.start(*program("tell('ready'); hear(); tell('on')"))
    child.expect("ready")
    child.stop_signal()
    child.send("go")
    with pytest.raises(AssertionError):
        child.expect("on", timeout=0.05)
    child.cont()
    child.expect("on")


def test_closing_ends_a_stopped_child_and_may_be_repeated():
    child = Child(*WAITING)
    child.expect("ready")
    child.stop_signal()
    child.close()
    child.close()
    assert not alive(child.pid)
    assert "ended with -9" in child.story()


def test_a_fleet_ends_all_children_of_a_test_that_fails(capsys: pytest.CaptureFixture[str]):
    children: list[Child] = []

    def failing_test() -> None:
        with Fleet() as fleet:
            children.extend(fleet.start(*WAITING) for _ in range(3))
            for child in children:
                child.expect("ready")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing_test()
    assert not any(alive(child.pid) for child in children)
    assert capsys.readouterr().out.count("'kind': 'ready'") == 3


def test_children_die_with_a_test_run_that_is_killed():
    code = f"""
        from tests.rig.processes import Fleet
        child = Fleet().start(*{WAITING!r})
        child.expect("ready")
        print(child.pid, flush=True)
        input()
    """
    owner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert alive(pid)
        owner.kill()
    wait_until(lambda: not alive(pid), 30, "the child died with its owner")


def test_a_child_of_a_forked_process_is_started_all_the_same(fleet: Fleet):
    child = fleet.start(
        *program("""
            import os
            from tests.rig.spawn import run
            run(["true"])
            if os.fork() == 0:
                run(["true"])
                os._exit(7)
            tell("forked", code=os.waitstatus_to_exitcode(os.wait()[1]))
        """)
    )
    assert child.expect("forked")["code"] == 7


def test_waiting_returns_what_came_true():
    answers = iter([0, None, "", "yes"])
    assert wait_until(lambda: next(answers)) == "yes"


def test_waiting_gives_up_at_the_deadline_and_names_the_condition():
    with pytest.raises(AssertionError, match="pigs fly"):
        wait_until(lambda: False, 0.01, "pigs fly")


async def test_waiting_without_blocking_takes_both_kinds_of_conditions():
    answers = iter([0, 1, 0, 2])

    async def condition() -> int:
        return next(answers)

    assert await wait_until_async(condition) == 1
    assert await wait_until_async(lambda: next(answers)) == 2
    with pytest.raises(AssertionError, match="pigs fly"):
        await wait_until_async(lambda: False, 0.01, "pigs fly")


def test_nothing_of_this_process_is_taken_for_dead():
    assert alive(os.getpid())
    assert os.getpid() in family(os.getppid())
