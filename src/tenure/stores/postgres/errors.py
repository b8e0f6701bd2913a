"""Translates errors of the driver and of PostgreSQL into Tenure's exceptions, with advice."""

from __future__ import annotations

import ssl

import asyncpg

from tenure.errors import ConfigError, StoreError, StoreFull, StoreUnavailable, TenureError

__all__ = ["RIGHTS", "breaks", "translate"]

RIGHTS = (
    "Let a role that may CREATE in the database run 'tenure migrate', then GRANT USAGE ON SCHEMA "
    "tenure and rights on its tables to this one: 'tenure doctor' says which."
)

_errors = asyncpg.exceptions

# Temporary: the server restarts, another transaction was faster, or a resource is exhausted.
_PASSING = (
    OSError,  # refused, reset, unknown host; TimeoutError is one too
    _errors.PostgresConnectionError,
    _errors.OperatorInterventionError,  # shutting down, starting up, statement_timeout
    _errors.TransactionRollbackError,  # deadlock, serialization
    _errors.InsufficientResourcesError,  # too many connections, no memory
    _errors.LockNotAvailableError,
    _errors.ReadOnlySQLTransactionError,  # this server was primary until a fail-over
    _errors.TargetServerAttributeNotMatched,
    _errors.InternalClientError,
    _errors.InterfaceError,  # the connection was closed under the call
)

# The server closes the connection after these, or it leads to the wrong server.
_BREAKING = (
    _errors.PostgresConnectionError,
    _errors.AdminShutdownError,
    _errors.CrashShutdownError,
    _errors.CannotConnectNowError,
    _errors.IdleSessionTimeoutError,
    _errors.ReadOnlySQLTransactionError,
)


def breaks(error: BaseException) -> bool:
    """Return whether the connection that raised this is unusable now."""
    return not isinstance(error, asyncpg.PostgresError) or isinstance(error, _BREAKING)


def translate(error: Exception, url: str, *, opening: bool = False) -> TenureError:
    """Return Tenure's error for an error of the driver, with its cause set.

    A problem that needs configuration is a ConfigError while the store opens. Later it is a
    StoreError, because callers that retry must be able to continue once it is fixed.
    """
    advice = _advice(error)
    if advice is not None:
        kind: type[TenureError] = ConfigError if opening else StoreError
        fault = kind(f"the store {url} refused: {_text(error)}. {advice}")
    elif isinstance(error, _errors.DiskFullError):
        fault = StoreFull(
            f"the store {url} has no disk left: {_text(error)}. Nothing was stored. Make room on "
            "the disk of the server; then try again."
        )
    elif isinstance(error, _PASSING):
        fault = StoreUnavailable(
            f"the store {url} cannot be used now: {_text(error)}. Is it running, at this host and "
            "port, and are connections left?"
        )
    else:
        fault = StoreError(f"the store {url} failed: {_text(error)}.")
    fault.__cause__ = None if _may_quote(error) else error
    return fault


def _advice(error: Exception) -> str | None:  # noqa: PLR0911 - one line for each case
    text = str(error)
    if isinstance(error, _errors.InvalidAuthorizationSpecificationError):
        return "Check user and password in the URL, and the server's pg_hba.conf."
    if isinstance(error, _errors.InvalidCatalogNameError):
        return "Create the database, or correct its name in the URL."
    if isinstance(error, _errors.InsufficientPrivilegeError):
        return RIGHTS
    if isinstance(error, ssl.SSLCertVerificationError):
        return "Correct the server's certificate, or name its root with sslrootcert= in the URL."
    if isinstance(error, _errors.ProtocolViolationError) and "startup parameter" in text:
        return "Behind PgBouncer add ?statement_cache_size=0 to the URL."
    if isinstance(
        error, _errors.InvalidSQLStatementNameError | _errors.DuplicatePreparedStatementError
    ):
        return "Behind PgBouncer add ?statement_cache_size=0 to the URL."
    if isinstance(error, _errors.UndefinedFunctionError | _errors.UndefinedTableError):
        return "Something removed what Tenure made in the schema 'tenure'. Open the store again."
    if isinstance(error, _errors.ClientConfigurationError):
        if "root certificate" in text:
            return "Name the file with the root certificate: add sslrootcert= to the URL."
        return "Correct the URL."
    return None


def _text(error: Exception) -> str:
    """Return the message of the server or the system in one line, without secrets."""
    if _may_quote(error):
        return type(error).__name__
    text = " ".join(str(error).split()).rstrip(".")
    if isinstance(error, TimeoutError) and not text:
        return "no answer in time"
    return text or type(error).__name__


def _may_quote(error: Exception) -> bool:
    """Return whether the error is about a URL or an argument, which its message may quote."""
    return isinstance(error, ValueError) and not isinstance(error, OSError)
