"""Stores keep documents and count runs; what those mean is decided in `core`.

Policy that slips back into a store would be there four times, in three languages. It is found by
its words, also in comments.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STORES = ROOT / "src" / "tenure" / "stores"
SOURCES = [path for path in sorted(STORES.rglob("*")) if path.suffix in {".py", ".lua", ".sql"}]

# Left out are words that stores need in another sense: drivers "retry" to connect, queues are
# "paused", SQL and pages have a "cursor", jobs have a "revision", structs are "frozen".
PARTS = ("rerun", "interrupted", "successor", "calendar", "overlap", "blackout")
"""Found inside of names, too: `_successor`, `overlaps_with`."""
WORDS = ("delays", "digests")
"""Found as whole words only: `_delays` and `_digests` are lists of what jobs have, one for each."""
POLICY = re.compile(
    rf"(?<![a-z])(?:{'|'.join(PARTS)})s?(?![a-z])|\b(?:{'|'.join(WORDS)})\b", re.IGNORECASE
)

LINES_MAX = 350
"""Of schedule code in one store: what fits into a head."""
SCHEDULE_CODE = re.compile(r"schedule\w*|commit|declare|read")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(STORES)))
def test_a_store_has_no_word_of_policy(path: Path):
    lines = path.read_text(encoding="utf-8").splitlines()
    offending = [f"{number}: {line}" for number, line in enumerate(lines, 1) if POLICY.search(line)]
    assert not offending, f"in {path.relative_to(ROOT)}; it belongs into tenure.core"


@pytest.mark.parametrize("store", ["memory", "sqlite", "redis", "postgres"])
def test_schedules_take_few_lines_in_each_store(store: str):
    counts = {
        str(path.relative_to(STORES)): len(path.read_text(encoding="utf-8").splitlines())
        for path in SOURCES
        if path.is_relative_to(STORES / store) and SCHEDULE_CODE.fullmatch(path.stem)
    }
    assert counts
    assert sum(counts.values()) <= LINES_MAX, counts


@pytest.mark.parametrize(
    ("line", "is_policy"),
    [
        ("if schedule.successor:", True),
        ("_Successors = []", True),
        ("-- the calendar of a schedule", True),
        ("    rerun boolean NOT NULL,", True),
        ("UNION ALL -- unless they overlap", True),
        ("local delays = {}", True),
        ("digests text[]", True),
        ("unnest(_delays, _digests)", False),
        ("retry=None, cursor=cursor, delay=5", False),
        ("an uninterrupted rerunning", False),
    ],
)
def test_words_of_policy_are_told_from_others(line: str, is_policy: bool):
    assert bool(POLICY.search(line)) is is_policy
