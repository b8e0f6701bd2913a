"""Bad input gets a typed error that says what is wrong, and nothing is sent."""

import math

import pytest

from tenure import ConfigError, Tenure


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("", "must not be empty"),
        ("x" * 201, "201 characters"),
        ("nul\0", "NUL"),
        ("\ud800", "surrogate"),
        (42, "must be text"),
    ],
)
async def test_names(app, faults, name, complaint):
    with pytest.raises(ConfigError, match=complaint):
        app.lock(name)
    with pytest.raises(ValueError, match=complaint):
        app.semaphore(name, 2)
    assert faults.calls["acquire"] == 0


@pytest.mark.parametrize("ttl", [0, -1, math.nan, math.inf, "soon", None, True, 0.5])
async def test_ttls(app, ttl):
    with pytest.raises(ConfigError, match="ttl"):
        app.lock("x", ttl=ttl)


@pytest.mark.parametrize("limit", [0, -1, 1.5, "3", True, None])
async def test_limits(app, limit):
    with pytest.raises(ConfigError, match="limit"):
        app.semaphore("x", limit)


@pytest.mark.parametrize("wait", [-1, math.nan, "later"])
async def test_waits(app, wait):
    with pytest.raises(ConfigError, match="wait"):
        app.lock("x", wait=wait)
    with pytest.raises(ConfigError, match="wait"):
        await app.lock("x").acquire(wait=wait)


@pytest.mark.parametrize("on_lost", ["explode", None, 3])
async def test_on_lost(app, on_lost):
    with pytest.raises(ConfigError, match="on_lost"):
        app.lock("x", on_lost=on_lost)


@pytest.mark.parametrize("meta", [{"a": 1}, {1: "a"}, {"a": "b" * 2000}])
async def test_meta(app, meta):
    with pytest.raises(ConfigError, match="meta"):
        app.lock("x", meta=meta)


@pytest.mark.parametrize("url", ["mysql://host/db", "tenure.db", "://", "redis:/host"])
def test_urls(url):
    with pytest.raises(ConfigError, match="not a store URL"):
        Tenure(url)


def test_a_password_in_a_wrong_url_is_not_shown():
    with pytest.raises(ConfigError) as caught:
        Tenure("mysql://me:secret@host/db")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("namespace", ["a b", "a{b}", "x" * 61, "ü", "a\0"])
def test_namespaces(namespace):
    with pytest.raises(ConfigError, match="namespace"):
        Tenure("memory://", namespace=namespace)


def test_migrate_and_require():
    with pytest.raises(ConfigError, match="migrate"):
        Tenure("memory://", migrate="yes")
    with pytest.raises(ConfigError, match="require"):
        Tenure("memory://", require="AAA")


async def test_a_weaker_store_than_required_is_refused():
    with pytest.raises(ConfigError, match="grade D"):
        await Tenure("memory://", require="A").open()


async def test_an_app_is_opened_once(clock):
    app = Tenure("memory://", clock=clock)
    async with app:
        with pytest.raises(ConfigError, match="open already"):
            await app.open()
