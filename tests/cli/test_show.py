"""How tables fit a terminal."""

import io

import pytest
from rich.console import Console

from tenure.cli import screen
from tenure.cli.tables import ShrinkingCell, table


@pytest.mark.parametrize("width", range(60, 160, 3))
def test_a_table_gives_up_middles_and_never_its_right_edge(width: int):
    made = table(
        [
            [
                "x" * 36,
                ShrinkingCell("task" * 6 + "1 end"),
                "waiting",
                ShrinkingCell("about" * 20 + " over."),
            ]
        ],
        ("ID", "TASK", "STATE", "DETAILS"),
    )
    console = Console(file=io.StringIO(), force_terminal=True, no_color=True, width=width)
    screen._print(console, made)
    _, row = console.file.getvalue().splitlines()
    assert row.endswith(" over.")
    assert "k1 end" in row
    assert len(row) == max(width, made.min_width)
