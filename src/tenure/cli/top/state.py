"""What is chosen, typed and asked in `tenure top`, and how a key changes it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from tenure.cli.top.grid import Row
from tenure.cli.top.panes import PANES

__all__ = ["Action", "Mode", "Selected", "State", "Step", "press", "selected_at"]

Mode: TypeAlias = Literal["lists", "details", "help"]
Verb: TypeAlias = Literal["pause", "resume", "cancel", "requeue"]

_PAGE: Final = 10
_FILTER_MAX: Final = 200
QUEUES, JOBS, TIMERS, LOCKS, REPLICAS = range(5)
_MOVES: Final = {
    "up": -1,
    "k": -1,
    "down": 1,
    "j": 1,
    "page up": -_PAGE,
    "page down": _PAGE,
    "home": -1_000_000,
    "g": -1_000_000,
    "end": 1_000_000,
    "G": 1_000_000,
}
_NUMBERS: Final = tuple(str(number) for number in range(1, len(PANES) + 1))
_DONE: Final = {"c": "cancelled", "r": "requeued"}
_TURNS: Final = {"tab": 1, "right": 1, "l": 1, "back tab": -1, "left": -1, "h": -1}


class Action(NamedTuple):
    """What to do to something in the store, once it is confirmed."""

    what: Verb
    pane: int
    name: str


class Selected(NamedTuple):
    """A row that was chosen: by its key, and where it was in case it goes away."""

    key: str
    at: int


@dataclass(frozen=True)
class State:
    """What the keys have changed."""

    pane: int = QUEUES
    selected: Mapping[int, Selected] = field(default_factory=dict)
    mode: Mode = "lists"
    scroll: int = 0
    filter: str = ""
    is_typing: bool = False
    pending: Action | None = None
    message: str = ""


class Step(NamedTuple):
    """The state after a key, and what else it means."""

    state: State
    action: Action | None = None
    is_end: bool = False


def selected_at(state: State, pane: int, rows: Sequence[Row]) -> int:
    """Return which row is chosen: the same thing as before, wherever it is by now."""
    chosen = state.selected.get(pane)
    if chosen is None or not rows:
        return 0
    for at, row in enumerate(rows):
        if row.key == chosen.key:
            return at
    return min(chosen.at, len(rows) - 1)


def press(state: State, key: str, lists: Sequence[Sequence[Row]]) -> Step:
    """Return what a key does. `lists` has the rows of each pane that pass the filter."""
    if state.pending is not None:
        return _answered(state, key)
    if state.is_typing:
        return Step(_typed(state, key))
    state = replace(state, message="")
    if key == "q":
        return Step(state, is_end=True)
    return Step(_changed(state, key, lists))


def _changed(state: State, key: str, lists: Sequence[Sequence[Row]]) -> State:
    if key == "?":
        return replace(state, mode="lists" if state.mode == "help" else "help", scroll=0)
    if state.mode == "help":
        return _scrolled(state, key)
    row = _chosen(state, lists)
    if key in {"p", "c", "r"}:
        return _asking(state, key, row)
    if state.mode == "details":
        return _scrolled(state, key)
    return _moved(state, key, lists[state.pane], row)


def _chosen(state: State, lists: Sequence[Sequence[Row]]) -> Row | None:
    rows = lists[state.pane]
    if state.mode == "details":
        # The details stay with what was opened, whether it is still listed or not.
        key = state.selected[state.pane].key
        return next((row for row in rows if row.key == key), Row(key, ()))
    return rows[selected_at(state, state.pane, rows)] if rows else None


def _answered(state: State, key: str) -> Step:
    pending, state = state.pending, replace(state, pending=None)
    if key in {"y", "Y"}:
        return Step(state, pending)
    return Step(replace(state, message="Nothing was changed."))


def _typed(state: State, key: str) -> State:
    match key:
        case "enter":
            return replace(state, is_typing=False)
        case "escape":
            return replace(state, is_typing=False, filter="")
        case "backspace":
            return replace(state, filter=state.filter[:-1])
        case "clear":
            return replace(state, filter="")
    if len(key) == 1 and len(state.filter) < _FILTER_MAX:
        return replace(state, filter=state.filter + key)
    return state


def _asking(state: State, key: str, row: Row | None) -> State:
    if key == "p" and state.pane not in {QUEUES, TIMERS}:
        return replace(state, message="Only queues and timers can be paused: press 1 or 3.")
    if key != "p" and state.pane != JOBS:
        return replace(state, message=f"Only jobs can be {_DONE[key]}: press 2.")
    if row is None:
        return replace(state, message="The list is empty.")
    # What the question says is what happens, even if another operator is faster.
    pause: Verb = "resume" if row.is_paused else "pause"
    verb: Verb = pause if key == "p" else "cancel" if key == "c" else "requeue"
    return replace(state, pending=Action(verb, state.pane, row.key))


def _scrolled(state: State, key: str) -> State:
    if key in {"escape", "enter", "backspace", "left", "h"}:
        return replace(state, mode="lists", scroll=0)
    return replace(state, scroll=max(0, state.scroll + _MOVES.get(key, 0)))


def _moved(state: State, key: str, rows: Sequence[Row], row: Row | None) -> State:
    at = selected_at(state, state.pane, rows)
    if key in _MOVES and rows:
        at = max(0, min(at + _MOVES[key], len(rows) - 1))
        return _select(state, rows[at].key, at)
    if key in _TURNS:
        return replace(state, pane=(state.pane + _TURNS[key]) % len(PANES))
    if key in _NUMBERS:
        return replace(state, pane=_NUMBERS.index(key))
    if key == "enter" and row is not None:
        return replace(_select(state, row.key, at), mode="details", scroll=0)
    changes: dict[str, Any] = {"/": {"is_typing": True}, "escape": {"filter": ""}}
    return replace(state, **changes.get(key, {}))


def _select(state: State, key: str, at: int) -> State:
    return replace(state, selected={**state.selected, state.pane: Selected(key, at)})
