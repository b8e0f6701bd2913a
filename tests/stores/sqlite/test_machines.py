"""One machine at a time uses an SQLite file: what counts as another one, and for how long."""

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from tenure import ConfigError, StoreError, StoreUnavailable, Tenure
from tenure.core import clock as core_clock
from tenure.core.clock import SystemClock
from tenure.core.machines import SILENCE, Now, Trace, Watch, judge
from tenure.stores.sqlite import SqliteStore
from tenure.testing import ManualClock
from tests.contract.calls import ask, be_refused, holders, take
from tests.contract.job_calls import AT_ONCE, insert, join, new
from tests.rig.endings import recover
from tests.stores.sqlite.inside import HandClock, change, inside, restarted, statements_of

SECOND = 1_000_000
NOON = 1_800_000_000_000_000
UP = 1000 * SECOND
HERE = Now("here", NOON, UP)


def trace(ago: float, *, id_: str = "there", turn: int = 7) -> Trace:
    return Trace(id_, "host", NOON - round(ago * SECOND), 5 * SECOND, turn)


def watch(ago: float, *, turn: int = 7, was_there: bool = False) -> Watch:
    return Watch(turn, UP - round(ago * SECOND), was_there)


# The rule


@pytest.mark.parametrize(
    ("seen", "before", "verdict"),
    [
        (trace(5), None, "doubtful"),
        (trace(29.999), None, "doubtful"),
        (trace(30), None, "gone"),
        (trace(3600), None, "gone"),
        # This machine was started 1000 s ago: another one's trace is in the future by its clock.
        (trace(-5), None, "doubtful"),
        (trace(-3600), watch(29), "doubtful"),
        (trace(-3600), watch(30), "gone"),
        (trace(5), watch(10, turn=6), "there"),
        (trace(3600), watch(10, turn=6), "there"),  # its clock is late, and it is at work
        (trace(5), watch(3600, turn=6), "doubtful"),  # seen long ago: that it wrote tells nothing
        (trace(3600), watch(3600, turn=6), "gone"),
        (trace(5), watch(29, was_there=True), "there"),
        (trace(3600), watch(29, was_there=True), "there"),
        (trace(-5), watch(30, was_there=True), "gone"),
        (trace(3600), watch(0, was_there=True), "there"),
        (trace(3600), watch(0, turn=6), "there"),
        (trace(3600), watch(-0.000_001, was_there=True), "gone"),  # by a clock that began anew
        (trace(5), watch(59.999, turn=6), "there"),
        (trace(5), watch(60, turn=6), "doubtful"),
        (trace(3600), watch(29), "gone"),
    ],
)
def test_a_trace_tells_which_machine_uses_the_file(seen: Trace, before: Watch | None, verdict: str):
    assert judge(seen, before, HERE) == verdict


@pytest.mark.parametrize(
    ("here", "there", "verdict"),
    [
        ("new", "old", "gone"),
        ("", "", "gone"),  # a system that does not name its starts
        ("kernel", "kernel+100000.0", "doubtful"),
        ("kernel+5.0", "kernel", "doubtful"),
        ("kernel", "kernel", "doubtful"),
    ],
)
def test_a_trace_from_before_the_start_of_this_machine(here: str, there: str, verdict: str):
    now = Now(here, NOON, 10 * SECOND)
    assert judge(trace(15, id_=there), None, now) == verdict


@pytest.mark.parametrize(
    ("ago", "verdict"), [(9.999, "doubtful"), (10, "doubtful"), (10.001, "gone")]
)
def test_a_trace_of_the_instant_of_the_start_may_be_of_now(ago: float, verdict: str):
    assert judge(trace(ago, id_="old"), None, Now("new", NOON, 10 * SECOND)) == verdict


def test_a_watch_of_a_clock_that_was_restarted_proves_nothing():
    now = Now("", NOON, 10 * SECOND)
    assert judge(trace(5, id_=""), Watch(6, UP, was_there=True), now) == "doubtful"


# Stores on two machines


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tenure.db"


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


def another(clock: ManualClock, *, ahead: float = 0, boot_id: str = "another") -> HandClock:
    """Return the clock of a machine that was started long ago, too."""
    other = HandClock(clock.wall())
    other.boot_id = boot_id
    other.shift(ahead)
    other.step(-ahead)
    return other


def unopened(file: Path, clock: ManualClock) -> SqliteStore:
    return SqliteStore(f"sqlite:///{file}", namespace="app", clock=clock)


@asynccontextmanager
async def opened(file: Path, clock: ManualClock):
    store = unopened(file, clock)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def opening(store: SqliteStore, *clocks: ManualClock, seconds: float) -> asyncio.Task[None]:
    """Begin to open a store, and let time pass on all machines."""
    task = asyncio.ensure_future(store.open())
    await pass_time(*clocks, seconds=seconds, until=task)
    return task


async def pass_time(*clocks: ManualClock, seconds: float, until: asyncio.Task | None = None):
    for _ in range(round(seconds * 2)):
        for clock in clocks:
            await clock.advance(0.5)
        await asyncio.sleep(0.01)  # for the threads of the stores
        if until is not None and until.done():
            return


async def turn_of(store: SqliteStore) -> int:
    """Return the number of the last trace."""
    look = "SELECT turn FROM tenure_machine"
    return await inside(store, lambda db: db.execute(look).fetchone()[0])


async def test_a_second_machine_is_refused_and_the_first_one_goes_on(file, clock):
    elsewhere = another(clock)
    async with opened(file, clock) as store:
        lease = await take(store, "key", "ann")
        second = unopened(file, elsewhere)
        task = await opening(second, elsewhere, clock, seconds=5)
        assert not task.done()
        assert await store.leases.renew([lease]) == [True]
        await pass_time(elsewhere, clock, seconds=2, until=task)
        with pytest.raises(ConfigError, match="is in use by programs of another machine"):
            await task
        assert await store.leases.renew([lease]) == [True]
        assert await holders(store, "key") == ["ann"]


async def test_a_machine_that_is_gone_is_waited_for_by_ones_own_clock(file, clock, caplog):
    """As after a start with a wall clock that is late: the trace seems to be in the future."""
    later = restarted(clock, took=-3600)
    async with opened(file, clock) as store:
        await take(store, "key", "ann", ttl=3600)
        await join(store, "ann")
    store = unopened(file, later)
    task = await opening(store, later, seconds=29)
    assert not task.done()
    assert caplog.text.count("a short while ago") == 1
    await pass_time(later, seconds=3, until=task)
    await task
    await take(store, "key", "ben")
    await store.close()


async def test_a_wait_that_a_restart_cut_short_begins_anew(file, clock):
    """On a system that does not name its starts, what was seen before the restart looks later."""
    elsewhere = another(clock, ahead=100_000, boot_id="")
    async with opened(file, clock) as store:
        await take(store, "key", "ann", ttl=3600)
    store = unopened(file, elsewhere)
    task = await opening(store, elsewhere, seconds=5)
    assert not task.done()
    task.cancel()
    later = restarted(clock, "", took=-3600)
    store = unopened(file, later)
    task = await opening(store, later, seconds=33)
    assert task.done()
    await task
    await take(store, "key", "ben")
    await store.close()


async def test_once_the_wall_clock_is_right_nobody_waits(file, clock):
    later = restarted(clock, took=-3600)
    async with opened(file, clock) as store:
        await take(store, "key", "ann", ttl=3600)
    store = unopened(file, later)
    task = await opening(store, later, seconds=2)
    assert not task.done()
    later.step(3660)
    await pass_time(later, seconds=2, until=task)
    await task
    await take(store, "key", "ben")
    await store.close()


async def test_a_restart_costs_no_time(file, clock):
    async with opened(file, clock) as store:
        await take(store, "key", "ann", ttl=3600)
    for number in range(3):
        clock = restarted(clock, f"start {number}")
        async with opened(file, clock) as store:
            await take(store, "key", f"ben {number}", ttl=3600)
            rows = await inside(store, lambda db: db.execute("SELECT id FROM tenure_machine"))
            assert rows.fetchall() == [(f"start {number}",)]


async def test_a_copy_from_another_machine_is_used(file, clock, tmp_path):
    elsewhere = another(clock)
    async with opened(file, clock) as store:
        await take(store, "key", "ann", ttl=3600)
    copy = tmp_path / "copy.db"
    copy.write_bytes(file.read_bytes())
    elsewhere.shift(30)
    async with opened(copy, elsewhere) as store:
        await take(store, "key", "ben")


async def test_a_machine_that_was_idle_finds_the_other_one_there(file, clock):
    elsewhere = another(clock)
    async with opened(file, clock) as first:
        await take(first, "key", "ann", ttl=10)
        for each in (clock, elsewhere):
            each.shift(40)
        async with opened(file, elsewhere) as second:
            ben = await take(second, "key", "ben")
            with pytest.raises(StoreUnavailable, match="a short while ago"):
                await ask(first, "key", "ann")
            for each in (clock, elsewhere):
                each.shift(2)
            assert await second.leases.renew([ben]) == [True]
            for call in (ask(first, "key", "ann"), recover(first, delays=AT_ONCE, grace=0)):
                with pytest.raises(StoreError, match="is in use by programs of another machine"):
                    await call
            assert await holders(second, "key") == ["ben"]
        for each in (clock, elsewhere):
            each.shift(31)
        await take(first, "key", "ann")


async def test_nothing_of_another_machine_is_removed_while_it_is_there(file, clock):
    elsewhere = another(clock)
    async with opened(file, clock) as first, opened(file, clock) as also:
        await join(first, "ann")
        await take(first, "key", "ann")
        await take(first, "places", "ann", limit=2)
        second = unopened(file, elsewhere)
        await second.open("skip")
        for call in (
            partial(ask, second, "key", "ben"),
            partial(ask, second, "places", "ben", limit=2),
            partial(second.prune, idle=0),
            partial(recover, second, delays=AT_ONCE, grace=0),
        ):
            with pytest.raises(StoreUnavailable, match="a short while ago"):
                await call()
        await second.close()
        assert await holders(also, "key") == ["ann"]
        assert [replica.id for replica in await also.jobs.replicas()] == ["ann"]


async def test_two_clocks_of_one_name_are_noticed_by_the_one_behind(file, clock):
    ahead = another(clock, ahead=100_000, boot_id=clock.boot_id)
    async with opened(file, ahead) as store:
        lease = await take(store, "key", "ann")
        behind = unopened(file, clock)
        await behind.open("skip")
        with pytest.raises(StoreUnavailable, match="a short while ago"):
            await ask(behind, "key", "ben")
        for each in (clock, ahead):
            each.shift(2)
        assert await store.leases.renew([lease]) == [True]
        with pytest.raises(StoreError, match="is in use by programs of another machine"):
            await ask(behind, "key", "ben")
        await behind.close()


async def test_a_clock_that_was_set_back_under_its_name_is_lived_with(file, clock):
    """As by going back to a snapshot of a virtual machine whose disk has not gone back."""
    before = HandClock(clock.wall())
    clock.shift(5000)
    async with opened(file, clock) as store:
        await take(store, "key", "ann", ttl=10)
    before.step(5000)  # by its daemon
    store = unopened(file, before)
    task = await opening(store, before, seconds=32)
    await task
    assert (await be_refused(store, "key", "ben")).retry_in <= 10
    before.shift(10)
    await take(store, "key", "ben")
    await store.close()


async def test_the_trace_of_this_machine_is_left_once_in_a_second(file, clock):
    async with opened(file, clock) as store:
        lease = await take(store, "key", "ann")
        first = await turn_of(store)
        for _ in range(3):
            clock.shift(0.3)
            await store.leases.renew([lease])
        assert await turn_of(store) == first
        clock.shift(0.1)
        await store.leases.renew([lease])
        assert await turn_of(store) > first
        clock.step(-7200)
        before = await turn_of(store)
        clock.shift(1)
        await store.leases.renew([lease])
        assert await turn_of(store) == before + 1


async def test_a_trace_is_left_at_once_in_a_file_that_has_replaced_the_old_one(
    file, clock, tmp_path
):
    new = tmp_path / "new.db"
    async with opened(new, clock) as store:
        await change(store, "DELETE FROM tenure_machine")
    async with opened(file, clock) as store:
        await take(store, "key", "ann")
        for part in tmp_path.glob("tenure.db*"):
            part.unlink()
        new.rename(file)
        await take(store, "other", "ann")
        assert await turn_of(store) > 0


async def test_a_trace_is_left_beside_a_call_that_fails(file, clock):
    """The first transaction is undone, and its trace with it: the second one leaves it."""

    def fail(_):
        raise ValueError

    async with opened(file, clock) as store:
        await take(store, "key", "ann")
        before = await turn_of(store)
        clock.shift(2)
        calls = (store.run(fail), take(store, "other", "ann"))
        failure, _ = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(failure, StoreError)
        assert await turn_of(store) > before


async def test_a_trace_is_left_by_the_first_call_that_succeeds(file, clock):
    def fail(_):
        raise ValueError

    async with opened(file, clock) as store:
        await take(store, "key", "ann")
        clock.shift(2)
        with pytest.raises(StoreError):
            await store.run(fail)
        before = await turn_of(store)  # a call that only reads leaves none
        await take(store, "other", "ann")
        assert await turn_of(store) > before


async def test_a_trace_is_left_by_a_call_that_runs_twice(file, clock):
    """As acquiring does after the wall clock was set back: the fence is forced to the disk."""
    async with opened(file, clock) as store:
        lease = await take(store, "key", "ann")
        clock.step(-7200)
        for _ in range(3):
            await store.leases.release([lease])
            before = await turn_of(store)
            clock.shift(2)
            lease = await take(store, "key", "ann")
            assert await turn_of(store) > before


async def test_within_a_second_no_statement_is_about_machines(file, clock):
    async with opened(file, clock) as store:
        lease = await take(store, "key", "ann")
        about_machines = [
            statement
            for call in (store.leases.renew([lease]), join(store, "ann"), insert(store, new(1)))
            for statement in await statements_of(store, call)
            if "tenure_machine" in statement
        ]
        assert about_machines == []


async def test_once_in_a_second_two_statements_are_about_machines(file, clock):
    async with opened(file, clock) as store:
        lease = await take(store, "key", "ann")

        async def renew_later():
            clock.shift(1)
            await store.leases.renew([lease])

        statements = await statements_of(store, renew_later())
        assert len([line for line in statements if "tenure_machine" in line]) == 2


async def test_traces_of_many_machines_do_not_pile_up(file, clock):
    async with opened(file, clock) as store:
        for number in range(50):
            await change(
                store,
                "INSERT INTO tenure_machine (id, host, wall, boot, turn) VALUES (?, '', 0, 0, 0)",
                f"boot {number}",
            )
        clock.shift(1)
        await take(store, "key", "ann")
        rows = await inside(store, lambda db: db.execute("SELECT id FROM tenure_machine"))
        assert rows.fetchall() == [(clock.boot_id,)]


async def test_clocks_of_tests_are_left_alone(file):
    """Each begins at the same instant; and nothing would make a second one wait."""
    for _ in range(2):
        virtual = ManualClock()
        async with opened(file, virtual) as store:
            virtual.shift(100)
            await store.leases.release([await take(store, "key", "ann")])


# As users see it


def test_processes_of_one_machine_share_one_name():
    assert SystemClock().boot_id == SystemClock().boot_id
    assert "+" not in SystemClock().boot_id


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("monotonic           0         0\nboottime            0         0\n", ""),
        ("monotonic           5         0\nboottime            0         0\n", ""),
        ("monotonic           0         0\nboottime       100000         0\n", "100000.0"),
        ("monotonic           0         0\nboottime           -7       500\n", "-7.500"),
        ("", ""),
    ],
    ids=["none", "monotonic", "ahead", "behind", "unknown"],
)
def test_a_clock_of_a_containers_own_has_another_name(
    tmp_path, monkeypatch: pytest.MonkeyPatch, text: str, offset: str
):
    offsets = tmp_path / "timens_offsets"
    offsets.write_text(text)
    monkeypatch.setattr(core_clock, "_OFFSETS", offsets)
    assert SystemClock().boot_id.partition("+")[2] == offset


async def test_an_app_on_a_second_machine_does_not_open(file, clock):
    elsewhere = another(clock)
    async with opened(file, clock) as store:
        lease = await take(store, "key", "ann")
        app = Tenure(f"sqlite:///{file}", namespace="app", clock=elsewhere)
        task = asyncio.ensure_future(app.open())
        await pass_time(elsewhere, clock, seconds=2, until=task)
        await store.leases.renew([lease])
        await pass_time(elsewhere, clock, seconds=2, until=task)
        with pytest.raises(ConfigError, match="use redis:// or postgresql:// for several"):
            await task


def test_silence_is_longer_than_the_beats_and_renewals_of_common_lengths():
    assert SILENCE / 1e6 >= 0.3 * 100


async def test_nothing_is_left_of_machines_that_are_gone(file, clock):
    """Containers with boot clocks of their own may come and go for years."""
    machines = [clock, *(another(clock, boot_id=f"machine {number}") for number in range(4))]
    for here, there in pairwise(machines):
        async with opened(file, here) as store:
            await take(store, "key", here.boot_id, ttl=10)
            async with opened_in_doubt(file, there) as next_one:
                with pytest.raises(StoreUnavailable, match="a short while ago"):
                    await ask(next_one, "key", there.boot_id)
        for machine in machines:
            machine.shift(31)
    async with opened(file, machines[-1]) as store:
        await take(store, "key", "last")
        watches = await inside(store, lambda db: db.execute("SELECT * FROM tenure_watch"))
        assert len(watches.fetchall()) <= 1


@asynccontextmanager
async def opened_in_doubt(file: Path, clock: ManualClock):
    """Open it without waiting until no other machine is there."""
    store = unopened(file, clock)
    await store.open("skip")
    try:
        yield store
    finally:
        await store.close()
