"""Lines of the log about a job, lock, timer, replica or process name it in a field as well."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import tenure

SOURCE = Path(tenure.__file__).parent
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
SUBJECT = re.compile(
    r"\b(?:job|run|task|queue|lock|election|timer|schedule|replica|worker|worker process) %[rs]\b"
    r"|could not release %r|^%s %r "
)
HELPERS = {"cli/worker/metrics.py", "cli/worker/supervised.py"}
"""Files whose lines begin with the name of a signal, or with an address."""


def log_calls() -> Iterator[tuple[str, ast.Call, str]]:
    """Yield file, call and text of each call of a logger, with constants of the module resolved."""
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        texts = {
            target.id: str(node.value.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id in ("log", "_log")
                and node.func.attr in LEVELS
            ):
                text = node.args[node.func.attr == "log"]
                name = getattr(text, "id", "")
                value = getattr(text, "value", texts.get(name, ""))
                yield path.relative_to(SOURCE).as_posix(), node, str(value)


def test_lines_about_a_subject_have_its_field():
    calls = list(log_calls())
    about = [
        (f"{file}:{call.lineno} {text}", {keyword.arg for keyword in call.keywords})
        for file, call, text in calls
        if SUBJECT.search(text) and file not in HELPERS
    ]
    assert len(about) > 15, "the pattern no longer finds them"
    assert not [line for line, keywords in about if "extra" not in keywords]
