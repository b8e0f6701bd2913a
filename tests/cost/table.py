"""The recorded costs: tests/cost/recorded.toml, read, written and compared with a measurement.

A count may not differ at all. Bytes and pages may differ by 2 %, and bytes by 4 in any case: names
of prepared statements and process ids are longer or shorter, and logs have headers now and then. A
cost that has fallen fails as well, so that it is recorded, and no later change loses it unseen.
"""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.cost.stage import Costs

__all__ = ["PATH", "differences", "read", "write"]

PATH = Path(__file__).with_name("recorded.toml")

# By measure: a share of what is recorded, and a number beside it.
_SLACK = {"bytes": (0.02, 4.0), "bytes written": (0.02, 4.0), "pages": (0.02, 0.0)}
_ROUNDING = 0.0001
_HEAD = """\
# What one unit of work costs on each store: a job, a tick, a lock pair, an idle minute.
# Written by `make cost ARGS=--record`; tests/cost/meters.py says what is counted.
"""
_ADVICE = "If it is meant to be so, record it: make cost ARGS=--record"


def read(path: Path = PATH) -> dict[str, Costs]:
    """Return what is recorded, by store."""
    recorded: dict[str, Costs] = tomllib.loads(path.read_text()) if path.exists() else {}
    return recorded


def write(recorded: Mapping[str, Costs], path: Path = PATH) -> None:
    """Record costs, by store."""
    lines = [_HEAD]
    for store, costs in recorded.items():
        width = max(map(len, costs), default=0) + 2
        lines.append(f"[{store}]")
        for work, cost in costs.items():
            values = ", ".join(f"{_key(name)} = {value:g}" for name, value in cost.items())
            lines.append(f"{_quoted(work):<{width}} = {{ {values} }}")
        lines.append("")
    path.write_text("\n".join(lines))


def differences(store: str, measured: Costs, recorded: Costs) -> list[str]:
    """Return a line for each cost that is not as recorded."""
    return list(_differences(store, measured, recorded))


def _differences(store: str, measured: Costs, recorded: Costs) -> Iterator[str]:
    for work in sorted({*measured, *recorded}):
        new, old = measured.get(work), recorded.get(work)
        if new is None or old is None:
            yield f"{store}, {work}: {'not measured' if new is None else 'not recorded'}. {_ADVICE}"
            continue
        for measure in sorted({*new, *old}):
            now, before = new.get(measure, 0.0), old.get(measure, 0.0)
            share, beside = _SLACK.get(measure, (0.0, 0.0))
            if abs(now - before) > share * before + beside + _ROUNDING:
                way = "more" if now > before else "less"
                yield f"{store}, {work}: {measure} {now:g}, {way} than {before:g}. {_ADVICE}"


def _key(name: str) -> str:
    return name if name.isalpha() else _quoted(name)


def _quoted(name: str) -> str:
    return f'"{name}"'
