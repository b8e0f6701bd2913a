"""Check that names say what they are for: python scripts/words.py.

Prints each variable, parameter, function or class that is named by a pronoun or participle, and
each module that is named by a gerund. `CONTRIBUTING.md` says what to write instead.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src", "tests", "bench", "scripts", "examples")
PRONOUNS = {
    *("one", "some", "nobody", "somebody", "anybody", "whoever"),
    *("told", "asked", "found", "given", "known", "wanted", "said"),
}
# Words that end like a gerund, and are the name of a thing in this field.
NOUNS = {
    *("blocking", "listing", "mapping", "mounting", "pacing", "ping"),
    *("pruning", "scheduling", "string", "testing", "timing"),
}
# What is still to be renamed, as paths from the root. Take out what is clean; add nothing.
TO_DO: tuple[str, ...] = (
    "src/tenure/app/",
    "src/tenure/blocking/",
    "src/tenure/cli/",
    "src/tenure/core/",
    "src/tenure/errors.py",
    "src/tenure/http/",
    "src/tenure/jobs/",
    "src/tenure/locks/",
    "src/tenure/observe/",
    "src/tenure/runtime/",
    "src/tenure/stores/",
    "src/tenure/supervisor/",
    "src/tenure/testing/",
    "src/tenure/timers/",
    "tests/cli/",
    "tests/locks/",
    "tests/process/",
    "tests/rig/telling.py",
    "tests/rig/waiting.py",
    "tests/security/",
    "tests/sim/",
    "tests/stores/",
    "tests/timers/",
    "tests/typing/",
    "tests/unit/",
)


def main() -> None:
    """Print what is wrong, and exit with 1 if anything is."""
    wrong = [
        f"{path.relative_to(ROOT)}:{complaint}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not path.relative_to(ROOT).as_posix().startswith(TO_DO)
        for complaint in check(path)
    ]
    print("\n".join(wrong) or "words: ok")
    sys.exit(1 if wrong else 0)


def check(path: Path) -> Iterator[str]:
    """Yield what is wrong with the names of one file, each with its line."""
    stem = path.stem.strip("_")
    if is_gerund(stem) and not stem.startswith("test_"):
        yield f"1: name the module {stem} by a noun"
    for line, name in names(ast.parse(path.read_text(encoding="utf-8"))):
        if name.strip("_").lower() in PRONOUNS:
            yield f"{line}: {name} does not say what it is; name the thing"


def is_gerund(stem: str) -> bool:
    """Say whether the last word of a module's name is a verb with -ing."""
    word = stem.rpartition("_")[2]
    return word.endswith("ing") and word not in NOUNS


def names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield each name that the code gives to something, with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield node.lineno, name
            case ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.ExceptHandler(name=str(name)) | ast.alias(asname=str(name)):
                yield node.lineno, name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield node.lineno, name


if __name__ == "__main__":
    main()
