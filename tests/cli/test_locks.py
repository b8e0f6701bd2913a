"""`tenure locks`, on every store."""

import io
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from tenure import LeaseLost, blocking
from tenure.cli.locks.table import listed
from tenure.core.leases import Lease
from tests.cli.conftest import Place, Run
from tests.cli.terminal import plain
from tests.cli.test_command import on_a_terminal
from tests.rig.wait import wait_until


@contextmanager
def waiter(place: Place, name: str) -> Iterator[blocking.Tenure]:
    """Somebody else who waits for a lock as long as this lasts."""
    with place.app() as app:
        took = threading.Event()

        def wait() -> None:
            with app.lock(name, wait=30):
                took.set()

        thread = threading.Thread(target=wait)
        thread.start()
        wait_until(lambda: any(lease.waiting for lease in app.locks(name)), 10, "it waits")
        yield app
        thread.join(30)
        assert took.is_set()


def test_ls_lists_who_holds_what(cli: Run, place: Place):
    with place.app() as app, app.lock("invoice:42") as hold, app.semaphore("gpu", 3):
        result = cli(*place.options, "locks", "ls")
    assert result.code == 0
    header, gpu, invoice = result.out.splitlines()
    assert header.split() == ["NAME", "HOLDER", "FENCE", "FOR", "EXPIRES", "SLOTS", "WAITING"]
    host_and_pid = f"{hold.meta['host']}:{hold.meta['pid']}"
    assert invoice.split()[:3] == ["invoice:42", host_and_pid, str(hold.fence)]
    assert re.search(r"[\d.]+ m?s +(2\d|30) s +1 of 1 +0$", invoice)
    assert "1 of 3" in gpu
    assert f"(from --url), namespace {place.namespace}" in result.err


def test_ls_takes_a_prefix(cli: Run, place: Place):
    with place.app() as app, app.lock("a:1"), app.lock("a%:2"), app.lock("b:1"):
        result = cli("locks", "ls", "a%", *place.options)
    assert [line.split()[0] for line in result.out.splitlines()] == ["NAME", "a%:2"]


def test_ls_of_nothing_says_so(cli: Run, place: Place):
    result = cli(*place.options, "locks", "ls")
    assert (result.code, result.out) == (0, "No lock is held.\n")
    result = cli(*place.options, "locks", "ls", "--json")
    assert result.json == {
        "store": place.url,
        "namespace": place.namespace,
        "prefix": "",
        "locks": [],
    }


def test_ls_of_nothing_names_the_prefix(cli: Run, place: Place):
    with place.app() as app, app.lock("held"):
        result = cli(*place.options, "locks", "ls", "nope")
    assert result.out == 'No lock whose name starts with "nope" is held.\n'


def test_ls_lists_only_what_is_older(cli: Run, place: Place):
    with place.app() as app:
        holds = [app.semaphore("gpu", 2).acquire()]
        wait_until(lambda: app.locks("gpu")[0].held_for > 0.5, 10)
        holds.append(app.semaphore("gpu", 2).acquire())
        document = cli("locks", "ls", "--older", "0.5", "--json", *place.options).json
        none = cli("locks", "ls", "--older", "1h", *place.options)
        none_here = cli("locks", "ls", "gpu", "--older", "1h", *place.options)
        for hold in holds:
            hold.release()
    [lock] = document["locks"]
    assert document["older"] == 0.5
    assert lock["name"] == "gpu"
    assert lock["holders"][0]["fence"] == holds[0].fence
    assert (none.code, none.out) == (0, "No lock is held, or waited for, for more than 1 h.\n")
    assert none_here.out == (
        'No lock whose name starts with "gpu" is held, or waited for, for more than 1 h.\n'
    )


def test_ls_lists_waiters_that_are_older_too(cli: Run, place: Place):
    with place.app() as app:
        hold = app.lock("busy").acquire()
        with waiter(place, "busy"):
            wait_until(lambda: all(lease.held_for > 0.1 for lease in app.locks("busy")), 10)
            listed = cli("locks", "ls", "--older", "0.1", *place.options)
            hold.release()
    holder, waits = listed.out.splitlines()[1:]
    assert str(hold.fence) in holder
    assert "waits" in waits


def test_rows_of_younger_holders_are_left_out_and_still_counted():
    old, young = (
        Lease(key="gpu", holder=name, fence=fence, limit=2, held_for=held_for)
        for name, fence, held_for in (("old", 1, 600.0), ("young", 2, 300.0))
    )
    early, late = (
        Lease(key="gpu", holder=name, waiting=True, held_for=held_for)
        for name, held_for in (("early", 301.0), ("late", 299.0))
    )
    table = listed([old, young, early, late], "", waiting=False, older=300.0)
    [held, waits] = rendered(table)
    assert held.split()[:3] == ["gpu", "old", "1"]
    assert held.split()[-4:] == ["2", "of", "2", "2"]
    assert waits.split()[:3] == ["gpu", "early", "waits"]


def rendered(table: RenderableType) -> list[str]:
    """Return the rows of a table, without its header."""
    console = Console(width=120, file=io.StringIO())
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()[1:]


def test_ls_refuses_a_time_that_is_none(cli: Run, place: Place):
    result = cli("locks", "ls", "--older", "soon", *place.options)
    assert result.code == 2
    assert "'soon' is not a length of time" in result.err


@pytest.mark.parametrize("command", [["ls"], ["show", "a"], ["release", "a", "--all", "--yes"]])
def test_a_store_in_memory_says_that_nobody_else_is_seen(cli: Run, command: list[str]):
    result = cli("--url", "memory://", "locks", *command)
    assert result.code == 0
    assert "this process only" in result.err


@pytest.mark.parametrize("columns", [20, 80, 100])
def test_a_terminal_shows_names_and_fences_whole(tmp_path: Path, columns: int):
    url = f"sqlite:///{tmp_path / 'tenure.db'}"
    name = "invoice of the month:" + "42" * 5
    with blocking.Tenure(url) as app:
        meta = {"host": "web-7d9f8c6b5-x2x8z.shop.example.org", "pid": "4711"}
        with app.lock(name, meta=meta) as hold:
            options = ("--url", url, "locks")
            listed = on_a_terminal(*options, "ls", COLUMNS=str(columns), NO_COLOR="1")
            shown = on_a_terminal(*options, "show", name, COLUMNS=str(columns), NO_COLOR="1")
    [row] = [line for line in listed.splitlines() if name in line]
    assert re.search(rf" web-.*\.\..*:4711 +{hold.fence} ", row)
    assert len(row) <= max(columns, 80)  # wider than some terminals, which wrap it
    assert "".join(name.split()) in "".join(plain(shown).split())
    assert ("web-7d9f8c6b5-x2x8z.shop.example.org:4711" in shown) == (columns > 60)


def test_a_narrow_terminal_leaves_out_columns(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'tenure.db'}"
    with blocking.Tenure(url) as app, app.lock("invoice:42") as hold:
        options = ("--url", url, "locks", "ls")
        header, row = plain(on_a_terminal(*options, COLUMNS="60")).splitlines()[-2:]
    assert header.split() == ["NAME", "HOLDER", "FENCE", "FOR", "WAITING"]
    assert row.split()[0] == "invoice:42"
    assert row.split()[2] == str(hold.fence)
    assert max(map(len, (header.rstrip(), row.rstrip()))) <= 60


def test_waiters_are_counted_and_on_demand_listed(cli: Run, place: Place):
    with place.app() as app:
        hold = app.lock("busy").acquire()
        with waiter(place, "busy"):
            counted = cli("locks", "ls", *place.options)
            listed = cli("locks", "ls", "--waiting", *place.options)
            hold.release()
    assert counted.out.splitlines()[1].split()[-1] == "1"
    assert len(counted.out.splitlines()) == 2
    assert "waits" in listed.out.splitlines()[2]


def test_show_tells_all_about_one(cli: Run, place: Place):
    with place.app() as app, app.lock("invoice:421"):
        hold = app.lock("invoice:42", ttl=60, meta={"why": "month end"}).acquire()
        with waiter(place, "invoice:42"):
            result = cli(*place.options, "locks", "show", "invoice:42")
            document = cli(*place.options, "locks", "show", "invoice:42", "--json").json
            hold.release()
    assert result.code == 0
    assert result.out.startswith("invoice:42  1 of 1 held, 1 waiting\n")
    for fact in (str(hold.fence), hold.holder, "why        month end", "unless renewed"):
        assert fact in result.out
    [holder] = document["holders"]
    assert (holder["fence"], holder["holder"], holder["ttl"]) == (hold.fence, hold.holder, 60)
    assert holder["meta"]["why"] == "month end"
    assert 0 < holder["expires_in"] <= 60
    [waits] = document["waiting"]
    assert waits["waits_for"] > 0
    assert waits["holder"] != hold.holder


def test_show_of_a_free_lock_says_so(cli: Run, place: Place):
    result = cli(*place.options, "locks", "show", "free")
    assert (result.code, result.out) == (0, "free is not held, and no process waits for it.\n")


def test_release_takes_one_holder_out(cli: Run, place: Place):
    with place.app() as app:
        hold = app.semaphore("gpu", 2, on_lost="ignore").acquire()
        other = app.semaphore("gpu", 2, on_lost="ignore").acquire()
        result = cli(*place.options, "locks", "release", "gpu", "--fence", str(hold.fence), "--yes")
        assert result.code == 0
        assert (
            result.out
            == f"Released gpu, fence {hold.fence}, of {hold.meta['host']}:{hold.meta['pid']}.\n"
        )
        assert [lease.fence for lease in app.locks("gpu")] == [other.fence]
        with pytest.raises(LeaseLost):
            hold.renew()
        other.renew()
        other.release()


def test_release_hands_over_to_who_waits(cli: Run, place: Place):
    with place.app() as app:
        hold = app.lock("stuck", ttl=3600, on_lost="ignore").acquire()
        with waiter(place, "stuck"):
            document = cli(
                *place.options, "locks", "release", "stuck", "--all", "--yes", "--json"
            ).json
        assert [holder["released"] for holder in document["holders"]] == [True]
        assert document["holders"][0]["fence"] == hold.fence
        hold.release()


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("", 1)])
def test_release_says_what_it_means_and_asks(cli: Run, place: Place, answer: str, code: int):
    with place.app() as app:
        hold = app.lock("stuck", on_lost="ignore").acquire()
        result = cli(*place.options, "locks", "release", "stuck", "--all", answer=answer)
        assert result.code == code
        assert "keeps working for up to 9 s" in result.err
        assert "only writes that check the fence are safe" in result.err
        assert "Release it? [y/N]" in result.err
        assert ("nothing was released" in result.err) == bool(code)
        assert bool(app.locks("stuck")) == bool(code)
        hold.release()


def test_release_wants_the_right_fence(cli: Run, place: Place):
    with place.app() as app, app.lock("stuck") as hold:
        result = cli(*place.options, "locks", "release", "stuck", "--fence", "7", "--yes")
        assert result.code == 2
        assert (
            f"no holder of 'stuck' has the fence 7. Its holders have the fences {hold.fence}."
            in result.err
        )
        assert [lease.fence for lease in app.locks()] == [hold.fence]
    result = cli(*place.options, "locks", "release", "stuck", "--all", "--yes")
    assert (result.code, result.out) == (0, "stuck is not held.\n")


def test_release_wants_to_know_whom(cli: Run):
    for arguments in ([], ["--fence", "7", "--all"]):
        result = cli("locks", "release", "stuck", *arguments)
        assert result.code == 2
        assert "--fence N, or --all" in result.err


def test_names_cannot_steer_the_terminal(cli: Run, place: Place):
    name = "evil\x1b[2J\r\nname\u202e"
    with place.app() as app, app.lock(name, meta={"why": "\x07"}):
        listed = cli(*place.options, "locks", "ls")
        shown = cli(*place.options, "locks", "show", name)
        document = cli(*place.options, "locks", "ls", "--json")
    assert r"evil\x1b[2J\r\nname\u202e" in listed.out
    for result in (listed, shown, document):
        assert not {"\x1b", "\r", "\x07", "\u202e"} & set(result.out)
    assert json.loads(document.out)["locks"][0]["name"] == name


def test_a_long_list_says_that_it_was_cut(cli: Run, place: Place):
    with place.app() as app, app.lock("a"), app.lock("b"), app.lock("c"):
        result = cli(*place.options, "locks", "ls", "--limit", "2")
    assert len(result.out.splitlines()) == 3
    assert "Only the first 2" in result.err


@pytest.mark.parametrize("command", [["ls"], ["show", "a"], ["release", "a", "--all", "--yes"]])
def test_looking_creates_no_store(cli: Run, tmp_path: Path, command: list[str]):
    result = cli("--url", "sqlite:///nothing.db", "locks", *command)
    assert result.code == 2
    assert "there is no file" in result.err
    assert "or run 'tenure migrate'" in result.err
    assert [*tmp_path.iterdir()] == []
