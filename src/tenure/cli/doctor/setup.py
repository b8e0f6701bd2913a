"""What `tenure doctor` finds about the environment: the scope of the store, and variables."""

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

__all__ = ["setup_findings"]


def setup_findings(
    store: Store, environ: Mapping[str, str], required: Scope | None, *, is_default: bool
) -> Iterator[Finding]:
    """Yield the problems of the environment; `required` is the scope that --scope names."""
    yield from _scope_findings(store, environ, required or environ.get("TENURE_SCOPE"))
    others = other_stores(environ) if is_default else []
    for variable in others:
        detail = f"{variable} is set, but Tenure reads only TENURE_URL, which is not set"
        advice = "Name the store in TENURE_URL: a Redis or PostgreSQL server, or the default."
        yield Finding("warning", "variable", detail, advice)
    for variable, meant in unknown_variables(environ).items():
        advice = f"Did you mean {meant}?" if meant else "Remove it: Tenure has no such setting."
        yield Finding("warning", "variable", f"{variable} is set, but has no effect", advice)


def _scope_findings(store: Store, environ: Mapping[str, str], required: Any) -> Iterator[Finding]:
    scope = store.traits.scope
    if required and required not in SCOPES:
        detail = f"TENURE_SCOPE is {required!r}, so apps raise an error"
        yield Finding("error", "reach", detail, f"Set it to one of {', '.join(SCOPES)}.")
    elif required and not reaches(scope, cast("Scope", required)):
        detail = scope_problem(store.url, scope, required).rstrip(".")
        yield Finding("error", "reach", detail, "Name such a store in TENURE_URL.")
    elif is_in_kubernetes(environ) and scope != "fleet":
        yield Finding(
            "warning",
            "reach",
            f"this is a pod, and other pods do not see {store.url}",
            "Each pod has locks and timers of its own. Name a Redis or PostgreSQL server in "
            "TENURE_URL.",
        )
