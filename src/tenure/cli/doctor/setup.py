"""What `tenure doctor` finds about the environment: how far the store reaches, and variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from tenure.core.environment import (
    SCOPES,
    Scope,
    is_in_kubernetes,
    other_stores,
    reaches,
    scope_problem,
    unknown_variables,
)
from tenure.core.leases import Finding
from tenure.stores.contract import Store

__all__ = ["setup_examined"]


def setup_examined(
    store: Store, environ: Mapping[str, str], wanted: Scope | None, *, is_default: bool
) -> Iterator[Finding]:
    """Yield what is wrong with the environment; `wanted` is the scope that an option asks for."""
    yield from _about_scope(store, environ, wanted or environ.get("TENURE_SCOPE"))
    others = other_stores(environ) if is_default else []
    for variable in others:
        detail = f"{variable} is set, but Tenure reads TENURE_URL only, which is not"
        advice = "Name the store in TENURE_URL: a Redis or PostgreSQL server, or the default."
        yield Finding("warning", "variable", detail, advice)
    for variable, meant in unknown_variables(environ).items():
        advice = f"Did you mean {meant}?" if meant else "Remove it: Tenure has no such setting."
        yield Finding("warning", "variable", f"{variable} is set, but has no effect", advice)


def _about_scope(store: Store, environ: Mapping[str, str], wanted: Any) -> Iterator[Finding]:
    scope = store.traits.scope
    if wanted and wanted not in SCOPES:
        detail = f"TENURE_SCOPE is {wanted!r}, so no app can be made"
        yield Finding("error", "reach", detail, f"Set it to one of {', '.join(SCOPES)}.")
    elif wanted and not reaches(scope, cast("Scope", wanted)):
        detail = scope_problem(store.url, scope, wanted).rstrip(".")
        yield Finding("error", "reach", detail, "Name such a store in TENURE_URL.")
    elif is_in_kubernetes(environ) and scope != "fleet":
        yield Finding(
            "warning",
            "reach",
            f"this is a pod, and other pods do not see {store.url}",
            "Each pod runs all timers and takes all locks. Name a Redis or PostgreSQL server in "
            "TENURE_URL.",
        )
