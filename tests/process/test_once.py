"""`once` with processes that die at every point of it."""

from itertools import pairwise
from pathlib import Path

from tests.process.migrator import TTL
from tests.process.site import Site
from tests.rig.processes import Child
from tests.rig.sizes import SIZE

# Every call of `once` to its store, cut off on either side, and the body itself.
MOMENTS = [
    "before acquire",
    "after acquire",
    "before mark",
    "after mark",
    "before release",
    "in body",
]


def bodies(ledger: Path) -> list[tuple[float, float | None]]:
    """Return when each body began and, unless its process died in it, when it ended."""
    begun, ended = instants(ledger, "begin"), instants(ledger, "end")
    return sorted((at, ended.get(pid)) for pid, at in begun.items())


def instants(ledger: Path, what: str) -> dict[str, float]:
    """Return when each process did something."""
    lines = (line.split() for line in ledger.read_text().splitlines())
    return {pid: float(at) for done, pid, at in lines if done == what}


def run_all(site: Site, ledger: Path, version: str, moments: list[str]) -> list[Child]:
    children = [site.start("migrator", ledger, version, moment) for moment in moments]
    for child in children:
        child.expect("ready", SIZE.patience)
    for child in children:
        child.send("go")
    for child in children:
        child.wait(SIZE.patience + 5 * len(moments))
    return children


async def test_it_succeeds_once_although_processes_die_at_every_point(site: Site, tmp_path: Path):
    survivors = [""] * max(len(MOMENTS), SIZE.processes)
    mixed = [moment for pair in zip(MOMENTS, survivors, strict=False) for moment in pair]
    ledger = tmp_path / "first"
    children = run_all(site, ledger, "1", mixed)
    # Who was not to die has learned that it is done; at most one of them did it itself.
    alive = [child for child, moment in zip(children, mixed, strict=True) if not moment]
    ran = [child.expect("done", SIZE.patience)["ran"] for child in alive]
    assert sum(ran) <= 1
    runs = bodies(ledger)
    assert any(end is not None for _, end in runs)
    for (_, end), (begin, _) in pairwise(runs):
        # A body whose process died in it is followed only after its lease has run out.
        assert end is None or begin > end
    # A version that is done is done for all processes.
    again = run_all(site, tmp_path / "again", "1", ["", ""])
    assert [child.expect("done", SIZE.patience)["ran"] for child in again] == [False, False]
    # A new version is another matter.
    new = run_all(site, tmp_path / "new", "2", ["", ""])
    assert sorted(child.expect("done", SIZE.patience)["ran"] for child in new) == [False, True]


async def test_a_body_that_died_is_followed_after_its_lease(site: Site, tmp_path: Path):
    ledger = tmp_path / "ledger"
    run_all(site, ledger, "1", ["in body"])
    run_all(site, ledger, "1", [""])
    (_, end), (second, _) = bodies(ledger)
    assert end is None
    # Its lease began after it had asked, and before its body.
    assert second - min(instants(ledger, "ask").values()) >= TTL
