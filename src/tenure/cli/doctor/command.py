"""`tenure doctor`: what is to be known about the store, and what is wrong with it."""

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

from tenure.cli.doctor.damage import damage_examined
from tenure.cli.doctor.jobs import jobs_examined
from tenure.cli.doctor.setup import setup_examined
from tenure.cli.output import Cell, safe, table
from tenure.cli.target import Target, store_command
from tenure.core.environment import SCOPES, Scope
from tenure.core.jobs.records import Stranded
from tenure.core.leases import Finding, Grade
from tenure.errors import ConfigError, TenureError
from tenure.stores.contract import Store

__all__ = ["doctor"]

# From harmless to grave.
_STYLES = {"ok": "green", "note": "cyan", "warning": "bold yellow", "error": "bold red"}


@click.command(
    epilog="""\b
Examples:
  tenure doctor                             of the store in TENURE_URL
  tenure --url redis://cache/0 doctor --require B --strict
  tenure doctor --json | jq '.findings[] | select(.level != "ok")'

Ends with 0, with 1 if --strict and there are warnings, with 2 if there are errors."""
)
@click.option(
    "--require",
    type=click.Choice([grade.name for grade in Grade]),
    help="The weakest guarantee grade to accept.",
)
@click.option(
    "--scope",
    type=click.Choice(SCOPES),
    help="How far the store must reach [default: $TENURE_SCOPE, else process].",
)
@click.option("--strict", is_flag=True, help="End with 1 if there are warnings.")
@store_command
def doctor(target: Target, *, require: str | None, scope: Scope | None, strict: bool) -> None:
    """Examine the store, and how its jobs fare: what is unsafe, set up badly, or stuck.

    Changes nothing. What is found is a plain fact (ok), worth knowing (note), able to cost
    leases or to keep jobs waiting (warning), or keeps the store from working (error).
    """
    store = target.store()
    findings = asyncio.run(store.examine())
    stranded: list[Stranded] = []
    if _grade(store, findings) is not None and not _is_in_use_elsewhere(findings):
        is_failing = any(finding.level == "error" for finding in findings)
        about_jobs, stranded = _about_jobs(target, store, is_failing=is_failing)
        findings += about_jobs
    if require is not None:
        findings += _required(store, findings, Grade[require])
    findings += setup_examined(store, os.environ, scope, is_default=target.source == "default")
    worst = max((finding.level for finding in findings), key=[*_STYLES].index)
    document = {**target.about(store), **_facts(store, findings), "level": worst}
    document["findings"] = msgspec.to_builtins(findings)
    # Findings name a few of many; programs get all of them.
    document["unreadable"] = msgspec.to_builtins(target.screen.damaged)
    document["stranded"] = msgspec.to_builtins(stranded)
    target.screen.damaged.clear()
    shown = _shown(findings, target.source, folded=target.screen.is_terminal)
    target.screen.answer(document, *shown)
    if worst == "error":
        raise click.exceptions.Exit(2)
    if worst == "warning" and strict:
        raise click.exceptions.Exit(1)


def _is_in_use_elsewhere(findings: Sequence[Finding]) -> bool:
    """Return whether another machine uses the file: to open it would leave a trace there."""
    return any((one.level, one.subject) == ("error", "machines") for one in findings)


def _about_jobs(
    target: Target, store: Store, *, is_failing: bool
) -> tuple[list[Finding], list[Stranded]]:
    """Return how jobs fare, where there can be any and the store can be opened.

    A store that is failing, because it is full for instance, is looked at as well. If that fails,
    the findings already say why.
    """
    if store.traits.scope == "process":
        return [], []
    try:
        return target.run(_examined)
    except ConfigError:
        return [], []  # nobody has used it yet, or it needs `migrate`: the findings say so already
    except TenureError as error:
        if is_failing:
            return [], []
        advice = "Try again; if it stays so, may this user do all that jobs need?"
        return [Finding("warning", "jobs", f"could not be looked at: {error}", advice)], []


async def _examined(store: Store) -> tuple[list[Finding], list[Stranded]]:
    damage, stranded = await damage_examined(store)
    return [*await jobs_examined(store), *damage], stranded


def _facts(store: Store, findings: list[Finding]) -> dict[str, Any]:
    known = _grade(store, findings)
    return {"grade": known.name if known else None, "scope": store.traits.scope}


def _grade(store: Store, findings: list[Finding]) -> Grade | None:
    """Return the grade, None if the store could not be reached to tell it."""
    told = any(finding.subject == "grade" for finding in findings)
    return store.traits.grade if told else None


def _required(store: Store, findings: list[Finding], weakest: Grade) -> Iterator[Finding]:
    grade = _grade(store, findings)
    if grade is not None and weakest < grade:
        yield Finding(
            "error",
            "required",
            f"grade {weakest.name} is asked for, and this store has {grade.name}",
            "Change its settings as advised here, choose another store, or ask for less.",
        )


def _shown(findings: list[Finding], source: str, *, folded: bool) -> Iterator[RenderableType]:
    store, *others = findings
    store = replace(store, detail=f"{store.detail} (from {source})")
    yield table(_rows([store, *others], folded=folded))
    counts = Counter(finding.level for finding in findings)
    grave = [
        f"{counts[level]} {level}{'s' if counts[level] > 1 else ''}"
        for level in ("error", "warning", "note")
        if counts[level]
    ]
    yield Text()
    yield Text(", ".join(grave) or "All is well.")


def _rows(findings: list[Finding], *, folded: bool) -> Iterator[list[Cell]]:
    for finding in findings:
        detail = Text(safe(finding.detail))
        if finding.advice and folded:
            detail.append(f"\n{safe(finding.advice)}", "italic")
        elif finding.advice:
            # One line for each finding, so that grep finds all of it.
            detail.append(f". {safe(finding.advice)}")
        yield [Text(finding.level, _STYLES[finding.level]), finding.subject, detail]
