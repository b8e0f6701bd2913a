"""What README and docs say is so: code runs, links lead somewhere, lists are complete."""

import ast
import asyncio
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tenure
from tenure import errors, testing
from tenure.observe import events

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    page: str
    line: int
    language: str
    code: str


def blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found in FENCED.finditer(text):
            line = text.count("\n", 0, found.start()) + 2
            yield Block(str(page.relative_to(ROOT)), line, found[1], found[2])


PYTHON = [
    pytest.param(one, id=f"{one.page}:{one.line}") for one in blocks() if one.language == "python"
]


def names_of_a_service() -> dict[str, Any]:
    """What stands around the fragments: the reader's own functions."""

    async def charge(*, fence: int) -> int:
        return fence

    async def calculate(day: str = "today") -> str:
        return day

    return {"asyncio": asyncio, "charge": charge, "calculate": calculate}


async def run_fragment(code: Any, names: dict[str, Any]) -> None:
    async with tenure.Tenure("memory://") as app:
        await eval(code, {**names, "app": app})


@pytest.mark.parametrize("block", PYTHON)
def test_the_code_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TENURE_URL", raising=False)
    # With its place in the page, so that a traceback points there.
    code = compile(
        "\n" * (block.line - 1) + block.code,
        block.page,
        "exec",
        flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
    )
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(run_fragment(code, names_of_a_service()))
    else:
        exec(code, {"__name__": "__main__"})


def test_there_is_code_to_run():
    assert {"README.md", "docs/locks.md"} <= {one.values[0].page for one in PYTHON}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path):
    targets = re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [name for name in targets if not (page.parent / name).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_anchors_are_headings(page: Path):
    for name, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", page.read_text("utf-8")):
        headings = re.findall(
            r"^#+ (.*)$", (page.parent / name if name else page).read_text("utf-8"), re.MULTILINE
        )
        assert anchor in {
            re.sub(r"[^\w\- ]", "", one).lower().replace(" ", "-") for one in headings
        }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page: Path):
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:tests|src|examples|scripts|docs)/[\w./-]+\.\w+)", text))
    # CONTRIBUTING.md shows made-up names where it explains how to plant a bug.
    assert {name for name in named if not (ROOT / name).exists()} == set()


def test_the_guide_lists_every_error():
    assert missing(errors.__all__, "docs/locks.md") == []


def test_the_guide_lists_every_event():
    kinds = [kind.__name__ for kind in events.Event.__args__]
    assert missing(kinds, "docs/locks.md") == []


def test_every_public_name_is_explained_somewhere():
    assert missing([*tenure.__all__, *testing.__all__], "README.md", "docs/locks.md") == []


def missing(names: list[str], *pages: str) -> list[str]:
    text = "\n".join((ROOT / page).read_text(encoding="utf-8") for page in pages)
    return [
        name for name in names if not re.search(rf"`[^`\n]*\b{name}\b|^.*\b{name}\b", text, re.MULTILINE)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_are_shown_exist(page: Path):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    asked = set(re.findall(r"`make ([a-z]+)", page.read_text("utf-8")))
    assert asked <= targets
