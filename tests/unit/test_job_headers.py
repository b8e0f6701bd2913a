"""Headers of jobs: which ones every store can keep."""

import pytest

from tenure import ConfigError
from tenure.core.jobs.headers import HEADERS_MAX, HEADERS_SIZE_MAX, check_headers
from tenure.core.jobs.options import read_options, with_headers, write_options


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-tenant": "acme", "trace.id_2": "", "0": "\u00e4\n\U0001f600"},
        {f"h{number}": "" for number in range(HEADERS_MAX)},
        {"h": "x" * (HEADERS_SIZE_MAX - 1)},
        {"h": "\u00e4" * ((HEADERS_SIZE_MAX - 2) // 2), "i": ""},
    ],
)
def test_headers_within_the_limits_are_kept_unchanged(headers):
    assert check_headers(headers) == headers
    assert read_options(write_options(headers=check_headers(headers))).headers == headers


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        (None, "mapping of text to text, not NoneType"),
        ([("a", "b")], "mapping of text to text, not list"),
        ({"": "secret"}, "header name '' must consist of lower-case letters"),
        ({"X-Tenant": "secret"}, "'X-Tenant' must consist of lower-case letters"),
        ({"x tenant": "secret"}, "'x tenant' must consist"),
        ({"x-tenant\n": "secret"}, r"'x-tenant\\n' must consist"),
        ({"x\u00e4": "secret"}, "must consist"),
        ({7: "secret"}, "header name 7 must consist"),
        ({"a": 7}, "header 'a' must be text, not int"),
        ({"a": b"secret"}, "header 'a' must be text, not bytes"),
        ({"a": "secret\0"}, "header 'a' contains a NUL or a lone surrogate"),
        ({"a": "secret\ud800"}, "header 'a' contains a NUL or a lone surrogate"),
        ({f"h{number}": "secret" for number in range(HEADERS_MAX + 1)}, "at most 20 headers, not"),
        ({"h": "x" * HEADERS_SIZE_MAX}, "take 4,097 bytes, and a job has at most 4,096"),
        ({"h": "\u00e4" * 2048, "i": ""}, "take 4,098 bytes"),
        ({"h" * HEADERS_SIZE_MAX: "x"}, "take 4,097 bytes"),
    ],
)
def test_headers_that_a_store_cannot_keep_are_refused_without_their_values(headers, problem):
    with pytest.raises(ConfigError, match=problem) as refused:
        check_headers(headers)
    assert "secret" not in str(refused.value)


def test_headers_replace_those_of_stored_options_and_nothing_else():
    written = write_options(retry="r", rerun=False, headers={"a": "1"})
    changed = read_options(with_headers(written, {"b": "2"}))
    assert (changed.retry, changed.rerun, changed.headers) == ("r", False, {"b": "2"})
    assert with_headers(write_options(headers={"a": "1"}), {}) == ""
