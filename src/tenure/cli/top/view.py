"""The screen of `tenure top`: a picture and what was chosen, as lines. Pure.

The answer stands first: what needs attention, in words. Below it the five lists share the height;
the chosen one gets what the others leave. A wide terminal has two columns of lists.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from rich.cells import cell_len
from rich.text import Text

from tenure.cli.text import duration, safe
from tenure.cli.top.actions import question
from tenure.cli.top.data import Picture
from tenure.cli.top.grid import Row, cut, drawn
from tenure.cli.top.panes import PANES
from tenure.cli.top.state import JOBS, LOCKS, QUEUES, REPLICAS, TIMERS, State, selected_at
from tenure.core.jobs.view import as_datetime

__all__ = ["Look", "attention_lines", "fitted", "frame"]

_WIDE: Final = 170
_LOW: Final = 10
"""With less room than a heading and a row for each, only the chosen list is shown."""
_ROOMY: Final = 26
"""From here on there is an empty line between two lists."""
_BETWEEN: Final = 3
_MESSAGE_LINES: Final = 3
_TROUBLE_LINES: Final = 4
_STYLES: Final = {"error": "bold red", "warning": "yellow", "note": ""}
_MARKS: Final = {"error": "!", "warning": "!", "note": "-"}
_ALWAYS: Final = (("q", "quit"), ("?", "help"))
_IN_LISTS: Final = (("tab", "next list"), ("enter", "look into"))
_IN_DETAILS: Final = (("escape", "back"),)
_HERE: Final = {
    QUEUES: (("p", "pause or resume"),),
    JOBS: (("c", "cancel"), ("r", "requeue")),
    TIMERS: (("p", "pause or resume"),),
}
_HELP: Final = """\
Lists
  tab, 1 to 5    choose a list
  up, down, j, k choose a row; also page up, home, end
  enter          look into it: why, progress, attempts
  escape         go back
  /              show only rows that contain a text
  escape         show all rows again

Actions, which ask first
  p              pause or resume the queue or timer
  c              cancel the job; if it runs, ask it to stop
  r              requeue the failed job

  ?  q           this help; quit

Jobs are those that run, and those that failed within the
hour. Failed runs of a timer are with the timer.
'tenure jobs ls' lists all jobs.
"""


class Look(NamedTuple):
    """What is known about the store, and how well."""

    title: str
    """Which store it is."""
    picture: Picture | None
    trouble: str = ""
    """Why the store cannot be read."""
    age: float = 0.0
    """How many seconds ago the picture was taken."""
    details: Sequence[Text] = ()
    """The lines about what was opened."""


def frame(
    look: Look, state: State, rows: Sequence[Sequence[Row]], size: tuple[int, int]
) -> list[Text]:
    """Return as many lines as the terminal has at most, none of them too wide.

    `rows` has the rows of each list that pass the filter, `size` the columns and lines.
    """
    width, height = max(size[0], 20), max(size[1], 4)
    lines = [_title(look, width)]
    room = height - 2  # without the title and the keys
    if state.mode == "help":
        body = [fitted(Text(line), width) for line in _HELP.splitlines()]
        body = _window(body, state.scroll, room)
    elif state.mode == "details":
        head = _trouble(look, width)
        body = head + _window([*look.details], state.scroll, room - len(head))
    else:
        head = _head(look, width, max(1, min(6, room // 5)))
        head += [Text()] if room >= _ROOMY else []
        body = head + _lists(look, state, rows, width, room - len(head))
    bottom = _bottom(look, state, rows, width)
    lines += body[:room]
    lines += [Text()] * (height - 1 - len(lines))
    # A message that needs more than one line covers the end of the lists.
    return [*lines[: height - len(bottom)], *bottom]


def fitted(line: Text, width: int) -> Text:
    """Return a line that ends with ".." if it was too wide."""
    if line.cell_len <= width:
        return line
    line = line.copy()
    line.truncate(max(0, width - 2))
    line.append("..")
    return line


def attention_lines(lines: Sequence[dict[str, Any]], width: int, most: int) -> list[Text]:
    """Return what needs attention, with the next step where there is room."""
    if not lines:
        return [Text("Nothing needs attention.", "bold")]
    shown = lines if len(lines) <= most else lines[: max(1, most - 1)]
    texts = []
    for line in shown:
        text = Text(f"{_MARKS[line['level']]} {safe(line['text'])}", _STYLES[line["level"]])
        if line["next"] and text.cell_len + cell_len(line["next"]) + 2 <= width:
            text.append(f"  {safe(line['next'])}", "not bold default")
        texts.append(fitted(text, width))
    if most > 1 and (rest := len(lines) - len(shown)):
        texts.append(Text(f"  and {rest} more: enter on a row says why", "dim"))
    return texts


def _title(look: Look, width: int) -> Text:
    left = Text.assemble(("tenure top", "bold"), f"  {safe(look.title)}")
    clock = "" if look.picture is None else f"{as_datetime(look.picture.now):%H:%M:%S} UTC"
    left = fitted(left, max(10, width - cell_len(clock) - 2))
    left.append(" " * (width - left.cell_len - cell_len(clock)))
    return fitted(left.append(clock, "dim"), width)


def _trouble(look: Look, width: int) -> list[Text]:
    """Return that the store cannot be read, and how old the picture is."""
    if not look.trouble:
        return []
    age = "" if look.picture is None else f" Shown as it was {duration(look.age)} ago."
    first = Text(f"! Cannot read the store.{age}", "bold red")
    # Without a picture there is room for all of it.
    most = 1 if look.picture is not None else _TROUBLE_LINES
    reason = _wrapped(look.trouble, width - 2, most)
    return [fitted(first, width), *(fitted(Text(f"  {line}", "dim"), width) for line in reason)]


def _head(look: Look, width: int, most: int) -> list[Text]:
    lines = _trouble(look, width)
    if look.picture is None:
        return lines or [Text("Asking the store...", "dim")]
    return [*lines, *attention_lines(look.picture.attention, width, most)]


def _lists(
    look: Look, state: State, rows: Sequence[Sequence[Row]], width: int, room: int
) -> list[Text]:
    if look.picture is None:
        return []
    if room < _LOW:
        return _column([state.pane], state, rows, width, room)
    if width < _WIDE:
        return _column(range(len(PANES)), state, rows, width, room)
    left_width = (width - _BETWEEN) // 2
    left = _column([QUEUES, JOBS, REPLICAS], state, rows, left_width, room)
    right = _column([TIMERS, LOCKS], state, rows, width - _BETWEEN - left_width, room)
    lines = []
    for at in range(max(len(left), len(right))):
        line = left[at].copy() if at < len(left) else Text()
        line.append(" " * (left_width - line.cell_len + _BETWEEN))
        lines.append(line.append_text(right[at]) if at < len(right) else line)
    return lines


def _column(
    panes: Sequence[int], state: State, rows: Sequence[Sequence[Row]], width: int, room: int
) -> list[Text]:
    shares = _shares(
        [len(rows[pane]) for pane in panes], [pane == state.pane for pane in panes], room
    )
    lines: list[Text] = []
    for pane, share in zip(panes, shares, strict=True):
        lines += _pane(pane, state, rows[pane], width, share)
        if room >= _ROOMY:
            lines.append(Text())
    return lines[:room]


def _shares(counts: Sequence[int], chosen: Sequence[bool], room: int) -> list[int]:
    """Return how many rows of each list are shown: in turn, the chosen one twice as many."""
    # A heading, and a row if there is one; then an empty line between lists.
    gaps = len(counts) - 1 if room >= _ROOMY else 0
    room -= sum(2 if count else 1 for count in counts) + gaps
    shares = [min(1, count) for count in counts]
    while room > 0:
        hungry = [at for at, count in enumerate(counts) if shares[at] < count]
        if not hungry:
            break
        for at in [*hungry, *(at for at in hungry if chosen[at])]:
            if room > 0 and shares[at] < counts[at]:
                shares[at] += 1
                room -= 1
    return shares


def _pane(pane: int, state: State, rows: Sequence[Row], width: int, share: int) -> list[Text]:
    kind, is_chosen = PANES[pane], pane == state.pane
    name = f" {pane + 1} {kind.title} "
    if not rows:
        heading = Text(name, _heading(is_chosen=is_chosen))
        empty = "nothing passes the filter" if state.filter else kind.empty
        return [fitted(heading.append(f" {empty}", "not bold not reverse dim"), width)]
    shown = f"{share:,} of {len(rows):,}" if share < len(rows) else f"{len(rows):,}"
    header, lines = drawn(kind.columns, rows, width, f"{name} {shown}")
    header.stylize("not dim " + _heading(is_chosen=is_chosen), 0, len(name))
    at = selected_at(state, pane, rows)
    first = max(0, min(at - share // 2, len(rows) - share))
    lines = lines[first : first + share]
    if is_chosen and 0 <= at - first < len(lines):
        line = lines[at - first]
        line.append(" " * (width - line.cell_len))
        line.stylize("reverse")
    return [header, *lines]


def _heading(*, is_chosen: bool) -> str:
    return "bold reverse" if is_chosen else "bold"


def _window(lines: Sequence[Text], scroll: int, room: int) -> list[Text]:
    first = max(0, min(scroll, len(lines) - room))
    return [*lines[first : first + room]]


def _bottom(look: Look, state: State, rows: Sequence[Sequence[Row]], width: int) -> list[Text]:
    """Return the last lines: a question, a filter, what has happened, or the keys."""
    if state.pending is not None:
        text = cut(question(state.pending, look.picture), width - 7, 4)
        return [Text.assemble((text, "bold yellow"), (" [y/N]", "bold"))]
    if state.is_typing:
        typed = _end(state.filter, width - len("Filter: ") - 1)
        return [Text.assemble(("Filter: ", "bold"), typed, (" ", "reverse"))]
    if state.message:
        wrapped = _wrapped(state.message, width, _MESSAGE_LINES)
        return [fitted(Text(line, "bold"), width) for line in wrapped]
    return [_keys(state, _actions(look.picture, state, rows), width)]


def _actions(
    picture: Picture | None, state: State, rows: Sequence[Sequence[Row]]
) -> Sequence[tuple[str, str]]:
    """Return the keys that do something to what is chosen."""
    keys = _HERE.get(state.pane, ())
    if state.pane != JOBS or picture is None:
        return keys
    if state.mode == "details":
        chosen = state.selected[state.pane].key
    else:
        at = selected_at(state, JOBS, rows[JOBS])
        chosen = rows[JOBS][at].key if rows[JOBS] else ""
    job = next((job for job in picture.jobs if job.id == chosen), None)
    if job is None:
        return keys
    unfit = "r" if job.state in ("running", "waiting") else "c"
    return [(key, word) for key, word in keys if key != unfit]


def _wrapped(text: str, width: int, most: int) -> list[str]:
    return textwrap.wrap(safe(text), width, max_lines=most, placeholder="..")


def _end(text: str, room: int) -> str:
    """Return as much of the end of a text as fits."""
    while cell_len(text) > room:
        text = text[1:]
    return text


def _keys(state: State, actions: Sequence[tuple[str, str]], width: int) -> Text:
    """Return what can be pressed, as far as there is room."""
    line = Text()
    if state.filter and state.mode == "lists":
        line.append(f"filter {cut(safe(state.filter), width // 3)}", "yellow")
        line.append(", ").append("escape", "bold").append(" shows all  ")
    keys: tuple[tuple[str, str], ...] = _IN_LISTS if state.mode == "lists" else _IN_DETAILS
    if state.mode != "help":
        keys = (*keys, *actions)
    if state.mode == "lists":
        keys = (*keys, ("/", "filter"))
    for key, word in (*_ALWAYS, *keys):
        if line.cell_len + len(key) + len(word) + 1 <= width:
            line.append(key, "bold").append(f" {word}  ")
    line.rstrip()
    return fitted(line, width)
