"""The list that `make mutants` ends with: which test has caught which bug."""

import os

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter):
    if os.environ.get("TENURE_PLANTED") != "all":
        return
    reports = [
        dict(report.user_properties)
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
    ]
    caught = {
        report["bug"]: report.get("caught by", "NOTHING") for report in reports if "bug" in report
    }
    terminalreporter.section("planted bugs, and what has caught them")
    for bug, test in sorted(caught.items()):
        terminalreporter.write_line(f"{bug:<50} {test}")
    survivors = sum(test == "NOTHING" for test in caught.values())
    terminalreporter.write_line(f"{len(caught)} bugs planted, {survivors} not caught")
    if not caught:
        terminalreporter.write_line("none was chosen: -k takes a part of a name in tests/planted")
