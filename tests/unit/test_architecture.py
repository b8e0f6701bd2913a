"""docs/architecture.md is true: its paths and layers exist, no module or decision is missing."""

import re
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tenure"
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
# Behind the names of the tree, each description starts in this column.
DESCRIPTIONS = 28


def section(title: str) -> str:
    [text] = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return str(text)


def blocks(text: str) -> list[str]:
    return re.findall(r"^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def paths_in_the_tree() -> Iterator[str]:
    """Yield each name of the tree as a path: "core/clock.py", or "core/" for a package."""
    for block in blocks(section("The tree")):
        packages: list[str] = []
        for line in block.splitlines():
            names = line.lstrip() if ", " in line[:DESCRIPTIONS] else line[:DESCRIPTIONS].strip()
            depth = (len(line) - len(line.lstrip())) // 2
            if 2 * depth >= DESCRIPTIONS:
                continue  # the description of the names above it
            del packages[depth:]
            for name in re.match(r"\w+/?(, \w+)*", names)[0].split(", "):
                path = "".join([*packages, name])
                yield path if name.endswith("/") else f"{path}.py"
            if names.partition(" ")[0].endswith("/"):
                packages.append(names.partition(" ")[0])


def paths_in_text() -> set[str]:
    """Return what stands in backticks and has the form of a path."""
    return set(re.findall(r"`([\w/]+/[\w/]*\.?(?:py|lua|sql)?)`", PAGE))


def layers_of_the_page() -> dict[str, str]:
    """Return the layers of each package, from top to bottom, as one line."""
    layers: dict[str, str] = {}
    package = ""
    [block] = blocks(section("Layers"))
    for line in block.splitlines():
        name, _, rest = line.partition(" ")
        package = name or package
        layers[package] = f"{layers.get(package, '')} {rest.strip()}".strip()
    return layers


def layers_of_the_check() -> dict[str, str]:
    pyproject: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return {
        container.removeprefix("tenure.").replace(".", "/") + "/" * (container != "tenure"): (
            " > ".join(contract["layers"])
        )
        for contract in pyproject["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers"
        for container in contract["containers"]
    }


def test_every_path_exists():
    listed = {*paths_in_the_tree(), *paths_in_text()}
    missing = [path for path in sorted(listed) if not any_exists(path)]
    assert missing == []


def any_exists(path: str) -> bool:
    return (SOURCE / path).exists() or (ROOT / path).exists()


def test_every_package_and_module_is_in_the_tree():
    modules = {
        file.relative_to(SOURCE).as_posix()
        for file in SOURCE.rglob("*.py")
        if file.name != "__init__.py"
    }
    packages = {
        f"{file.parent.relative_to(SOURCE).as_posix()}/"
        for file in SOURCE.rglob("__init__.py")
        if file.parent != SOURCE
    }
    assert sorted((modules | packages) - set(paths_in_the_tree())) == []


def test_nothing_is_twice_in_the_tree():
    paths = sorted(paths_in_the_tree())
    assert [path for path, later in pairwise(paths) if path == later] == []


@pytest.mark.parametrize("package", layers_of_the_page())
def test_the_layers_are_those_of_the_check(package: str):
    assert layers_of_the_page()[package] == layers_of_the_check()[package]


def test_every_decision_is_linked():
    linked = set(re.findall(r"^\d+\. \[.*\]\((decisions/.*)\)$", PAGE, re.MULTILINE))
    files = {f"decisions/{file.name}" for file in (ROOT / "docs" / "decisions").glob("*.md")}
    assert linked == files


def test_a_decision_has_its_number_and_title():
    links = re.findall(r"^(\d+)\. \[(.*)\]\((decisions/.*)\)$", PAGE, re.MULTILINE)
    for number, title, file in links:
        first_line = (ROOT / "docs" / file).read_text("utf-8").splitlines()[0]
        assert first_line == f"# {number}. {title}"
