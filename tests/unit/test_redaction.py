import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core.redaction import redact


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("redis://[::1]:6379/0", "redis://[::1]:6379/0"),
        ("redis://:secret@host:6379/0", "redis://:***@host:6379/0"),
        ("redis://:@host:6379/0", "redis://:***@host:6379/0"),
        ("redis://user:secret@[::1]:1/0", "redis://user:***@[::1]:1/0"),
        ("postgresql://user:sec%40ret@host/db?x=1", "postgresql://user:***@host/db?x=1"),
        ("postgresql://user:host@host/db", "postgresql://user:***@host/db"),
        ("postgresql://user@host/db", "postgresql://user@host/db"),
        ("postgresql://ann:secret@one:1,two:2/db", "postgresql://ann:***@one:1,two:2/db"),
        ("redis://user:a:b@host/0", "redis://user:***@host/0"),
        ("redis://ann:secret@/run/x.sock?db=1", "redis://ann:***@/run/x.sock?db=1"),
        ("sqlite:////srv/tenure.db", "sqlite:////srv/tenure.db"),
        ("sqlite:////srv/a:b@c/tenure.db", "sqlite:////srv/a:b@c/tenure.db"),
        ("memory://", "memory://"),
        ("tenure.db", "tenure.db"),
        ("user:secret@host", "user:***@host"),
        ("", ""),
    ],
)
def test_a_password_is_hidden_and_the_rest_shown(url: str, shown: str):
    assert redact(url) == shown


@pytest.mark.parametrize("odd", "@/?#:[]%& =+\\\"'\n\0ä🌍")
def test_a_password_may_have_odd_characters(odd: str):
    for password in (f"se{odd}cret", f"{odd}secret", f"secret{odd}", f"s{odd}e{odd}cret"):
        shown = redact(f"redis://ann:{password}@host:1/0")
        assert "cret" not in shown
        assert shown == "redis://ann:***@host:1/0"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h/0?password=secret&db=1", "redis://h/0?password=***&db=1"),
        ("redis://h:1/0?db=1&password=se@cret", "redis://h:1/0?db=1&password=***"),
        ("redis:///run/x.sock?password=se@c:ret", "redis:///run/x.sock?password=***"),
        ("redis://[::1]:1/0?password=se@cret", "redis://[::1]:1/0?password=***"),
        ("redis://ann:secret@h:1/0?password=se@cret", "redis://ann:***@h:1/0?password=***"),
        ("redis://ann:sec?password=ret@h/0", "redis://ann:***@h/0"),
        ("redis://ann:sec?a=b&password=ret@h/0", "redis://ann:***@h/0"),
        ("redis://h/0?password=sec#ret", "redis://h/0?password=***"),
        ("redis://h/0?password=sec?ret", "redis://h/0?password=***"),
        ("redis://h/0?ssl_password=secret", "redis://h/0?ssl_password=***"),
        ("redis://h/0?Pass%77ord=secret", "redis://h/0?Pass%77ord=***"),
        ("redis://h/0?password=", "redis://h/0?password=***"),
        ("postgresql://a:s@h/d?sslpassword=secret", "postgresql://a:***@h/d?sslpassword=***"),
        ("postgresql:///d?host=%2Frun%2Fpg", "postgresql:///d?host=%2Frun%2Fpg"),
        ("redis://h/0?username=a@b", "redis://h/0?username=a@b"),
    ],
)
def test_an_option_with_a_password_is_hidden(url: str, shown: str):
    assert redact(url) == shown


@pytest.mark.parametrize("url", ["redis://[::1/0", "redis://:secret@::1]/0", 7, None, b"redis://h"])
def test_an_unreadable_url_is_not_shown(url: object):
    assert redact(url) == "<unreadable URL>"


@given(st.text())
def test_no_text_is_too_odd(text: str):
    assert isinstance(redact(text), str)
    assert isinstance(redact(f"redis://{text}"), str)


@given(st.text().map(lambda text: f"KEY-{text}-KEY"))
def test_no_password_is_shown(password: str):
    assert "KEY" not in redact(f"redis://ann:{password}@host/0")
