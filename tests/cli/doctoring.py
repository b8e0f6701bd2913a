"""What a test of `tenure doctor` expects, and how it looks."""

from typing import NamedTuple

from tenure.core.clock import SystemClock
from tenure.core.leases import Finding
from tests.cli.conftest import Run

GRAVE = ("warning", "error")


class Expected(NamedTuple):
    """What must be found, and among warnings and errors nothing else."""

    level: str
    subject: str
    words: str


def examined(cli: Run, *options: str) -> tuple[int, dict[str, Finding]]:
    """Run doctor; return its exit status and the findings by subject."""
    told = cli(*options, "doctor", "--json")
    findings = [Finding(**one) for one in told.json["findings"]]
    assert all(one.advice for one in findings if one.level != "ok")
    return told.code, {one.subject: one for one in findings}


def check(cli: Run, url: str, expected: Expected) -> None:
    code, findings = examined(cli, "--url", url)
    found = findings[expected.subject]
    assert found.level == expected.level
    assert expected.words in f"{found.detail}. {found.advice}"
    grave = {one.subject for one in findings.values() if one.level in GRAVE}
    assert grave == ({expected.subject} if expected.level in GRAVE else set())
    assert code == (2 if expected.level == "error" else 0)


class ShiftedClock(SystemClock):
    """The clock of a host that nobody has set for a while."""

    def wall(self) -> int:
        return super().wall() - 7_000_000
