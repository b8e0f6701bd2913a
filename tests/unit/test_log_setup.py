"""The logging of a worker: what replaces what, and which ends of a process are logged."""

import subprocess
import sys
import threading

import pytest

from tenure.supervisor import log_setup

SET_UP_TWICE = """
import logging, os
from tenure.supervisor.log_setup import set_up_logging

set_up_logging("text", None)
for _ in range(3):
    logging.getLogger("tenure").warning("the store is away", extra={"outage": "store"})
set_up_logging("json", None)
os.write(2, b"from here on JSON")
"""


def test_a_count_of_warnings_is_logged_in_the_form_of_its_warnings():
    run = subprocess.run([sys.executable, "-c", SET_UP_TWICE], capture_output=True, check=True)
    text, _, after = run.stderr.decode().partition("from here on JSON")
    assert "2 more warnings of this kind" in text
    assert after == ""


@pytest.mark.parametrize("code", [None, 0, 3])
def test_an_app_that_ends_with_a_code_ends_with_it_and_logs_nothing(
    code: int | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(sys, "excepthook", log_setup._log_uncaught)
    leaving = SystemExit(code)
    assert log_setup.logged_exit(leaving) is leaving
    assert caplog.records == []


@pytest.mark.parametrize(("error", "is_logged"), [(SystemExit(), False), (ValueError(), True)])
def test_a_thread_that_leaves_is_no_error(
    error: BaseException, is_logged: bool, caplog: pytest.LogCaptureFixture
):
    arguments = threading.ExceptHookArgs((type(error), error, None, None))
    log_setup._log_uncaught_in_thread(arguments)
    assert [record.levelname for record in caplog.records] == ["ERROR"] * is_logged
