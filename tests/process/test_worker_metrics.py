"""`tenure worker --metrics`: one page for all processes of a worker, over their deaths."""

import errno
import logging
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import prometheus_client.values
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector

from tenure import Tenure
from tenure.cli.options import address
from tenure.cli.worker.metrics import metrics_page
from tenure.errors import ConfigError, JobFailed
from tenure.metrics.definitions import STORE_UP
from tenure.metrics.snapshot import snapshot_of
from tenure.prometheus import reserved_file
from tenure.prometheus.families import Families
from tenure.prometheus.page import _Files, serve_metrics
from tenure.prometheus.processes import write_metrics_to
from tests.observe.test_prometheus import CANARY, Page
from tests.process.metered_app import declare
from tests.process.site import Site
from tests.rig.processes import Child, Fleet
from tests.rig.sizes import SIZE
from tests.rig.wait import wait_until, wait_until_async

pytestmark = pytest.mark.on("sqlite")  # a store says nothing about processes and their files


def start(site: Site, folder: Path, listen: str, *options: object) -> Child:
    """Start `tenure worker --metrics`."""
    environment = {
        "TENURE_URL": site.url,
        "TENURE_NAMESPACE": site.namespace,
        "TENURE_REPLICA_TTL": "1.5",
        "TMPDIR": str(folder),
    }
    command = ("-m", "tenure", "worker", "tests.process.metered_app:app")
    return site.fleet.start(*command, "--metrics", listen, *map(str, options), env=environment)


def started(site: Site, folder: Path, *options: object) -> tuple[Child, str]:
    """Start it on a free port; return it and the address of its page."""
    worker = start(site, folder, "127.0.0.1:0", *options)
    logged = wait_until(
        lambda: re.search(r"metrics at (http://127\.0\.0\.1:\d+/metrics)", worker.stderr),
        SIZE.patience,
        "the address of the page is logged",
    )
    return worker, logged[1]


def read(url: str) -> Page:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return Page(answer.read().decode())


def files(folder: Path, below: str = "/*.db") -> list[str]:
    return sorted(file.name for file in folder.glob(f"tenure-metrics-*{below}"))


async def test_one_page_counts_all_processes_and_their_successors(site: Site, tmp_path: Path):
    worker, page_url = started(site, tmp_path, "--processes", 2, "--max-jobs", 5)
    async with site.app() as shop:
        tasks = declare(shop)
        sent = 0

        async def send(number: int) -> None:
            nonlocal sent
            jobs = [await tasks.send.enqueue(CANARY) for _ in range(number)]
            for job in jobs:
                await job.result(SIZE.patience)
            sent += number

        async def page_of_all() -> Page:
            """Return a page that counts all: a result can be read before its worker counts it."""
            ends = {"queue": "mail", "task": tasks.send.name, "outcome": "succeeded"}
            await wait_until_async(
                lambda: read(page_url).value("jobs_finished_total", **ends) == sent, SIZE.patience
            )
            return read(page_url)

        await send(6)
        page = await page_of_all()
        # A metric of the service, made when its module was imported.
        assert page.of("shop_letters_total") == sent
        assert page.value("store_call_seconds_count", call="settle") > 0
        assert page.value("store_up") == 1
        assert page.value("queue_jobs", queue="mail", state="waiting") is not None
        while worker.stderr.count(" takes jobs from ") < 9:
            await send(6)
        # Processes were replaced: what they had counted is still there, in the same files.
        page = await page_of_all()
        assert page.of("shop_letters_total") == sent
        numbers = {name.rpartition("_")[2] for name in files(tmp_path)}
        # Two seats, and up to two more for each while processes are being replaced: that nine
        # processes need no more shows that numbers are used again.
        assert numbers <= {f"{name}.db" for name in ("supervisor", *range(6))}
        assert CANARY not in read(page_url).text
    worker.terminate()
    assert worker.wait(SIZE.patience) == 0
    assert files(tmp_path, "") == []


async def test_a_killed_process_leaves_its_counters(site: Site, tmp_path: Path):
    worker, page_url = started(site, tmp_path)
    async with site.app() as shop:
        tasks = declare(shop)
        await (await tasks.send.enqueue("ada")).result(SIZE.patience)
        with suppress(JobFailed):
            await (await tasks.die.enqueue()).result(SIZE.patience)
        await (await tasks.send.enqueue("bob")).result(SIZE.patience)
    assert read(page_url).of("shop_letters_total") == 2
    gauges = {name.rpartition("_")[2] for name in files(tmp_path) if name.startswith("gauge")}
    assert gauges == {"supervisor.db", "0.db"}, "those of ended processes are removed"
    worker.terminate()
    assert worker.wait(SIZE.patience) == 0
    async with site.app() as shop:  # shows the queues at once, as the worker no longer does
        declare(shop)
        await snapshot_of(shop).refresh()
        assert snapshot_of(shop).current()


async def test_the_page_is_served_while_the_store_is_in_this_process(tmp_path: Path, fleet: Fleet):
    site = Site("memory", "memory://", "test", fleet)
    worker, page_url = started(site, tmp_path)
    assert wait_until(lambda: read(page_url).value("store_up") == 1, SIZE.patience)
    worker.terminate()
    assert worker.wait(SIZE.patience) == 0


async def test_an_address_that_is_taken_is_an_error(tmp_path: Path, site: Site):
    worker, page_url = started(site, tmp_path)
    port = page_url.rpartition(":")[2].removesuffix("/metrics")
    second = start(site, tmp_path, f"127.0.0.1:{port}")
    assert second.wait(SIZE.patience) == 2
    assert f"--metrics cannot listen at 127.0.0.1:{port}" in second.stderr
    worker.terminate()
    assert worker.wait(SIZE.patience) == 0


async def test_where_the_store_is_in_this_process_it_is_the_same_error(
    tmp_path: Path, site: Site, fleet: Fleet
):
    worker, page_url = started(site, tmp_path)
    port = page_url.rpartition(":")[2].removesuffix("/metrics")
    second = start(Site("memory", "memory://", "test", fleet), tmp_path, f"127.0.0.1:{port}")
    assert second.wait(SIZE.patience) == 2
    assert f"--metrics cannot listen at 127.0.0.1:{port}" in second.stderr
    assert "never awaited" not in second.stderr
    worker.terminate()
    assert worker.wait(SIZE.patience) == 0


@pytest.mark.parametrize("host", ["a..b", "no.such.host.invalid", "x" * 70, "http://127.0.0.1"])
async def test_a_host_that_is_none_is_an_error(host: str, tmp_path: Path):
    app = Tenure("memory://")
    with pytest.raises(ConfigError, match="--metrics cannot listen at "):
        async with serve_metrics(app, host, 0, str(tmp_path)):
            raise AssertionError


@pytest.mark.parametrize(
    ("text", "listens"),
    [
        ("127.0.0.1:9464", ("127.0.0.1", 9464)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
        ("metrics.local:80", ("metrics.local", 80)),
        ("[::1]:9464", ("::1", 9464)),
        ("9464", ("127.0.0.1", 9464)),
        (":9464", ("127.0.0.1", 9464)),
    ],
)
def test_an_address_is_a_host_and_a_port_and_a_port_alone_is_of_this_machine(
    text: str, listens: tuple[str, int]
):
    assert address(None, None, text) == listens


def test_without_the_extra_the_option_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in sys.modules if name.startswith("tenure.prometheus")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with (
        pytest.raises(ConfigError, match=r"pip install 'tenure\[prometheus\]'"),
        metrics_page("127.0.0.1", 0),
    ):
        raise AssertionError


def test_without_a_folder_for_temporary_files_the_option_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match="Set TMPDIR"), metrics_page("127.0.0.1", 0):
        raise AssertionError


def test_a_file_that_is_damaged_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "")
    monkeypatch.setattr(prometheus_client.values, "ValueClass", None)
    monkeypatch.setattr(prometheus_client.values, "MmapedDict", None)
    damaged, of_another = tmp_path / "counter_3.db", tmp_path / "counter_13.db"
    for file in (damaged, of_another):
        file.write_bytes(b"\xff\x00\x00\x00" * 64)
    gauge = tmp_path / "gauge_livemin_3.db"
    gauge.write_bytes(b"")
    write_metrics_to(str(tmp_path), 3)
    assert [file.exists() for file in (damaged, of_another, gauge)] == [False, True, False]


def counters_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Write metrics to a folder; return what makes the value of a counter there."""
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "")
    monkeypatch.setattr(prometheus_client.values, "ValueClass", None)
    monkeypatch.setattr(prometheus_client.values, "MmapedDict", None)
    write_metrics_to(str(folder), 1)
    values: Any = prometheus_client.values.ValueClass
    return lambda name: values("counter", name, name, (), (), "")


def on_the_page_of(folder: Path) -> dict[str, float]:
    metrics = MultiProcessCollector(None, str(folder)).collect()
    return {sample.name: sample.value for metric in metrics for sample in metric.samples}


@pytest.mark.parametrize("away", [1, 2])
def test_of_several_processes_the_one_that_cannot_reach_the_store_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away: int
):
    counters_in(tmp_path, monkeypatch)
    for number in (1, 2):
        write_metrics_to(str(tmp_path), number)
        Families(CollectorRegistry()).write(STORE_UP, 0 if number == away else 1, ())
    assert on_the_page_of(tmp_path)["tenure_store_up"] == 0


def test_the_files_have_their_space_on_the_disk_before_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    counter = counters_in(tmp_path, monkeypatch)
    names = [f"counter_{number}_{'x' * 100}" for number in range(500)]
    for name in names:
        counter(name).inc(1)
    [file] = tmp_path.glob("*.db")
    state = file.stat()
    assert state.st_size > 65_536
    # A page of a mapped file without space on a full disk ends the process with SIGBUS.
    assert state.st_blocks * 512 >= state.st_size
    assert on_the_page_of(tmp_path) == dict.fromkeys(names, 1)


@pytest.mark.parametrize("room", [0, 1])
def test_a_full_disk_leaves_new_metrics_out_and_says_so(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    room: int,
):
    calls = []

    def reserve(name: str, size: int, real: Any = reserved_file._reserve) -> None:
        calls.append(size)
        if len(calls) > room:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(name, size)

    monkeypatch.setattr(reserved_file, "_reserve", reserve)
    counter = counters_in(tmp_path, monkeypatch)
    with caplog.at_level(logging.WARNING):
        values = [counter(f"counter_{number}_{'x' * 100}") for number in range(500)]
        for value in values:
            value.inc(1)
            value.inc(2)
    assert {value.get() for value in values} == {3}
    shown = on_the_page_of(tmp_path)
    assert set(shown.values()) == ({3} if room else set())
    assert len(shown) < len(values)
    assert len(calls) == room + 1
    [warning] = [record for record in caplog.records if record.name == "tenure"]
    assert "No space left on device" in warning.getMessage()


@pytest.mark.parametrize("before", [b"1234", None])
def test_space_that_could_not_be_taken_whole_is_given_back(tmp_path: Path, before: bytes | None):
    file = tmp_path / "counter_1.db"
    if before is not None:
        file.write_bytes(before)
    script = (
        "import resource, sys; from tenure.prometheus.reserved_file import _reserve\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "_reserve(sys.argv[1], 200)"
    )
    run = subprocess.run([sys.executable, "-c", script, file], capture_output=True, check=False)
    assert b"File too large" in run.stderr
    assert (file.read_bytes() if file.exists() else None) == before


@pytest.mark.parametrize("content", [b"", b"\xff\x00\x00\x00" * 64])
def test_a_damaged_file_is_left_out_of_the_page_and_told_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    content: bytes,
):
    counters_in(tmp_path, monkeypatch)("whole_total").inc(1)
    (tmp_path / "counter_2.db").write_bytes(content)
    page = _Files(str(tmp_path))
    for _ in range(2):
        shown = [sample for metric in page.collect() for sample in metric.samples]
        assert [(sample.name, sample.value) for sample in shown] == [("whole_total", 1)]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "counter_2.db" in caplog.text


FORKS = """
import os, sys
from tenure.prometheus.processes import write_metrics_to

write_metrics_to(sys.argv[1], 1)
from prometheus_client import CollectorRegistry, Counter
from tenure.metrics.definitions import STORE_UP
from tenure.prometheus.families import Families
from tenure.prometheus.page import _Files

Families(CollectorRegistry()).write(STORE_UP, 1, ())
letters = Counter("letters", "", registry=CollectorRegistry())
letters.inc()
if (child := os.fork()) == 0:
    letters.inc()
    os._exit(0)
os.waitpid(child, 0)
letters.inc()
metrics = _Files(sys.argv[1]).collect()
shown = {sample.name: sample.value for metric in metrics for sample in metric.samples}
print(shown["letters_total"], shown["tenure_store_up"])
"""


def test_a_process_that_a_handler_forks_counts_and_has_no_gauges(tmp_path: Path):
    command = [sys.executable, "-c", FORKS, str(tmp_path)]
    shown = subprocess.run(command, capture_output=True, check=True).stdout
    assert shown.split() == [b"3.0", b"1.0"]


FORKED = """
import asyncio, os, sys
import tenure.prometheus
from prometheus_client import generate_latest
from tenure import Tenure
from tenure.metrics import snapshot

snapshot._COUNT_EVERY = 0.0
app = Tenure(f"sqlite:///{sys.argv[1]}")

@app.task
async def send() -> None: ...

metrics = tenure.prometheus.instrument(app)

async def scrape():
    async with app:
        await metrics.refresh()
        shown = "tenure_queue_jobs{" in generate_latest(metrics.registry).decode()
        os.write(1, b"shown " if shown else b"absent ")

if sys.argv[2] == "after":
    asyncio.run(scrape())
for _ in range(3):
    if (child := os.fork()) == 0:
        asyncio.run(scrape())
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.mark.parametrize(("when", "absent"), [("before", 2), ("after", 3)])
def test_processes_that_were_forked_after_instrument_show_the_queues_once(
    tmp_path: Path, when: str, absent: int
):
    """`when`: whether they are forked before or after their parent has shown the queues."""
    command = [sys.executable, "-c", FORKED, str(tmp_path / "forked.db"), when]
    shown = subprocess.run(command, capture_output=True, check=True).stdout
    assert shown.split() == [b"shown", *[b"absent"] * absent]


COUNTED_IN_A_FORK = """
import os, sys
by_number = sys.argv[2] == "number"
if by_number:
    from tenure.prometheus import processes
    processes.write_metrics_to(sys.argv[1], 0)
else:
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = sys.argv[1]
import tenure.prometheus
from prometheus_client import CollectorRegistry, Counter, generate_latest
from tenure import Tenure
from tenure.app import engine_of
from tenure.observe import StoreCalled
from tenure.prometheus.page import _registry_of_page

app = Tenure("memory://")
metrics = tenure.prometheus.instrument(app)
letters = Counter("letters", "Of the service.")

def show(when):
    text = generate_latest(_registry_of_page(metrics)).decode()
    [line] = [line for line in text.splitlines() if line.startswith("tenure_store_up ")]
    os.write(1, f"{when} {line.split()[1]}\\n".encode())

def fork(work):
    if (child := os.fork()) == 0:
        work()
        os._exit(0)
    os.waitpid(child, 0)

def fail():
    engine_of(app).events.notify(StoreCalled("beat", 1.0, "StoreUnavailable"))
    show("down")

def count():
    letters.inc()
    show("forked")

fork(count)
fork(fail)
if by_number:
    processes.process_ended(sys.argv[1], 0)
else:
    show("ended")
"""


@pytest.mark.parametrize("named", ["number", "pid"])
def test_a_fork_that_only_counts_has_not_found_the_store_away(tmp_path: Path, named: str):
    """prometheus_client gives all values of a forked process 0: gunicorn forks, handlers do."""
    command = [sys.executable, "-c", COUNTED_IN_A_FORK, str(tmp_path), named]
    shown = subprocess.run(command, capture_output=True, check=True).stdout
    assert shown.splitlines()[0] == b"forked 1.0"
    # The page leaves gauges of what a handler has forked out.
    assert shown.splitlines()[1] == (b"down 0.0" if named == "pid" else b"down 1.0")
    assert [file.name for file in tmp_path.glob("gauge_livemin_0*")] == []
    if named == "pid":  # a process that ended in an outage shows it no longer
        assert shown.splitlines()[2] == b"ended 1.0"


A_PROCESS_OF_MANY_QUEUES = """
import sys
from tenure.prometheus import processes
processes.write_metrics_to(sys.argv[1], 0)
import tenure.prometheus
from tenure import Tenure
from tenure.app import engine_of
from tenure.observe import JobEnqueued, LockRefused

app = Tenure("memory://")
tenure.prometheus.instrument(app)
first = int(sys.argv[2])
for number in range(first, first + 150):
    engine_of(app).events.notify(JobEnqueued(task="send", job="j", queue=f"customer-{number}"))
    engine_of(app).events.notify(LockRefused(name=f"lock-{number}"))
"""


def test_processes_that_replace_each_other_share_the_limit_of_labels(tmp_path: Path):
    for first in (0, 1000, 2000):
        command = [sys.executable, "-c", A_PROCESS_OF_MANY_QUEUES, str(tmp_path), str(first)]
        subprocess.run(command, check=True)
    shown = [sample for metric in _Files(str(tmp_path)).collect() for sample in metric.samples]
    queues = {sample.labels["queue"]: sample.value for sample in shown if "queue" in sample.labels}
    locks = {sample.labels["lock"] for sample in shown if "lock" in sample.labels}
    assert (len(queues), len(locks)) == (101, 101)
    assert queues["other"] == 350
