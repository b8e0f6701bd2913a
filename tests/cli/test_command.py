"""What all commands have in common: which store, how it looks, how it fails."""

import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import tenure
from tenure.cli import commands
from tests.cli.conftest import Run
from tests.cli.terminal import on_a_terminal

GROUPS = ([], ["jobs"], ["locks"], ["queues"], ["replicas"], ["timers"])
COMMANDS = (
    ["worker"],
    ["ping"],
    ["jobs", "ls"],
    ["dashboard"],
    ["jobs", "show"],
    ["jobs", "tail"],
    ["jobs", "watch"],
    ["jobs", "cancel"],
    ["jobs", "delete"],
    ["jobs", "requeue"],
    ["queues", "ls"],
    ["queues", "pause"],
    ["queues", "resume"],
    ["replicas", "ls"],
    ["recover"],
    ["prune"],
    ["locks", "ls"],
    ["locks", "show"],
    ["locks", "release"],
    ["timers", "ls"],
    ["timers", "next"],
    ["timers", "history"],
    ["timers", "pause"],
    ["timers", "resume"],
    ["timers", "trigger"],
    ["timers", "reset"],
    ["timers", "freeze"],
    ["timers", "unfreeze"],
    ["timers", "explain"],
    ["top"],
    ["why"],
    ["migrate"],
    ["doctor"],
)
ROOT = Path(__file__).parents[2]


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, **environment},
        timeout=30,
        check=False,
    )


def test_the_version(shell: Run):
    assert shell("--version").out == f"tenure {tenure.__version__}\n"


def test_no_command_is_left_out():
    def below(command: click.Command, *path: str) -> Iterator[list[str]]:
        yield [*path]
        for name, sub in getattr(command, "commands", {}).items():
            yield from below(sub, *path, name)

    assert sorted(below(commands.tenure)) == sorted([*GROUPS, *COMMANDS])


@pytest.mark.parametrize("command", [*GROUPS, *COMMANDS], ids=" ".join)
def test_every_command_explains_itself_with_examples(cli: Run, command: list[str]):
    result = cli(*command, "--help")
    assert result.code == 0
    assert re.search(r"Examples?:\n +(TENURE_URL=\S+ )?tenure ", result.out)
    assert result.out == cli(*command, "-h").out
    assert max(map(len, result.out.splitlines())) <= 100


# The app says which store a worker is on, and a worker is asked over its socket.
WITHOUT_A_STORE = (["worker"], ["ping"])


@pytest.mark.parametrize(
    "command", [command for command in COMMANDS if command not in WITHOUT_A_STORE], ids=" ".join
)
def test_every_command_takes_the_same_options(cli: Run, command: list[str]):
    result = cli(*command, "--help").out
    assert {"--url", "--namespace", "--json"} <= set(re.findall(r"--\w+", result))


def test_the_console_script_is_this_command():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"tenure": "tenure.cli.main:entry"}
    installed = importlib.metadata.entry_points(group="console_scripts", name="tenure")
    assert {point.value for point in installed} <= {"tenure.cli.main:entry"}


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_the_extra_one_line_says_how_to_get_it(missing: str):
    code = (
        f"import sys; sys.modules[{missing!r}] = None; from tenure.cli.main import entry; entry()"
    )
    done = python(code)
    assert done.returncode == 2
    assert done.stderr == "tenure: the command line needs an extra: pip install 'tenure[cli]'\n"
    assert done.stdout == ""


def test_another_missing_module_is_not_hidden():
    code = "import sys; sys.modules['asyncio'] = None; from tenure.cli.main import entry; entry()"
    assert "ModuleNotFoundError" in python(code).stderr


def test_importing_tenure_imports_no_extra():
    code = (
        "import sys, tenure, tenure.blocking, tenure.testing, tenure.cli; "
        "print(*{'redis', 'asyncpg', 'click', 'rich', 'starlette'} & set(sys.modules))"
    )
    done = python(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")


def test_where_the_store_is_comes_from_the_option_the_environment_or_the_default(
    cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def announced(*arguments: str) -> str:
        result = cli(*arguments, "migrate")
        assert result.code == 0
        return result.err.splitlines()[0]

    assert announced() == f"{tmp_path / 'tenure.db'} (from default), namespace tenure"
    monkeypatch.setenv("TENURE_URL", "memory://")
    monkeypatch.setenv("TENURE_NAMESPACE", "billing")
    assert announced() == "memory:// (from $TENURE_URL), namespace billing"
    from_options = announced("--url", "memory://x", "--namespace", "ns")
    assert from_options == "memory://x (from --url), namespace ns"
    monkeypatch.setenv("TENURE_URL", "")
    assert "(from default)" in announced()


def test_the_default_is_that_of_the_library(cli: Run):
    document = cli("migrate", "--json").json
    assert repr(tenure.Tenure()) == f"Tenure({document['store']!r}, namespace='tenure')"


def test_options_after_the_command_win(cli: Run):
    document = cli("--url", "memory://a", "migrate", "--url", "memory://b", "--json").json
    assert document["store"] == "memory://b"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://host/db", "is not a store URL. Use sqlite:///file.db"),
        ("redis://:secret@127.0.0.1:1/0", "cannot be reached"),
        ("postgresql://me:secret@127.0.0.1:1/db", "cannot be used now"),
        ("sqlite:///missing/tenure.db", "does not exist. Create it"),
    ],
)
@pytest.mark.parametrize(
    "command",
    [
        ["locks", "ls"],
        ["migrate"],
        ["migrate", "--check"],
        ["jobs", "ls"],
        ["jobs", "cancel", "01890a5d-ac96-774b-bcce-000000000000"],
        ["queues", "ls"],
        ["queues", "pause", "mail"],
        ["replicas", "ls"],
        ["recover"],
        ["prune"],
    ],
    ids=" ".join,
)
def test_an_error_is_one_line_with_advice(cli: Run, url: str, words: str, command: list[str]):
    result = cli("--url", url, *command)
    assert result.code == 2
    assert result.out == ""
    last = result.err.splitlines()[-1]
    assert last.startswith("Error: ")
    assert words in last
    assert last.count(". ") >= 1
    assert "Traceback" not in result.err
    assert "secret" not in result.err


def test_an_error_as_json(shell: Run):
    result = shell("--url", "mysql://me:secret@host/db", "locks", "ls", "--json")
    assert result.code == 2
    assert result.json["kind"] == "ConfigError"
    assert "mysql://me:***@host/db" in result.json["error"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["locks", "release", "x"], "--fence N, or --all"),
        (["locks", "release"], "NAME"),
        (["locks", "ls", "--limit", "many"], "--limit"),
        (["locks", "ls", "--nonsense"], "--nonsense"),
        (["lock", "ls"], "lock"),
        (["jobs", "cancel"], "Select jobs"),
        (["jobs", "requeue", "--yes"], "Select jobs"),
        (["jobs", "requeue", "--task", "x"], "add --yes"),
        (["jobs", "requeue", "b302099a8057", "--task", "x"], "not both"),
        (["jobs", "requeue", "--state", "running"], "--state"),
        (["jobs", "ls", "--task", ""], "--task"),
        (["jobs", "ls", "--cursor", "x"], "--cursor"),
        (["jobs", "tail", "--interval", "1ms"], "--interval"),
        (["jobs", "ls", "--state", "lost"], "--state"),
        (["queues", "pause", "mail", "--for", "ever"], "--for"),
        (["queues", "stop", "mail"], "stop"),
        (["recover", "--loss-budget", "-1"], "--loss-budget"),
        (["--nonsense", "locks", "ls"], "--nonsense"),
    ],
    ids=" ".join,
)
def test_a_senseless_command_line_as_json(cli: Run, arguments: list[str], words: str):
    result = cli(*arguments, "--json")
    assert result.code == 2
    assert result.json["kind"] == "UsageError"
    assert words in result.json["error"]
    plain = cli(*arguments)
    assert (plain.code, plain.out) == (2, "")
    assert words in plain.err


def test_a_name_like_an_option_asks_for_no_json(cli: Run):
    result = cli("--url", "memory://", "locks", "show", "--", "--json")
    assert (result.code, result.out) == (0, "--json is not held, and no process waits for it.\n")


def test_a_wrong_name_is_refused(cli: Run):
    result = cli("--url", "memory://", "locks", "show", "x" * 201)
    assert result.code == 2
    assert "at most 200" in result.err


def test_a_terminal_gets_colours_unless_it_wants_none():
    seen = on_a_terminal("--url", "memory://", "doctor")
    assert colours(seen)
    assert max(map(len, re.sub(r"\x1b\[[\d;]*m", "", seen).splitlines())) <= 80
    assert not colours(on_a_terminal("--url", "memory://", "doctor", NO_COLOR="1"))


def colours(seen: str) -> list[str]:
    codes = re.findall(r"\x1b\[([\d;]*)m", seen)
    return [code for code in codes if set(code.split(";")) & {str(30 + hue) for hue in range(8)}]


def test_a_pipe_gets_a_line_for_each_finding(shell: Run, cli: Run):
    findings = cli("--url", "memory://", "doctor", "--json").json["findings"]
    lines = shell("--url", "memory://", "doctor").out.splitlines()
    assert len(lines) == len(findings) + 2
    assert max(map(len, lines)) > 100
    assert all(line == line.rstrip() for line in lines)
    assert "\x1b" not in "".join(lines)


def test_what_a_locale_cannot_show_does_not_end_the_command(shell: Run, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    result = shell("--url", "sqlite:///größe.db", "migrate")
    assert result.code == 0
    assert r"gr\xf6\xdfe.db" in result.err


def test_the_guide_has_every_command_and_option(cli: Run):
    page = (ROOT / "docs" / "cli.md").read_text("utf-8")
    for command in COMMANDS:
        assert f"\n## tenure {' '.join(command)}\n" in page
        options = set(re.findall(r"^ +(--[\w-]+)", cli(*command, "--help").out, re.MULTILINE))
        assert {
            option for option in options if f"{option} " not in page and f"{option}`" not in page
        } == set()


@pytest.mark.parametrize("group", ["jobs", "queues", "timers", "replicas", "locks"])
def test_a_group_alone_lists(cli: Run, tmp_path: Path, group: str):
    url = f"sqlite:///{tmp_path}/tenure.db"
    with tenure.blocking.Tenure(url):
        pass
    assert cli("--url", url, group).out == cli("--url", url, group, "ls").out != ""
    assert cli(group, "--url", url, "--json").json == cli(group, "ls", "--url", url, "--json").json
    assert cli(group, "--url", url, "nothing").code == 2
