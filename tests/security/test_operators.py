"""Commands that change jobs or locks need an explicit selection, never a default."""

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from tenure.cli.commands import tenure

# Every command, by what it may do without being told what exactly.
LOOKING = {
    *("jobs ls", "jobs show", "jobs tail", "locks ls", "locks show", "queues ls", "replicas ls"),
    *("dashboard", "doctor", "jobs watch", "ping", "top", "why"),
    *("timers ls", "timers next", "timers history", "timers explain"),
}
NAMED = {  # they change one thing, which has to be named
    *("locks release", "queues pause", "queues resume"),
    *("timers pause", "timers resume", "timers trigger", "timers reset"),
}
CHOSEN = {
    "jobs cancel",
    "jobs requeue",
    "jobs delete",
}  # they change what fits, which has to be described
TIDYING = {"prune", "recover", "migrate", "worker"}  # they do what workers do anyway
FREEZING = {"timers freeze", "timers unfreeze"}  # skips ticks, and is there to be quick


def commands(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        full = f"{before} {name}".strip()
        if isinstance(command, click.Group) and command.commands:
            yield from commands(command, full)
        else:
            yield full, command


def test_every_command_is_known_here():
    classified = LOOKING | NAMED | CHOSEN | TIDYING | FREEZING
    assert {name for name, _ in commands(tenure)} == classified


@pytest.mark.parametrize("name", sorted(NAMED | CHOSEN))
def test_a_command_without_a_selection_changes_nothing(name: str, tmp_path):
    runner = CliRunner()
    url = f"sqlite:///{tmp_path}/tenure.db"
    assert runner.invoke(tenure, ["migrate", "--url", url]).exit_code == 0
    result = runner.invoke(tenure, [*name.split(), "--url", url])
    assert result.exit_code == 2
    assert "Error" in result.output


@pytest.mark.parametrize("name", sorted(CHOSEN))
@pytest.mark.parametrize("option", [("--task", ""), ("--queue", ""), ("--tag", ""), ("--yes",)])
def test_an_empty_filter_selects_no_job_rather_than_all(name: str, option, tmp_path):
    runner = CliRunner()
    url = f"sqlite:///{tmp_path}/tenure.db"
    assert runner.invoke(tenure, ["migrate", "--url", url]).exit_code == 0
    result = runner.invoke(tenure, [*name.split(), "--url", url, *option])
    assert result.exit_code == 2, result.output
