"""What can be wrong when a lease is to guard a user's own transaction, in one voice."""

from __future__ import annotations

from tenure.errors import ConfigError

__all__ = ["no_open_transaction", "no_transactions", "other_database", "unknown_connection"]


def no_transactions(url: str) -> ConfigError:
    """The store cannot take part in any transaction."""
    return ConfigError(
        f"{url} has no transactions that a lease could guard. Pass hold.fence along with the "
        "write instead, and let its target refuse lower fences."
    )


def unknown_connection(connection: object, known: str) -> ConfigError:
    """It is not a connection that this store can speak through."""
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    return ConfigError(f"guard() cannot use a {kind}; give it a {known}.")


def no_open_transaction(how: str) -> ConfigError:
    """A guard outside a transaction would end at once."""
    return ConfigError(
        f"guard() binds an open transaction to the lease, but none is open: begin it ({how}) first."
    )


def other_database(url: str) -> ConfigError:
    """The connection leads somewhere else than the store."""
    return ConfigError(
        f"guard() needs a connection to the database of the store, {url}; its tables are not there."
    )
