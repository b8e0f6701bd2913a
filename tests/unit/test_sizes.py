"""Sizes as people write and read them."""

import pytest

from tenure.core.sizes import as_size, size
from tenure.errors import ConfigError


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (0, 0),
        (7, 7),
        ("7", 7),
        ("7B", 7),
        ("1KB", 10**3),
        ("1 mb", 10**6),
        ("1GB", 10**9),
        ("1TB", 10**12),
        ("1KiB", 2**10),
        ("1MiB", 2**20),
        ("1GiB", 2**30),
        ("1TiB", 2**40),
        ("1.5KiB", 1536),
        ("0.0005KB", 0),
    ],
)
def test_a_size_may_be_written_in_many_ways(value: object, count: int):
    assert size(value, "limit") == count


@pytest.mark.parametrize(
    "value", [True, None, 1.5, b"1", "", "MB", "-1", "1 XB", "1PB", "1e3", "9" * 400 + "TB"]
)
def test_an_invalid_size_is_refused(value: object):
    with pytest.raises(ConfigError, match="limit must be a number of bytes"):
        size(value, "limit")


def test_a_size_has_a_minimum():
    assert size(10, "limit", minimum=10) == 10
    assert size(0, "limit") == 0
    with pytest.raises(ConfigError, match="limit must be at least 10 bytes, not 9"):
        size(9, "limit", minimum=10)
    with pytest.raises(ConfigError, match="limit must be at least 0 bytes, not -1"):
        size(-1, "limit")


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 bytes"),
        (1234, "1,234 bytes"),
        (999_999, "999,999 bytes"),
        (1_000_000, "1 MB"),
        (2_600_000_000, "2,600 MB"),
    ],
)
def test_a_size_in_words(count: int, words: str):
    assert as_size(count) == words
