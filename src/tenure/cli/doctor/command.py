"""`tenure doctor`: examine the store, its workers and its jobs, and advise on each problem."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import click
import msgspec
from msgspec.structs import replace
from rich.console import RenderableType
from rich.text import Text

from tenure.cli.doctor.damage import damage_findings
from tenure.cli.doctor.jobs import job_findings
from tenure.cli.doctor.probe import probe
from tenure.cli.doctor.setup import setup_findings
from tenure.cli.options import span
from tenure.cli.tables import Cell, table
from tenure.cli.target import Target, store_command
from tenure.cli.text import count, safe
from tenure.core.environment import SCOPES, Scope
from tenure.core.jobs.records import Stranded
from tenure.core.leases import Finding, Grade
from tenure.errors import ConfigError, TenureError
from tenure.stores.contract import Store

__all__ = ["doctor"]

# From harmless to severe.
_STYLES = {"ok": "green", "note": "cyan", "warning": "bold yellow", "error": "bold red"}


@click.command(
    epilog="""\b
Examples:
  tenure doctor                             the store in TENURE_URL
  tenure --url redis://cache/0 doctor --require B --strict
  tenure doctor --json | jq '.findings[] | select(.level != "ok")'
  tenure doctor --probe --timeout 3s

Exit codes: 0, 1 if there are warnings and --strict, 2 if there are errors. With --probe: 0 healthy,
1 degraded, 2 unhealthy."""
)
@click.option(
    "--require",
    type=click.Choice([grade.name for grade in Grade]),
    help="The weakest guarantee grade that you accept.",
)
@click.option(
    "--scope",
    type=click.Choice(SCOPES),
    help="How far the store must reach [default: $TENURE_SCOPE, else process].",
)
@click.option("--strict", is_flag=True, help="Exit with 1 if there are warnings.")
@click.option(
    "--probe",
    "is_probe",
    is_flag=True,
    help="Only look whether the store and its workers are healthy, within --timeout. Acquires and "
    "releases a test lease.",
)
@click.option(
    "--timeout",
    metavar="TIME",
    callback=span,
    default="2s",
    show_default=True,
    help="How long --probe may take.",
)
@store_command
def doctor(
    target: Target,
    *,
    require: str | None,
    scope: Scope | None,
    strict: bool,
    is_probe: bool,
    timeout: float,
) -> None:
    """Find what is unsafe, badly set up or stuck, and advise.

    Examines the store, its workers, jobs and timers. Changes nothing. A finding is a fact (ok),
    worth knowing (note), may cost leases or keeps jobs waiting (warning), or keeps the store from
    working as required (error).
    """
    if is_probe:
        if strict or scope is not None:
            raise click.UsageError("--probe knows no --strict and no --scope.")
        probe(target, timeout=timeout, require=require or "D")
        return
    store = target.store()
    findings = asyncio.run(store.examine())
    stranded: list[Stranded] = []
    if _grade(store, findings) is not None and not _is_in_use_elsewhere(findings):
        is_failing = any(finding.level == "error" for finding in findings)
        about_jobs, stranded = _job_findings(target, store, is_failing=is_failing)
        findings += about_jobs
    if require is not None:
        findings += _grade_findings(store, findings, Grade[require])
    findings += setup_findings(store, os.environ, scope, is_default=target.source == "default")
    worst = max((finding.level for finding in findings), key=[*_STYLES].index)
    document = {**target.about(store), **_facts(store, findings), "level": worst}
    document["findings"] = msgspec.to_builtins(findings)
    # Findings name the first few records; programs get all of them.
    document["unreadable"] = msgspec.to_builtins(target.screen.damaged)
    document["stranded"] = msgspec.to_builtins(stranded)
    target.screen.damaged.clear()
    lines = _lines(findings, target.source, folded=target.screen.is_terminal)
    target.screen.answer(document, *lines)
    if worst == "error":
        raise click.exceptions.Exit(2)
    if worst == "warning" and strict:
        raise click.exceptions.Exit(1)


def _is_in_use_elsewhere(findings: Sequence[Finding]) -> bool:
    """Return whether another machine uses the file: opening it would write to it."""
    return any((finding.level, finding.subject) == ("error", "machines") for finding in findings)


def _job_findings(
    target: Target, store: Store, *, is_failing: bool
) -> tuple[list[Finding], list[Stranded]]:
    """Return the findings about jobs and the stranded jobs, if the store can be opened.

    Also tries a store that is failing, because it is full for instance. If that fails, the other
    findings already say why.
    """
    if store.traits.scope == "process":
        return [], []
    try:
        return target.run(_examine_jobs)
    except ConfigError:
        return [], []  # not used yet, or it needs `migrate`: other findings say so already
    except TenureError as error:
        if is_failing:
            return [], []
        advice = "Try again. If it fails again, check the rights of this user in the store."
        return [Finding("warning", "jobs", f"could not be read: {error}", advice)], []


async def _examine_jobs(store: Store) -> tuple[list[Finding], list[Stranded]]:
    damage, stranded = await damage_findings(store)
    return [*await job_findings(store), *damage], stranded


def _facts(store: Store, findings: list[Finding]) -> dict[str, Any]:
    grade = _grade(store, findings)
    return {"grade": grade.name if grade else None, "scope": store.traits.scope}


def _grade(store: Store, findings: list[Finding]) -> Grade | None:
    """Return the grade; None if it is unknown, because the store could not be reached."""
    is_graded = any(finding.subject == "grade" for finding in findings)
    return store.traits.grade if is_graded else None


def _grade_findings(store: Store, findings: list[Finding], weakest: Grade) -> Iterator[Finding]:
    grade = _grade(store, findings)
    if grade is not None and weakest < grade:
        yield Finding(
            "error",
            "required",
            f"grade {weakest.name} is required, but this store has {grade.name}",
            "Change its settings as advised here, use another store, or require less.",
        )


def _lines(findings: list[Finding], source: str, *, folded: bool) -> Iterator[RenderableType]:
    store, *others = findings
    store = replace(store, detail=f"{store.detail} (from {source})")
    yield table(_rows([store, *others], folded=folded))
    counts = Counter(finding.level for finding in findings)
    numbers = [
        count(counts[level], level) for level in ("error", "warning", "note") if counts[level]
    ]
    yield Text()
    yield Text(", ".join(numbers) or "No problems.")


def _rows(findings: list[Finding], *, folded: bool) -> Iterator[list[Cell]]:
    for finding in findings:
        detail = Text(safe(finding.detail))
        if finding.advice and folded:
            detail.append(f"\n{safe(finding.advice)}", "italic")
        elif finding.advice:
            # One line for each finding, so that grep shows all of it.
            detail.append(f". {safe(finding.advice)}")
        yield [Text(finding.level, _STYLES[finding.level]), finding.subject, detail]
