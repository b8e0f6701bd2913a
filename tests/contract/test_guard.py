"""guard: what it refuses. What it protects is shown with real transactions in tests/locks."""

import pytest

from tenure.errors import ConfigError
from tests.contract import calls


async def test_something_that_is_no_connection_is_refused(store):
    lease = await calls.take(store, "key", "holder")
    with pytest.raises(ConfigError, match="guard"):
        store.guard(object(), lease)


async def test_only_stores_with_transactions_ask_for_a_connection(store):
    lease = await calls.take(store, "key", "holder")
    complaint = "give it a" if store.traits.transactional else "no transactions"
    with pytest.raises(ConfigError, match=complaint):
        store.guard(object(), lease)
