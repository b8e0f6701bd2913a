"""The sources of the library as syntax trees, for rules about what they may contain."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import tenure

SOURCE = Path(tenure.__file__).parent


@cache
def modules() -> dict[str, ast.Module]:
    """Return every module by its path below src/tenure, but for what only serves tests."""
    paths = sorted(path for path in SOURCE.rglob("*.py") if "testing" not in path.parts)
    assert len(paths) > 100  # or this looks at the wrong place
    return {str(path.relative_to(SOURCE)): ast.parse(path.read_text()) for path in paths}


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def imported(tree: ast.AST) -> set[str]:
    """Return what a module imports: `a.b` for `import a.b`, and `a.b.c` for `from a.b import c`."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names
