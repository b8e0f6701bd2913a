"""The screen of `tenure top` at many sizes: what it shows, and what a key changes. No terminal."""

from collections.abc import Sequence
from typing import Any

import pytest
from rich.cells import cell_len
from rich.text import Text

from tenure import Tenure
from tenure.app import engine_of
from tenure.cli.top.data import Picture, read
from tenure.cli.top.grid import Cell, Column, Row, cut, drawn
from tenure.cli.top.keys import Keyboard
from tenure.cli.top.panes import PANES, rows_of
from tenure.cli.top.state import JOBS, QUEUES, REPLICAS, TIMERS, Action, Selected, State, press
from tenure.cli.top.view import Look, frame
from tenure.core.worker_info import write_serving
from tenure.testing import Faults, FaultyStore, ManualClock
from tests.cli.clockwork import EVIL, STEERING
from tests.rig.endings import settlement
from tests.rig.wait import wait_until_async

WIDTHS = (60, 80, 200)
HEIGHTS = (8, 24, 50)
LONG = "customer-with-a-name-that-is-longer-than-any-screen-" * 3
WIDE = "順番待ちの行列" * 9
START = State()


async def filled(app: Tenure, number: int = 3) -> None:
    """Put hostile and long names into every list."""

    @app.task(name=f"{EVIL} task")
    async def work(text: str) -> None: ...

    @app.timer(every="1h", name=f"{EVIL}{LONG}"[:150])
    async def sweep() -> None: ...

    for queue in (f"{EVIL}{LONG}"[:150], WIDE, "mail"):
        for _ in range(number):
            await work.using(queue=queue).enqueue("\x1b[2J")
    store = engine_of(app).store
    serving = write_serving(queues=["mail", EVIL, WIDE], slots=8, timers=[], timer_slots=2)
    await store.jobs.beat(["web-1"], ttl=600, meta={"host": EVIL, "pid": "1", **serving})
    await store.jobs.claim("web-1", 1, ["mail"], number)
    await app.pause_queue(WIDE, reason=EVIL)
    for at in range(number):
        await store.leases.acquire(
            f"{at} {EVIL}{WIDE}", holder=f"h{at}", ttl=60, limit=1, meta={"host": EVIL}
        )


@pytest.fixture
async def app(clock: ManualClock) -> Any:
    async with Tenure(FaultyStore("memory://", Faults(), clock=clock)) as app:
        yield app


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def lists(picture: Picture, text: str = "") -> list[list[Row]]:
    return [rows_of(pane, picture, text) for pane in PANES]


def shown(
    picture: Picture | None, state: State = START, size: tuple[int, int] = (80, 24), **look: Any
) -> list[str]:
    """Return the lines of the screen, and check that they fit and steer nothing."""
    rows = [[] for _ in PANES] if picture is None else lists(picture, state.filter)
    lines = frame(Look("/srv/shop.db", picture, **look), state, rows, size)
    assert len(lines) == size[1]
    for line in lines:
        assert line.cell_len <= size[0], line.plain
        assert line.plain.isprintable(), line.plain
        assert not STEERING & set(line.plain)
    return [line.plain for line in lines]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("height", HEIGHTS)
async def test_hostile_and_long_names_fit_every_size(app: Tenure, width: int, height: int):
    await filled(app)
    picture = await read(app)
    for pane in range(len(PANES)):
        text = "\n".join(shown(picture, State(pane=pane), (width, height)))
        for at, kind in enumerate(PANES):
            # A very low terminal shows the chosen list alone.
            assert (f" {at + 1} {kind.title} " in text) == (height > 8 or at == pane)
    shown(picture, State(mode="help"), (width, height))
    shown(picture, State(pending=Action("pause", QUEUES, EVIL + LONG)), (width, height))
    for what in ("cancel", "requeue"):
        shown(picture, State(pending=Action(what, JOBS, picture.jobs[0].id)), (width, height))
    shown(picture, State(message=EVIL + LONG), (width, height))
    shown(picture, State(filter=WIDE, is_typing=True), (width, height))


async def test_what_needs_attention_stands_first(app: Tenure):
    await filled(app)
    title, first, *_ = shown(await read(app), size=(250, 50))
    assert title.startswith("tenure top  /srv/shop.db")
    assert first.startswith("! Queue evil")
    assert "the only live worker does not serve it" in first


async def test_the_queue_that_waits_longest_is_first(app: Tenure, clock: ManualClock):
    @app.task
    async def work() -> None: ...

    await work.using(queue="late").enqueue()
    await clock.advance(60)
    await work.using(queue="early").enqueue()
    assert [row.key for row in lists(await read(app))[QUEUES]] == ["late", "early"]


async def test_an_empty_store_says_so(app: Tenure):
    lines = shown(await read(app))
    assert "Nothing needs attention." in lines
    assert any("no worker has joined: tenure worker MODULE:APP" in line for line in lines)


async def test_wide_terminals_have_two_columns(app: Tenure):
    await filled(app)
    heads = [line for line in shown(await read(app), size=(200, 50)) if " 1 Queues " in line]
    assert " 3 Timers " in heads[0]


async def test_the_last_picture_stays_with_its_age(app: Tenure):
    await filled(app)
    lines = shown(await read(app), trouble="no \x1b[2J answer", age=72.0)
    assert lines[1] == "! Cannot read the store. Shown as it was 1 min 12 s ago."
    assert lines[2] == "  no \\x1b[2J answer"
    assert any(" 1 Queues " in line for line in lines)
    assert shown(None, trouble="away")[1] == "! Cannot read the store."
    assert shown(None)[1] == "Asking the store..."
    opened = State(mode="details", selected={QUEUES: Selected("mail", 0)})
    lines = shown(await read(app), opened, trouble="away", details=[Text("It is empty.")])
    assert lines[1].startswith("! Cannot read the store.")
    assert "It is empty." in lines


async def test_a_long_message_is_shown_whole(app: Tenure):
    await filled(app)
    message = "It was refused, because it is a run of a timer, which has its limits. " * 2
    lines = shown(await read(app), State(message=message + "Trigger the timer."))
    assert " ".join(lines[-3:]) == message + "Trigger the timer."
    assert len(shown(await read(app), State(message="no " * 999))) == 24


async def test_the_keys_are_those_that_fit_the_job(app: Tenure):
    @app.task(retry=0)
    async def charge() -> None: ...

    for _ in range(2):
        await charge.enqueue()
    store = engine_of(app).store
    await store.jobs.beat(["web-1"], ttl=600, meta={})
    running, record = (await store.jobs.claim("web-1", 1, ["default"], 2)).jobs
    end = settlement(id=record.id, fence=record.fence, outcome="failed", history=b"")
    assert await store.jobs.settle([end]) == ["settled"]
    picture = await read(app)
    for job, key in ((running.id, "c cancel"), (record.id, "r requeue")):
        chosen = {JOBS: Selected(job, 0)}
        for state in (State(JOBS, chosen), State(JOBS, chosen, mode="details")):
            keys = shown(picture, state)[-1]
            assert [word for word in ("c cancel", "r requeue") if word in keys] == [key]


async def test_slots_of_timers_are_not_those_of_jobs(app: Tenure, clock: ManualClock):
    @app.timer(every="1m")
    async def sweep() -> None:
        await clock.sleep(600)

    @app.task
    async def work() -> None:
        await clock.sleep(600)

    async with app.worker(concurrency=8, grace=0):
        await clock.advance(61)
        await work.enqueue()
        await clock.advance(1)
        picture = await read(app)
        [line] = [line for line in shown(picture, size=(120, 24)) if " alive " in line]
        assert "  1 of 8  " in line
        assert line.endswith(picture.replicas[0].id[:8])


async def test_the_chosen_row_is_always_in_view(app: Tenure):
    await filled(app, 60)
    picture = await read(app)
    rows = lists(picture)
    state = State(pane=JOBS)
    assert len(rows[JOBS]) == 60
    for _ in range(59):
        state = press(state, "down", rows).state
        chosen = state.selected[JOBS].key[-8:]
        assert any(chosen in line for line in shown(picture, state))
    assert state.selected[JOBS].key == rows[JOBS][-1].key


def row(key: str, *, is_paused: bool = False) -> Row:
    return Row(key, (Cell(key),), is_paused)


ROWS = [
    [row("mail"), row("reports", is_paused=True)],
    [row("job-1"), row("job-2")],
    [row("sweep")],
    [],
    [row("web-1")],
]


def pressed(*keys: str, rows: Sequence[Sequence[Row]] = ROWS, state: State = START) -> State:
    for key in keys:
        step = press(state, key, rows)
        assert step.action is None
        assert not step.is_end
        state = step.state
    return state


@pytest.mark.parametrize(
    ("keys", "action"),
    [
        (["p"], Action("pause", QUEUES, "mail")),
        (["down", "p"], Action("resume", QUEUES, "reports")),
        (["j", "enter", "p"], Action("resume", QUEUES, "reports")),
        (["3", "p"], Action("pause", TIMERS, "sweep")),
        (["tab", "down", "c"], Action("cancel", JOBS, "job-2")),
        (["2", "enter", "r"], Action("requeue", JOBS, "job-1")),
    ],
)
def test_an_action_is_asked_first(keys: list[str], action: Action):
    state = pressed(*keys)
    assert state.pending == action
    assert press(state, "y", ROWS).action == action
    for other in ("n", "enter", "q", "escape", "p"):
        declined = pressed(other, state=state)
        assert (declined.pending, declined.message) == (None, "Nothing was changed.")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["2", "p"], "Only queues and timers can be paused: press 1 or 3."),
        (["c"], "Only jobs can be cancelled: press 2."),
        (["5", "r"], "Only jobs can be requeued: press 2."),
    ],
)
def test_a_key_that_means_nothing_here_says_so(keys: list[str], message: str):
    assert pressed(*keys).message == message


def test_nothing_can_be_done_to_an_empty_list():
    empty: list[list[Row]] = [[] for _ in PANES]
    assert pressed("p", rows=empty).message == "The list is empty."
    assert pressed("down", "enter", "4", "enter", rows=empty).mode == "lists"


def test_a_choice_follows_its_row():
    state = pressed("2", "down")
    moved = [*ROWS]
    moved[JOBS] = [row("job-2"), row("job-3"), row("job-1")]
    assert pressed("c", rows=moved, state=state).pending == Action("cancel", JOBS, "job-2")
    moved[JOBS] = [row("job-3")]
    assert pressed("c", rows=moved, state=state).pending == Action("cancel", JOBS, "job-3")
    # Once it is gone, the row in its place is chosen: the first one may be far away.
    moved[JOBS] = [row("job-3"), row("job-4"), row("job-5")]
    assert pressed("c", rows=moved, state=state).pending == Action("cancel", JOBS, "job-4")


def test_what_was_opened_stays_open_when_its_row_goes():
    state = pressed("2", "down", "enter")
    gone = [*ROWS]
    gone[JOBS] = [row("job-1")]
    assert pressed("r", rows=gone, state=state).pending == Action("requeue", JOBS, "job-2")


def test_panes_turn_round():
    assert pressed("back tab").pane == REPLICAS
    assert pressed("5", "tab").pane == QUEUES


def test_a_filter_takes_any_character():
    state = pressed("/", *"qp?", "backspace", "enter")
    assert (state.filter, state.is_typing, state.pending) == ("qp", False, None)
    assert pressed("escape", state=state).filter == ""
    assert press(state, "q", ROWS).is_end


async def test_a_filter_leaves_what_contains_it(app: Tenure):
    await filled(app)
    picture = await read(app)
    assert [row.key for row in lists(picture, "MAIL")[QUEUES]] == ["mail"]
    assert "nothing passes the filter" in "\n".join(shown(picture, State(filter="no such")))


@pytest.mark.parametrize(
    ("pieces", "keys"),
    [
        ([b"q"], ["q"]),
        ([b"\x1b[A\x1b[B\x1bOA"], ["up", "down", "up"]),
        ([b"\x1b", b"[", b"B"], ["down"]),
        ([b"\t\r\x7f\x1b[Z"], ["tab", "enter", "backspace", "back tab"]),
        ([b"\xc3", b"\xa9"], ["é"]),
        ([b"\x1bOP\x1b[15~\x1b[1;5C"], []),
        ([b"\x1bq"], ["escape", "q"]),
        ([b"\x00\x01"], []),
        ([b"\xff"], ["\ufffd"]),
    ],
)
def test_keys(pieces: list[bytes], keys: list[str]):
    keyboard = Keyboard()
    assert [key for piece in pieces for key in keyboard.feed(piece)] == keys
    assert not keyboard.is_pending


def test_the_escape_key_has_no_rest():
    keyboard = Keyboard()
    assert keyboard.feed(b"\x1b") == []
    assert keyboard.is_pending
    assert keyboard.flush() == ["escape"]
    assert keyboard.flush() == []


@pytest.mark.parametrize("room", range(1, 30))
@pytest.mark.parametrize("text", ["short", LONG, WIDE, "e\u0301" * 40])
@pytest.mark.parametrize("tail", [0, 6])
def test_a_cut_text_fits(text: str, room: int, tail: int):
    short = cut(text, room, tail)
    assert cell_len(short) <= room
    assert short == text or room < 2 or ".." in short


@pytest.mark.parametrize("width", [14, 20, 30, 60, 200])
def test_columns_are_aligned_and_left_out_in_order(width: int):
    columns = [
        Column("NAME", least=6),
        Column("SIZE", right=True),
        Column("NOTE", least=8, rank=2),
        Column("TYPE", rank=1),
    ]
    rows = [
        Row("a", (Cell("a" * 30), Cell("1"), Cell("n" * 20), Cell("x"))),
        Row("b", (Cell("b"), Cell("1,000"), Cell("n"), Cell("y"))),
    ]
    header, lines = drawn(columns, rows, width)
    texts = [line.plain for line in (header, *lines)]
    assert all(len(text) <= width for text in texts)
    present = header.plain.split()
    assert present == [name for name in ("NAME", "SIZE", "NOTE", "TYPE") if name in present]
    assert "NOTE" not in present or "TYPE" in present
    if width >= 20:
        end = header.plain.index("SIZE") + 4
        assert [text[:end][-1] for text in texts] == ["E", "1", "0"]


async def test_failures_of_the_last_hour_are_listed(app: Tenure, clock: ManualClock):
    @app.task
    async def work() -> None: ...

    await work.enqueue()
    jobs = engine_of(app).store.jobs
    await jobs.beat(["web-1"], ttl=60, meta={})
    [record] = (await jobs.claim("web-1", 1, ["default"], 1)).jobs
    await jobs.settle([settlement(id=record.id, fence=record.fence, outcome="failed")])
    await clock.advance(3600)
    assert [row.key for row in lists(await read(app))[JOBS]] == [record.id]
    await clock.advance(1)
    assert lists(await read(app))[JOBS] == []


async def test_a_pause_of_all_timers_is_told_of_each(app: Tenure):
    @app.timer(every="1h")
    async def sweep() -> None: ...

    @app.timer(every="1h")
    async def report() -> None: ...

    async with app.worker():
        await wait_until_async(app.timers)
        await app.timer_handle("report").pause()
        await app.pause_timers()
        cells = {row.key: row.cells[1].text for row in lists(await read(app))[TIMERS]}
    assert cells["sweep"] == "all timers are paused"
    assert cells["report"].startswith("paused")  # a pause of its own outlasts it


async def test_a_megabyte_of_arguments_is_not_kept(app: Tenure):
    await filled(app)
    [*jobs] = (await read(app)).jobs
    assert jobs
    assert all(job.record.payload == b"" for job in jobs)
