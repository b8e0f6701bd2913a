"""Concurrent callers on real stores, interleaved by a seed, with calls cut at random points.

The memory store is the specification: some order of the concurrent calls, made one after the other,
must explain every answer and all that can be seen afterwards. See docs/proof.md.
"""

import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from tenure.core.leases import Busy, Granted, Lease
from tenure.stores.sqlite.leases import Leases
from tenure.testing import ManualClock
from tests.interleavings import __main__ as command
from tests.interleavings.batches import replay_command, run_many, running, shortened, violation
from tests.interleavings.orders import Op, explained
from tests.interleavings.programs import AT_ITS_REPLY, CALLERS, HANDS, KINDS, Schedule, Step, drawn
from tests.interleavings.readings import Call
from tests.interleavings.scheduler import Run
from tests.interleavings.spec import Spec, State
from tests.rig.fixtures import PrivatePostgres, PrivateValkey
from tests.rig.sizes import SIZE

SHORT = os.environ.get("TENURE_TEST_SIZE", "short") == "short"
# Every ordinary run uses the same seeds, so that a failure can be repeated.
FIRST_SEED = 0 if SHORT else random.SystemRandom().randrange(10**9)


def check(family: str, kind: str, number: int, url: str | None = None) -> None:
    """Run schedules; fail on a difference, or if too little happened in them."""
    seeds = range(FIRST_SEED, FIRST_SEED + number)
    total = run_many(family, kind, seeds, url=url, failures=1)
    for schedule, why in total.failed:
        raise AssertionError(f"{why}\nreplay: {replay_command(family, schedule)}")
    assert not total.missing(family)


@pytest.mark.timeout(120 if SHORT else 14_400)
@pytest.mark.parametrize("kind", KINDS)
class TestAnswersAreExplainedBySomeOrder:
    @pytest.mark.draw(2)
    def test_sqlite(self, kind: str):
        check("sqlite", kind, SIZE.examples // 2)

    @pytest.mark.draw(2)
    def test_redis(self, kind: str, private_valkey: PrivateValkey):
        check("redis", kind, SIZE.examples // 3, private_valkey().url)

    @pytest.mark.draw(2)
    def test_postgres(self, kind: str, private_postgres: PrivatePostgres):
        check("postgres", kind, SIZE.examples // 3, private_postgres().url)


def claims_that_meet(seed: int) -> Schedule:
    """Return a schedule in which all replicas claim at once, again and again."""
    job = {
        "task": "x",
        "queue": "a",
        "priority": 5,
        "payload": b"",
        "tags": (),
        "delay": 0.0,
        "at_in": None,
        "timeout": None,
        "retention": 60.0,
        "key": None,
        "digest": "",
        "keep": 0,
    }
    jobs = [{**job, "number": number} for number in range(9)]
    steps = [
        Step(0, caller, "join", {"replica": "pqr"[caller], "ttl": 30.0}) for caller in range(3)
    ]
    steps.append(Step(1, 0, "insert", {"jobs": jobs}))
    for window in (2, 3, 4):
        for caller in range(3):
            wish = {"replica": "pqr"[caller], "queues": ["a"], "limit": 1 + (seed + caller) % 2}
            steps.append(Step(window, caller, "claim", wish))
    return Schedule("jobs", seed, tuple(steps))


@pytest.mark.timeout(120 if SHORT else 14_400)
def test_claims_that_meet_on_postgres_share_the_jobs(private_postgres: PrivatePostgres):
    with running("postgres", private_postgres().url) as rig:
        for seed in range(SIZE.examples // 6):
            Run(claims_that_meet(seed), rig).go()


def joins_that_meet_removals(seed: int) -> Schedule:
    """Return a schedule in which a replica joins twice at once while its old record is removed."""
    steps: list[Step] = []
    for window in range(0, 6, 2):
        steps.append(Step(window, 0, "pass_time", {"seconds": 3.0}))
        recovery = {"delays": [], "grace": 0.0, "limit": 1}
        for caller, (name, wish) in enumerate(
            [
                ("join", {"replica": "p", "ttl": 3.0}),
                ("join", {"replica": "p", "ttl": 2.0}),
                ("recover", recovery),
                ("leave", {"replica": "p"}),
            ]
        ):
            steps.append(Step(window + 1, caller, name, wish))
    return Schedule("jobs", seed, tuple(steps))


@pytest.mark.timeout(120 if SHORT else 14_400)
def test_joins_that_meet_removals_on_postgres_are_known(private_postgres: PrivatePostgres):
    with running("postgres", private_postgres().url) as rig:
        for seed in range(SIZE.examples // 6):
            Run(joins_that_meet_removals(seed), rig).go()


MOVE: dict[str, Any] = {
    "to_in": 0.0,
    "due_in": 0.0,
    "seen": "here",
    "behind": 0,
    "run": {"task": "x", "queue": "a", "payload": b"", "timeout": None, "retention": 60.0},
    "replica": "",
    "rest": 0.0,
    "limit": None,
    "own": None,
    "passed": [],
    "forced": False,
}


def ticks_that_meet(seed: int) -> Schedule:
    """Return a schedule in which two replicas tick at once and one loses its answer."""
    steps = [Step(0, 0, "register", {"schedules": [declared("s", "a")]})]
    for window in range(1, 4):
        steps.append(Step(2 * window, 0, "pass_time", {"seconds": 1.0}))
        for caller in range(CALLERS):
            cut = "break" if (seed + window) % CALLERS == caller else ""
            move = {"name": "s", **MOVE, "replica": "p" if caller % HANDS else ""}
            steps.append(Step(2 * window + 1, caller, "advance", move, cut, AT_ITS_REPLY))
    steps.insert(1, Step(1, 0, "join", {"replica": "p", "ttl": 30.0}))
    return Schedule("timers", seed, tuple(steps))


def a_deploy_that_is_rolled_back(seed: int) -> Schedule:
    """Return a schedule in which a new release renames a timer, and the old one comes back.

    Both tick all the time, operators freeze and thaw, and undeclared timers are forgotten.
    """
    old, new = (
        {"schedules": [declaration]}
        for declaration in (declared("s", "a"), declared("t", "b", "s"))
    )
    ticks = [("advance", {"name": name, **MOVE}) for name in "st"]
    frozen = "st"[seed % 2]
    # Seconds that pass before; a release that has been gone for a minute no longer rules.
    windows: list[tuple[float, list[tuple[str, dict[str, Any]]]]] = [
        (1.0, [("register", old)]),
        (1.0, [("register", new), ("register", old), *ticks]),
        (1.0, [("freeze", {"name": frozen, "until_in": None, "reason": ""}), *ticks]),
        (1.0, [("thaw", {"name": frozen}), ("register", new), *ticks]),
        (70.0, [("register", old), ("forget", {"idle": 65.0}), *ticks]),
        (70.0, [("register", old), ("register", new), *ticks]),
    ]
    steps: list[Step] = []
    for window, (seconds, calls) in enumerate(windows):
        steps.append(Step(2 * window, 0, "pass_time", {"seconds": seconds}))
        for caller, (name, arguments) in enumerate(calls):
            cut = ("", "break", "cancel")[(seed + window) % 3] if caller == seed % 2 else ""
            steps.append(Step(2 * window + 1, caller, name, arguments, cut, AT_ITS_REPLY))
    return Schedule("timers", seed, tuple(steps))


def declared(name: str, digest: str, *former: str) -> dict[str, Any]:
    return {"name": name, "digest": digest, "renamed_from": former}


@pytest.mark.timeout(120 if SHORT else 14_400)
@pytest.mark.parametrize("story", [ticks_that_meet, a_deploy_that_is_rolled_back])
class TestReplicasAgreeAboutTimers:
    """One run per tick, which its replica learns of, in any order of statements."""

    def check(self, family: str, story: Callable[[int], Schedule], number: int, url: str | None):
        with running(family, url) as rig:
            for seed in range(FIRST_SEED, FIRST_SEED + number):
                Run(story(seed), rig).go()

    def test_sqlite(self, story: Callable[[int], Schedule]):
        self.check("sqlite", story, SIZE.examples // 2, None)

    def test_redis(self, story: Callable[[int], Schedule], private_valkey: PrivateValkey):
        self.check("redis", story, SIZE.examples // 2, private_valkey().url)

    def test_postgres(self, story: Callable[[int], Schedule], private_postgres: PrivatePostgres):
        self.check("postgres", story, SIZE.examples // 3, private_postgres().url)


def test_a_run_in_which_no_calls_overlap_is_not_enough():
    total = run_many("sqlite", "leases", range(5), windows=False)
    assert any(line.startswith("calls that overlapped") for line in total.missing("sqlite"))
    assert any(line.startswith("blocked statements") for line in total.missing("sqlite"))


def test_a_run_without_cuts_is_not_enough():
    total = run_many("sqlite", "leases", range(5), cuts=False)
    assert {"cuts before", "cuts after", "cancelled", "repeats"} <= {
        line.partition(":")[0] for line in total.missing("sqlite")
    }


@pytest.mark.parametrize("words", ["--seeds 1", "--seeds -3", "--kind jobs --seeds 0"])
def test_no_schedules_are_no_success(words: str, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setattr("sys.argv", ["schedules", *words.split()])
    with pytest.raises(SystemExit, match="2"):
        command.main()
    assert "--seeds must be at least" in capsys.readouterr().err


def test_a_store_that_differs_is_shown_in_few_steps(monkeypatch: pytest.MonkeyPatch):
    real = Leases.release

    async def forgetful(self: Leases, leases: list[Lease]) -> list[bool]:
        """Read first and release then, which is right only without concurrent calls."""
        there = [(lease.key, lease.holder, lease.fence) for lease in await self.find()]
        await real(self, leases)
        return [(lease.key, lease.holder, lease.fence) in there for lease in leases]

    with running("sqlite") as rig:
        monkeypatch.setattr(Leases, "release", forgetful)
        schedule = next(
            drawn_schedule
            for seed in range(100)
            if violation(drawn_schedule := drawn("leases", seed), rig) is not None
        )
        short = shortened(schedule, rig)
        assert violation(short, rig) is not None
    assert 2 <= len(short.steps) <= 6
    assert any(step.name.startswith(("release", "come_and_go")) for step in short.steps)


class TestOrders:
    """Orders that explain the answers, and answers that no order explains."""

    @pytest.fixture
    def explains(self) -> Callable[..., bool]:
        spec = Spec(ManualClock())

        def explains(*ops: Op) -> bool:
            return bool(explained(spec, [State()], list(ops), skips=False))

        return explains

    def acquire(self, holder: str, begun: int, ended: int | None, answer: object, **how) -> Op:
        wishes = {"limit": 1, "ttl": 10.0, "meta": {}, "waiting": 0.0}
        call = Call("leases.acquire", ("a",), {"holder": holder, **wishes})
        return Op(call, 0, 0, begun, ended, answer=answer, **how)

    def granted(self, holder: str, begun: int, ended: int, fence: int) -> Op:
        values = {"key": "a", "ttl": 10.0, "limit": 1, "meta": {}, "expires_in": 10.0}
        lease = Lease(holder=holder, fence=fence, **values)
        return self.acquire(holder, begun, ended, Granted(lease))

    def refused(self, holder: str, begun: int, ended: int) -> Op:
        return self.acquire(holder, begun, ended, Busy(10.0))

    def test_of_two_concurrent_calls_one_may_be_granted(self, explains):
        assert explains(self.granted("p", 1, 4, 7), self.refused("q", 2, 3))
        assert explains(self.refused("q", 2, 3), self.granted("p", 1, 4, 7))

    def test_two_grants_of_one_place_are_not_explained(self, explains):
        assert not explains(self.granted("p", 1, 4, 7), self.granted("q", 2, 3, 8))

    def test_an_order_against_real_time_is_not_explained(self, explains):
        assert not explains(self.refused("q", 1, 2), self.granted("p", 3, 4, 7))

    def test_fences_must_rise_in_the_order(self, explains):
        released = Op(
            Call("leases.release", ([Lease(key="a", holder="p")],)), 0, 0, 3, 4, answer=[True]
        )
        assert explains(self.granted("p", 1, 2, 7), released, self.granted("q", 5, 6, 8))
        assert not explains(self.granted("p", 1, 2, 8), released, self.granted("q", 5, 6, 7))

    def test_a_cut_call_may_have_taken_effect_or_not(self, explains):
        for other in (self.refused("q", 4, 5), self.granted("q", 4, 5, 7)):
            assert explains(self.acquire("p", 1, None, None, fate="maybe"), other)

    def test_a_call_that_took_effect_must_be_in_the_order(self, explains):
        cut = self.acquire("p", 1, 3, None, fate="happened")
        assert explains(cut, self.refused("q", 4, 5))
        assert not explains(cut, self.granted("q", 4, 5, 7))

    def test_a_call_without_effect_must_not_be_in_the_order(self, explains):
        cut = self.acquire("p", 1, 3, None, fate="never")
        assert explains(cut, self.granted("q", 4, 5, 7))
        assert not explains(cut, self.refused("q", 4, 5))

    def test_a_cancelled_call_takes_effect_before_the_next_call_or_not_at_all(self, explains):
        cancelled = self.acquire("p", 1, None, None, fate="maybe")
        released = Op(
            Call("leases.release", ([Lease(key="a", holder="p")],)), 0, 0, 5, 6, answer=[False]
        )
        refused = self.refused("q", 7, 8)
        assert explains(cancelled, released, refused)
        cancelled.followers.add(released)
        assert not explains(cancelled, released, refused)
        released.answer = [True]
        assert explains(cancelled, released, self.granted("q", 7, 8, 7))
