import os
from datetime import timedelta

import pytest

from tenure import ConfigError, Retention, Tenure
from tenure.core.jobs.overdue_queues import QueueAges
from tenure.core.jobs.retention import Kept
from tenure.core.settings import Settings, usable_cores

NAMES = (
    "replica_ttl",
    "loss_budget",
    "isolate_after",
    "retention",
    "payload_limit",
    "result_limit",
    "grace",
    "long_job",
    "queue_expected",
    "process_memory",
    "process_workers",
    "process_start",
    "namespace",
    "imports",
)


def test_the_defaults():
    settings = Settings.read({}, {})
    assert settings == Settings(
        replica_ttl=10.0,
        loss_budget=3,
        isolate_after=2,
        retention=Kept(succeeded=86400.0, failed=7 * 86400.0),
        payload_limit=262_144,
        result_limit=1_048_576,
        grace=25.0,
        long_job=3600.0,
        queue_expected=QueueAges(300.0),
        process_memory=None,
        process_workers=usable_cores(),
        process_start=30.0,
        namespace="tenure",
        imports=(),
    )


def test_from_arguments():
    settings = Settings.read(
        {
            "replica_ttl": "1m",
            "loss_budget": 0,
            "isolate_after": 4,
            "retention": timedelta(days=1),
            "payload_limit": 2048,
            "result_limit": 4096,
            "grace": 0,
            "long_job": "2h",
            "queue_expected": {"mail": "1m", "*": 60 * 60},
            "process_memory": 200_000_000,
            "process_workers": 2,
            "process_start": "1m",
            "namespace": "billing",
            "imports": ["a", "b.c"],
        },
        {f"TENURE_{name.upper()}": "nonsense" for name in NAMES if name != "imports"},
    )
    assert (settings.replica_ttl, settings.loss_budget) == (60, 0)
    assert settings.retention == Kept(86400, 86400)
    assert (settings.payload_limit, settings.result_limit, settings.grace) == (2048, 4096, 0)
    assert settings.long_job == 7200.0
    assert settings.queue_expected == QueueAges(3600, {"mail": 60})
    assert settings.process_memory == 200_000_000
    assert (settings.process_workers, settings.process_start) == (2, 60.0)
    assert (settings.namespace, settings.imports) == ("billing", ("a", "b.c"))


def test_from_the_environment():
    settings = Settings.read(
        dict.fromkeys(NAMES),
        {
            "TENURE_REPLICA_TTL": "2.5",
            "TENURE_LOSS_BUDGET": "5",
            "TENURE_ISOLATE_AFTER": "7",
            "TENURE_RETENTION": "1d12h",
            "TENURE_PAYLOAD_LIMIT": "2048",
            "TENURE_RESULT_LIMIT": "4096",
            "TENURE_GRACE": "30s",
            "TENURE_QUEUE_EXPECTED": "mail=1m, reports = 7200",
            "TENURE_PROCESS_MEMORY": "1.5 GiB",
            "TENURE_NAMESPACE": "billing",
            "TENURE_IMPORTS": " a, b.c ,",
        },
    )
    assert (settings.replica_ttl, settings.loss_budget) == (2.5, 5)
    assert settings.retention == Kept(129_600, 129_600)
    assert (settings.payload_limit, settings.result_limit, settings.grace) == (2048, 4096, 30)
    assert settings.process_memory == 3 * 2**29
    assert settings.queue_expected == QueueAges(300, {"mail": 60, "reports": 7200})
    assert (settings.namespace, settings.imports) == ("billing", ("a", "b.c"))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("3600", Kept(3600, 3600)),
        ("succeeded=2h,failed=30d", Kept(7200, 30 * 86400)),
        (" failed = 3600 ", Kept(86400, 3600)),
        ("1s", Kept(60, 60)),
    ],
)
def test_a_retention_from_the_environment(text: str, kept: Kept):
    assert Settings.read({}, {"TENURE_RETENTION": text}).retention == kept


@pytest.mark.parametrize("text", ["lost=1d", "failed=", "failed=soon", "1d,2d", "=1d"])
def test_an_invalid_retention_in_the_environment_is_refused(text: str):
    with pytest.raises(ConfigError, match=r"TENURE_RETENTION|failed of retention"):
        Settings.read({}, {"TENURE_RETENTION": text})


def test_a_retention_by_outcome():
    read = Settings.read({"retention": Retention(failed="30d")}, {})
    assert read.retention == Kept(succeeded=86400, failed=30 * 86400)


def test_an_empty_variable_counts_as_unset():
    assert Settings.read({}, {"TENURE_GRACE": "", "TENURE_IMPORTS": ""}).grace == 25


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("replica_ttl", 0.5),  # a garbage collection would look like a death
        ("replica_ttl", "soon"),
        ("replica_ttl", True),
        ("loss_budget", -1),
        ("loss_budget", 1.5),
        ("loss_budget", True),
        ("loss_budget", "three"),
        ("retention", -1),
        ("retention", float("inf")),
        ("payload_limit", 10),
        ("result_limit", 2**31),
        ("grace", "-1s"),
        ("queue_expected", "0.5s"),
        ("queue_expected", {}),
        ("queue_expected", {"mail": "soon"}),
        ("queue_expected", {7: "1m"}),
        ("queue_expected", "mail="),
        ("process_memory", 0),
        ("process_memory", True),
        ("process_memory", "63MB"),  # Python itself would not fit
        ("process_memory", "1e9"),
        ("process_memory", "-1GB"),
        ("process_memory", "512 parsecs"),
        ("process_memory", 1.5),
        ("namespace", "two words"),
        ("imports", 7),
        ("imports", [7]),
    ],
)
def test_an_invalid_setting_is_named(name: str, value: object):
    with pytest.raises(ConfigError, match=name):
        Settings.read({name: value}, {})


def test_an_invalid_time_of_a_queue_names_the_queue():
    with pytest.raises(ConfigError, match=r"^queue_expected\['mail'\] must be seconds"):
        Tenure("memory://", queue_expected={"mail": "soon"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("REPLICA_TTL", "0"),
        ("LOSS_BUDGET", "-1"),
        ("RETENTION", "x"),
        ("PAYLOAD_LIMIT", "1k"),
        ("PROCESS_MEMORY", "1k"),
    ],
)
def test_an_invalid_variable_is_named(name: str, text: str):
    with pytest.raises(ConfigError, match=f"TENURE_{name}"):
        Settings.read({}, {f"TENURE_{name}": text})


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("70000000", 70_000_000),
        ("70000000 B", 70_000_000),
        ("512MB", 512_000_000),
        ("512mb", 512_000_000),
        ("512 MiB", 512 * 2**20),
        ("0.5GB", 500_000_000),
        ("1TiB", 2**40),
    ],
)
def test_sizes_as_people_write_them(text: str, count: int):
    assert Settings.read({"process_memory": text}, {}).process_memory == count


def test_an_app_reads_them(monkeypatch):
    monkeypatch.setenv("TENURE_LOSS_BUDGET", "7")
    monkeypatch.setenv("TENURE_GRACE", "3")
    monkeypatch.setenv("TENURE_NAMESPACE", "there")
    app = Tenure("memory://", grace="4s")
    assert (app.settings.loss_budget, app.settings.grace) == (7, 4)
    assert app.settings.namespace == "there"
    assert app.clone().settings == app.settings


@pytest.mark.parametrize("name", ["require", "migrate"])
def test_an_invalid_setting_for_opening_is_named(monkeypatch, name: str):
    with pytest.raises(ConfigError, match=f"^{name} must be .*, not 'E'"):
        Tenure("memory://", **{name: "E"})
    monkeypatch.setenv(f"TENURE_{name.upper()}", "E")
    with pytest.raises(ConfigError, match=f"^TENURE_{name.upper()} must be .*, not 'E'"):
        Tenure("memory://")


@pytest.mark.parametrize(("name", "most"), [("loss_budget", 1000), ("result_limit", 2**30)])
def test_the_largest_number_is_allowed(name: str, most: int):
    assert getattr(Settings.read({name: most}, {}), name) == most
    with pytest.raises(ConfigError, match=f"{name} must be a whole number"):
        Settings.read({name: most + 1}, {})


def test_an_unknown_setting_is_an_error():
    with pytest.raises(TypeError, match="lost_budget"):
        Tenure("memory://", lost_budget=3)


def test_a_host_that_does_not_tell_its_cores_has_one(monkeypatch: pytest.MonkeyPatch):
    for name in ("process_cpu_count", "sched_getaffinity"):
        monkeypatch.delattr(os, name, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores() == 1
