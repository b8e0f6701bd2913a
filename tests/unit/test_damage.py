"""Damaged records in the log: each once, and the later ones too."""

import logging

import pytest

from tenure.stores import damage
from tenure.stores.damage import Damage


def test_a_record_is_logged_however_many_were_damaged_before_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(damage, "_MOST", 10)
    monkeypatch.setattr(damage, "_logged", set())
    caplog.set_level(logging.ERROR, "tenure")
    records = Damage("memory://", "test")
    for number in range(25):
        for _ in range(3):
            records.report("job", f"job-{number}", "it is torn", "tenure_job")
    logged = [record.getMessage() for record in caplog.records]
    assert [f"job-{number}'" in line for number, line in enumerate(logged)] == [True] * 25
    assert len(damage._logged) <= 10
    assert len(list(records)) == 10
