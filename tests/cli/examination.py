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
    result = cli(*options, "doctor", "--json")
    findings = [Finding(**fields) for fields in result.json["findings"]]
    assert all(finding.advice for finding in findings if finding.level != "ok")
    return result.code, {finding.subject: finding for finding in findings}


def check(cli: Run, url: str, expected: Expected) -> None:
    code, findings = examined(cli, "--url", url)
    finding = findings[expected.subject]
    assert finding.level == expected.level
    assert expected.words in f"{finding.detail}. {finding.advice}"
    grave = {finding.subject for finding in findings.values() if finding.level in GRAVE}
    assert grave == ({expected.subject} if expected.level in GRAVE else set())
    assert code == (2 if expected.level == "error" else 0)


class ShiftedClock(SystemClock):
    """The clock of a host that nobody has set for a while."""

    def wall(self) -> int:
        return super().wall() - 7_000_000
