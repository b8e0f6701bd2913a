"""The mistakes people make first get an answer that helps."""

import asyncio
from pathlib import Path

import pytest

from tenure import ConfigError, LeaseLost, StoreError, Tenure, blocking


async def test_a_finished_hold_protects_no_block(app):
    async with app.lock("x") as hold:
        pass
    with pytest.raises(LeaseLost, match="it was released"):
        async with hold:
            pytest.fail("the body must not run")


async def test_a_lost_hold_protects_no_block(app, clock):
    hold = await app.lock("x", ttl=10).acquire()
    clock.shift(60)
    with pytest.raises(LeaseLost):
        async with hold:
            pytest.fail("the body must not run")
    await hold.release()


def test_a_finished_hold_protects_no_block_in_threads():
    with blocking.Tenure("memory://") as app:
        with app.lock("x") as hold:
            pass
        with pytest.raises(LeaseLost), hold:
            pytest.fail("the body must not run")


def test_an_app_is_used_on_the_loop_that_opened_it():
    app = Tenure("memory://")
    asyncio.run(app.open())

    async def use() -> None:
        await app.lock("x").acquire()

    with pytest.raises(StoreError, match="another event loop"):
        asyncio.run(use())


def test_the_error_of_a_plain_with_says_what_to_use():
    app = Tenure("memory://")
    with pytest.raises(TypeError, match=r"async with.*tenure\.blocking"), app:
        pass
    with pytest.raises(TypeError, match="async with"), app.lock("x"):
        pass


@pytest.mark.parametrize("url", [Path("x.db"), 3, b"memory://"])
def test_a_url_is_text(url):
    with pytest.raises(ConfigError, match="url must be text"):
        Tenure(url)


def test_an_empty_url_or_namespace_is_no_default():
    with pytest.raises(ConfigError, match="not a store URL"):
        Tenure("")
    with pytest.raises(ConfigError, match="namespace"):
        Tenure("memory://", namespace="")


async def test_with_lock_demands_a_function(app):
    with pytest.raises(ConfigError, match="do not call it"):
        await app.with_lock("x", 5, ttl=30)
    with pytest.raises(ConfigError, match="meta"):
        app.lock("x", meta="abc")

    async def tell(hold: object) -> None: ...

    with pytest.raises(ConfigError, match="plain function"):
        app.lock("x", on_lost=tell)
    with pytest.raises(ConfigError, match="plain function"):
        blocking.Tenure("memory://").with_lock("x", tell, None, ttl=5)
    with pytest.raises(TypeError, match="neither true nor false"):
        bool(blocking.Tenure("memory://").lock("x"))
    with pytest.raises(ConfigError, match="days"):
        app.lock("x", ttl=1e12)
