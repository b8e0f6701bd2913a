import msgspec
import pytest

from tenure.core.leases import (
    Busy,
    Finding,
    Grade,
    Granted,
    Lease,
    Mark,
    Traits,
    check_limit,
    check_meta,
    check_name,
    check_namespace,
)
from tenure.errors import ConfigError

LEASE = Lease(key="key", holder="ann", fence=7)


@pytest.mark.parametrize(
    "name", ["a", " ", "x" * 200, "🌍" * 200, "it's\n{a}%_*\\", "\ufffe", "日本"]
)
def test_a_name_may_be_almost_any_text(name: str):
    assert check_name(name, "the lock's name") == name


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "the lock's name must not be empty"),
        ("x" * 201, "201 characters; at most 200"),
        ("a\0b", "NUL or a lone surrogate"),
        ("\ud800", "NUL or a lone surrogate"),
        ("a\udfff", "NUL or a lone surrogate"),
        (b"bytes", "the lock's name must be text, not bytes"),
        (None, "must be text, not NoneType"),
        (7, "must be text, not int"),
    ],
)
def test_a_name_that_stores_cannot_keep_is_refused(name, why: str):
    with pytest.raises(ConfigError, match=why):
        check_name(name, "the lock's name")


@pytest.mark.parametrize("namespace", ["a", "tenure", "A-z_0.9:x", "x" * 60])
def test_a_namespace_is_a_short_plain_word(namespace: str):
    assert check_namespace(namespace) == namespace


@pytest.mark.parametrize(
    "namespace", ["", "x" * 61, "a b", "{a}", "a}", "a/b", "ä", "a\n", "a\0", "*", None, 7, b"a"]
)
def test_a_namespace_that_cannot_be_a_hash_tag_is_refused(namespace):
    with pytest.raises(ConfigError, match="must have 1 to 60 characters"):
        check_namespace(namespace)


@pytest.mark.parametrize("limit", [1, 3, 1_000_000])
def test_a_limit_is_a_whole_number(limit: int):
    assert check_limit(limit) == limit


@pytest.mark.parametrize("limit", [0, -1, 1_000_001, 1.0, True, "3", None])
def test_a_limit_that_makes_no_sense_is_refused(limit):
    with pytest.raises(ConfigError, match="whole number from 1 to 1,000,000"):
        check_limit(limit)


@pytest.mark.parametrize("meta", [{}, {"": ""}, {"a": "x" * 1023}, {"🌍": "läuft"}])
def test_meta_maps_text_to_text(meta: dict[str, str]):
    assert check_meta(meta) == meta


@pytest.mark.parametrize("meta", [{"a": 1}, {1: "a"}, {"a": None}, {"a": ["b"]}])
def test_meta_of_other_types_is_refused(meta):
    with pytest.raises(ConfigError, match="meta must map text to text"):
        check_meta(meta)


def test_meta_is_small():
    with pytest.raises(ConfigError, match="1025 characters; at most 1024"):
        check_meta({"a": "x" * 1024})


def test_better_grades_are_smaller():
    assert sorted([Grade.D, Grade.B, Grade.A, Grade.C]) == [Grade.A, Grade.B, Grade.C, Grade.D]
    assert not Grade.A < Grade.A


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (LEASE, "fence"),
        (Granted(LEASE), "lease"),
        (Busy(1.0), "ahead"),
        (Mark("key", "value", 7), "value"),
        (Traits(grade=Grade.A, scope="host", push=False, transactional=True), "push"),
    ],
)
def test_values_cannot_be_changed(value: msgspec.Struct, field: str):
    with pytest.raises(AttributeError):
        setattr(value, field, None)


def test_a_lease_without_a_fence_is_known_by_its_holder_alone():
    assert Lease(key="key", holder="ann").fence == 0


def test_a_lease_is_a_lock_unless_it_has_a_larger_limit():
    assert Lease(key="key", holder="ann").limit == 1


def test_findings_that_are_not_ok_need_advice():
    assert Finding("ok", "clock", "fine").advice == ""
    with pytest.raises(AssertionError, match="nothing is advised about 'clock'"):
        Finding("warning", "clock", "slow")


@pytest.mark.parametrize(
    ("ahead", "error", "level"),
    [(0, 0, "ok"), (0.5, 0.1, "ok"), (-1, 0, "ok"), (1.5, 0.6, "ok"), (1.5, 0.1, "warning")],
)
def test_a_clock_is_judged_by_what_is_certain(ahead: float, error: float, level: str):
    assert Finding.of_clock(ahead, error).level == level
    assert Finding.of_clock(-ahead, error).level == level


def test_a_clock_that_is_off_is_shown_with_its_direction():
    assert "3.0 s (give or take 0.010 s) ahead of" in Finding.of_clock(3, 0.01).detail
    assert "behind" in Finding.of_clock(-3, 0.01).detail
