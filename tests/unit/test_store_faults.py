"""Errors of drivers and servers become errors of Tenure: each kind, and its advice."""

import asyncio
import ssl

import asyncpg
import pytest
from redis import exceptions

from tenure.errors import ConfigError, StoreError, StoreFull, StoreUnavailable, TenureError
from tenure.stores.postgres import errors as postgres
from tenure.stores.redis import errors as redis
from tenure.stores.redis.address import Address
from tenure.stores.redis.topology import address_of

# Redis.

PLAIN = Address("redis://ann:secret@host")
CLUSTER = address_of("redis+cluster://ann:secret@host", "{tenure:x}:")


def reply(text: str) -> exceptions.ResponseError:
    return exceptions.ResponseError(text)


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (reply("NOAUTH log in."), StoreError, "refused the user 'ann': NOAUTH log in. Check user"),
        (reply("NOPERM get"), StoreError, "refused the user 'ann': NOPERM get. Check user"),
        (reply("WRONGPASS bad"), StoreError, "refused the user 'ann'"),
        (exceptions.AuthenticationError("no"), StoreError, "refused the user 'ann': no."),
        (reply("ERR ACL failure in script: no"), StoreError, "refused the user"),
        (reply("ERR The user executing the script can't run get"), StoreError, "refused the user"),
        (reply("BUSY x"), StoreUnavailable, "is busy with a script (BUSY x)."),
        (reply("CLUSTERDOWN x"), StoreUnavailable, "belongs to a cluster that is down"),
        (reply("LOADING x"), StoreUnavailable, "is loading its data"),
        (reply("MASTERDOWN x"), StoreUnavailable, "is a replica without its primary"),
        (reply("MISCONF cannot fork"), StoreUnavailable, "refuses writes because it cannot save"),
        (reply("MISCONF No space left on device"), StoreFull, "because its disk is full"),
        (reply("NOREPLICAS x"), StoreUnavailable, "too few replicas are connected"),
        (reply("READONLY x"), StoreUnavailable, "is a read-only replica"),
        (reply("TRYAGAIN x"), StoreUnavailable, "is moving keys to another node"),
        (reply("UNBLOCKED x"), StoreUnavailable, "changed its role"),
        (reply("OOM command not allowed"), StoreFull, "is full and takes no new jobs"),
        (reply("CROSSSLOT x"), StoreError, "this is a bug in Tenure"),
        (reply("ERR x"), StoreError, "answered with an error: ERR x."),
        (reply("ERR No space left on device"), StoreError, "answered with an error"),
        (reply("ERR Error running script: -OOM no"), StoreFull, "is full"),
        (reply("ERR something: -OOM no"), StoreError, "answered with an error"),
        (exceptions.TimeoutError("slow?"), StoreUnavailable, "did not answer in time: slow. Is it"),
        (exceptions.ConnectionError("gone. "), StoreUnavailable, "cannot be reached: gone. Is it"),
        (redis.Misled("names that", "Do this."), StoreUnavailable, "names that. Do this."),
    ],
)
def test_errors_of_redis(error: Exception, kind: type[StoreError], words: str):
    fault = PLAIN.fault(error)
    assert type(fault) is kind
    assert str(fault).startswith("the store redis://ann:***@host ")
    assert words in str(fault)


@pytest.mark.parametrize("code", ["ASK", "MOVED"])
def test_a_namespace_elsewhere_is_followed_or_explained(code: str):
    fault = PLAIN.fault(reply(f"{code} 1 host:1"))
    assert type(fault) is StoreError
    assert "Use redis+cluster:// instead" in str(fault)
    fault = CLUSTER.fault(reply(f"{code} 1 host:1"))
    assert type(fault) is StoreUnavailable
    assert "redis+cluster:// instead" not in str(fault)


def test_which_replies_mean_that_a_command_was_not_done():
    assert set(redis.NOT_DONE) == {"MOVED", "READONLY"}
    others = {"ASK", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "TRYAGAIN"}
    assert set(redis.WRONG_PLACE) == others | redis.NOT_DONE


@pytest.mark.parametrize(
    ("error", "is_missing"),
    [
        (reply("NOPERM x"), True),
        (reply("ERR NOPERM x"), False),
        (exceptions.ConnectionError("NOPERM x"), False),
        (ValueError("ACL failure in script"), False),
    ],
)
def test_missing_rights_are_told_by_a_reply(error: Exception, is_missing: bool):
    assert redis.missing_rights(error) is is_missing


# PostgreSQL.

USER = "Check user and password in the URL"
POOLER = "Behind PgBouncer add ?statement_cache_size=0"
REMOVED = "Something removed what Tenure made"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (asyncpg.InvalidPasswordError("x"), USER),
        (asyncpg.InvalidAuthorizationSpecificationError("x"), USER),
        (asyncpg.InvalidCatalogNameError("x"), "Create the database"),
        (asyncpg.InsufficientPrivilegeError("x"), postgres.RIGHTS),
        (ssl.SSLCertVerificationError("x"), "Correct the server's certificate"),
        (asyncpg.ProtocolViolationError("unsupported startup parameter: jit"), POOLER),
        (asyncpg.InvalidSQLStatementNameError("x"), POOLER),
        (asyncpg.DuplicatePreparedStatementError("x"), POOLER),
        (asyncpg.UndefinedFunctionError("x"), REMOVED),
        (asyncpg.UndefinedTableError("x"), REMOVED),
        (asyncpg.exceptions.ClientConfigurationError("no root certificate"), "Name the file with"),
        (asyncpg.exceptions.ClientConfigurationError("x"), "Correct the URL."),
    ],
)
def test_errors_that_only_configuration_fixes_come_with_advice(error: Exception, words: str):
    for opening, kind in ((True, ConfigError), (False, StoreError)):
        fault = postgres.translate(error, "url", opening=opening)
        assert type(fault) is kind
        assert words in str(fault)
        assert str(fault).startswith("the store url refused: ")


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (asyncpg.ProtocolViolationError("x"), StoreUnavailable, "cannot be used now: x. Is it"),
        (asyncpg.DiskFullError("could\n extend."), StoreFull, "no disk left: could extend. Not"),
        (TimeoutError(), StoreUnavailable, "no answer in time"),
        (TimeoutError("late"), StoreUnavailable, "now: late."),
        (OSError(), StoreUnavailable, "now: OSError."),
        (asyncpg.TargetServerAttributeNotMatched("x"), StoreUnavailable, "now: x."),
        (asyncpg.InternalClientError("x"), StoreUnavailable, "now: x."),
        (asyncpg.OutOfMemoryError("x"), StoreUnavailable, "now: x."),
        (asyncpg.UniqueViolationError("x"), StoreError, "failed: x."),
        (RuntimeError(), StoreError, "failed: RuntimeError."),
        (ValueError("quotes 'secret'"), StoreError, "failed: ValueError."),
        (UnicodeError("quotes 'secret'"), StoreError, "failed: UnicodeError."),
    ],
)
def test_errors_of_postgres(error: Exception, kind: type[TenureError], words: str):
    for opening in (False, True):
        fault = postgres.translate(error, "url", opening=opening)
        assert type(fault) is kind
        assert words in str(fault)
        assert "secret" not in str(fault)
        assert fault.__cause__ is (None if isinstance(error, ValueError) else error)


@pytest.mark.parametrize(
    ("error", "is_broken"),
    [
        (asyncpg.UniqueViolationError("x"), False),
        (asyncpg.QueryCanceledError("x"), False),
        (asyncpg.DeadlockDetectedError("x"), False),
        (asyncpg.ConnectionDoesNotExistError("x"), True),
        (asyncpg.AdminShutdownError("x"), True),
        (asyncpg.CrashShutdownError("x"), True),
        (asyncpg.CannotConnectNowError("x"), True),
        (asyncpg.IdleSessionTimeoutError("x"), True),
        (asyncpg.ReadOnlySQLTransactionError("x"), True),
        (asyncpg.InterfaceError("x"), True),
        (OSError("x"), True),
        (asyncio.CancelledError(), True),
    ],
)
def test_which_errors_cost_the_connection(error: BaseException, is_broken: bool):
    assert postgres.breaks(error) is is_broken
