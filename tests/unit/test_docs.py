"""README and docs are right: code runs, links lead somewhere, lists are complete."""

import ast
import asyncio
import dataclasses
import inspect
import json
import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import CodeType
from typing import NamedTuple
from urllib.parse import urlsplit

import click
import pytest
from click.testing import CliRunner

import tenure
from tenure import errors, http, logs, testing
from tenure.cli.commands import tenure as cli
from tenure.core.jobs import states
from tenure.http.problems import KINDS
from tenure.observe import events
from tenure.stores.contract import Store

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
EACH_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


class Block(NamedTuple):
    """What stands between ```python and ```, and the line where it begins."""

    page: str
    line: int
    code: str

    def compiled(self) -> CodeType:
        # Moved to its place in the page, so that a traceback points there.
        code = "\n" * (self.line - 1) + self.code
        return compile(code, self.page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text("utf-8")
        for match in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, match.start()) + 2
            yield Block(str(page.relative_to(ROOT)), line, match[1])


async def run_fragment(code: CodeType) -> None:
    """Run code amid what a reader has anyway: an open app, a table, functions to call."""

    async def charge(*, fence: int) -> None:
        assert fence > 0

    async def calculate(day: str = "today") -> str:
        return f"calculated {day}"

    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE account (id, balance, fence)")
        db.execute("INSERT INTO account VALUES (7, 100, 0)")
        async with tenure.Tenure("memory://") as app:
            run = eval(code, {"app": app, "db": db, "charge": charge, "calculate": calculate})
            if run is not None:
                await run


def write_files(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let blocks import those of the same page that begin with the name of a file."""
    for block in blocks():
        named = re.match(r"# ([\w/]+\.py)\n", block.code)
        if block.page == page and named:
            file = folder / named[1]
            file.parent.mkdir(exist_ok=True)
            file.write_text(block.code, "utf-8")
            module = named[1].removesuffix(".py").replace("/", ".")
            for name in (module, module.partition(".")[0]):
                # It is forgotten after the test, which has it in a folder of its own.
                monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]
                monkeypatch.delitem(sys.modules, name)
            monkeypatch.syspath_prepend(folder)


@pytest.mark.parametrize("block", [*blocks()], ids=lambda block: f"{block.page}:{block.line}")
def test_the_code_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TENURE_URL", raising=False)
    write_files(block.page, tmp_path, monkeypatch)
    code = block.compiled()
    whole_program = "Tenure" in code.co_names and not code.co_flags & inspect.CO_COROUTINE
    if whole_program:
        exec(code, {"__name__": "__main__"})
    else:
        asyncio.run(run_fragment(code))


def test_files_that_workers_import_run_nothing():
    """A file with tasks is a worker's as well, unless its store is that of one process alone."""
    wrong = []
    for block in blocks():
        tree = ast.parse(block.code)
        has_handlers = any(getattr(node, "decorator_list", ()) for node in tree.body)
        runs = any("asyncio.run(" in ast.unparse(node) for node in tree.body if is_call(node))
        if has_handlers and runs and "memory://" not in block.code:
            wrong.append(f"{block.page}:{block.line}")
    assert wrong == []


def is_call(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)


def test_own_connections_to_the_store_leave_its_log_alone():
    """What `doctor` advises for older versions of SQLite stands where it is copied from."""
    own = [block for block in blocks() if 'sqlite3.connect("service.db")' in block.code]
    assert {block.page for block in own} == {"docs/locks.md", "docs/jobs.md"}
    assert all('.execute("PRAGMA wal_autocheckpoint = 0")' in block.code for block in own)


def test_there_is_code_to_run():
    assert {"README.md", "docs/locks.md", "docs/jobs.md", "docs/http.md"} <= {
        block.page for block in blocks()
    }


@EACH_PAGE
def test_links_lead_somewhere(page: Path):
    for name, anchor in re.findall(r"\]\((?!\w+:)([^)#]*)#?([^)]*)\)", page.read_text("utf-8")):
        target = page.parent / name if name else page
        assert target.exists(), name
        assert not anchor or anchor in anchors(target)


def anchors(page: Path) -> set[str]:
    """Return what the headings of a page are called in links to them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


@EACH_PAGE
def test_files_that_are_named_exist(page: Path):
    pattern = r"`((?:docs|examples|scripts|src|tests)/[\w./-]*\.\w+)"
    named = re.findall(pattern, page.read_text("utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


@EACH_PAGE
def test_targets_that_are_named_exist(page: Path):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert set(re.findall(r"`make ([a-z-]+)", page.read_text("utf-8"))) <= set(targets)


def test_the_table_of_test_folders_is_complete():
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    listed = re.findall(r"^\| `tests/(\w+)` \| ", page, re.MULTILINE)
    tests = ROOT / "tests"
    folders = {path.relative_to(tests).parts[0] for path in tests.rglob("test_*.py")}
    assert sorted(listed) == sorted(folders)


def test_the_guides_know_every_error_and_event():
    kinds = [kind.__name__ for kind in events.Event.__args__]
    assert [name for name in (*errors.__all__, *kinds) if name not in first_cells()] == []


GUIDES = ("locks.md", "jobs.md", "timers.md", "http.md", "http-client.md", "monitoring.md")


def guides() -> str:
    return "".join((ROOT / "docs" / page).read_text("utf-8") for page in GUIDES)


def first_cells() -> set[str]:
    """Return the names in the first column of the guides' tables."""
    cells = re.findall(r"^\| (`[^|]*)", guides(), re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def test_the_guides_know_every_public_name():
    names = (*tenure.__all__, *testing.__all__, *http.__all__, *logs.__all__)
    assert [name for name in names if not re.search(rf"\b{name}\b", guides())] == []


def test_the_picture_of_states_is_drawn_from_the_table():
    page = (ROOT / "docs/jobs.md").read_text("utf-8")
    drawn = page.partition("<!-- states -->")[2].partition("<!-- /states -->")[0]
    assert drawn == f"\n```mermaid\n{states.diagram()}\n```\n"


def test_the_table_of_settings_is_complete():
    page = (ROOT / "docs/jobs.md").read_text("utf-8")
    arguments = inspect.signature(tenure.Tenure).parameters
    assert set(re.findall(r"^\| `(\w+)` \| ", page.partition("## Settings")[2], re.MULTILINE)) >= {
        *arguments
    }


def http_guide(heading: str) -> str:
    """Return one section of the guide to HTTP."""
    page = (ROOT / "docs/http.md").read_text("utf-8")
    return page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def test_the_table_of_problems_is_that_of_the_code():
    pattern = r"^\| `([\w-]+)` \| (\d+) \| ([^|]*) \| [^|]+ \|$"
    rows = re.findall(pattern, http_guide("Problems"), re.MULTILINE)
    assert rows == [(name, str(kind.status), kind.title) for name, kind in KINDS.items()]


def test_the_job_that_is_shown_has_every_member():
    shown = json.loads(re.search(r"```json\n(.*?)```", http_guide("A first minute"), re.DOTALL)[1])
    assert [*shown] == [field.name for field in dataclasses.fields(http.JobResource)]


def test_the_tables_of_http_options_are_complete():
    router, endpoint = http_guide("Options").split("| of an endpoint |")
    for table, fn in ((router, http.AsyncRouter), (endpoint, http.AsyncRouter.endpoint)):
        options = {*inspect.signature(fn).parameters} - {"self", "method", "path"}
        cells = re.findall(r"^\| ([^|]*) \|", table, re.MULTILINE)
        assert {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} >= options


def test_the_table_of_stores_says_what_their_traits_say():
    readme = (ROOT / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| *([^|]*?) *\| (.*) \|$", readme.partition("## Stores")[2], re.MULTILINE)
    table = {name: cells.split(" | ") for name, cells in rows}
    urls = [re.match(r"`([^`]+)`", cell)[1] for cell in table[""]]
    assert [urlsplit(url).scheme for url in urls] == ["memory", "sqlite", "redis", "postgresql"]
    hosts = {"redis://": "redis://localhost", "postgresql://": "postgresql://localhost/db"}
    stores = [tenure.Tenure(hosts.get(url, url)).traits for url in urls]

    scopes = {"process": "one process", "host": "one host", "fleet": "many machines"}
    assert table["shared by"] == [scopes[traits.scope] for traits in stores]
    assert [cell == "pushed" for cell in table["wake-ups"]] == [traits.push for traits in stores]
    guards = ["yes" if traits.transactional else "no" for traits in stores]
    assert table["`hold.guard`"] == guards
    assert [cell[0] for cell in table["guarantee grade"][:2]] == [
        traits.grade.name for traits in stores[:2]
    ]


def test_the_architecture_knows_every_call_of_the_contract():
    page = (ROOT / "docs/architecture.md").read_text("utf-8")
    calls = [name for name, value in vars(Store).items() if inspect.isfunction(value)]
    named = set(" ".join(re.findall(r"`([a-z ]+)`", page)).split())
    assert [name for name in calls if not name.startswith("_") and name not in named] == []


def test_commands_that_are_named_exist():
    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    named = set(re.findall(r"`python -m tenure ([a-z ]*[a-z])", text))
    assert named
    for words in named:
        command = cli
        for word in words.split():
            command = command.commands[word]


@pytest.mark.parametrize("page", ["README.md", "docs/monitoring.md", "docs/what-happens-when.md"])
def test_commands_that_pages_advise_do_something(page: str):
    """A group alone, such as `tenure jobs`, only says what there is in it, and ends with 2."""
    named = re.findall(r"`tenure ([^`]*)`", (ROOT / page).read_text("utf-8"))
    assert named
    for words in named:
        command, rest = cli, words.split()
        while isinstance(command, click.Group) and rest:
            command = command.commands[rest.pop(0)]
        assert not isinstance(command, click.Group) or command.invoke_without_command, words


def test_commands_of_the_runbook_lack_no_option(tmp_path: Path):
    """An engineer on call copies them: the store may be missing here, but no option."""
    page = (ROOT / "docs/monitoring.md").read_text("utf-8")
    run_on = {"TENURE_URL": f"sqlite:///{tmp_path}/missing.db"}
    named = set(re.findall(r"`tenure ((?:jobs|queues|replicas|timers|locks|doctor)\b[^`]*)`", page))
    assert named
    for words in named:
        arguments = words.replace("FENCE", "7").split()
        output = CliRunner(env=run_on).invoke(cli, arguments).output
        is_complete = "Usage:" not in output or "add --yes" in output
        assert is_complete, f"tenure {words}: {output}"
