"""Judges a finished run: applies all checkers to its history, and adds up what happened."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from tests.sim.checks.critical_sections import check_sections
from tests.sim.checks.effects import check_effects, check_once, check_unexpected_errors
from tests.sim.checks.http import check_http
from tests.sim.checks.jobs import check_jobs
from tests.sim.checks.leases import check_leases
from tests.sim.checks.notifications import (
    check_mild,
    check_notified_in_time,
    check_refused_ends_reported,
)
from tests.sim.checks.ticks import check_ticks, without_runs
from tests.sim.counts import count_entries
from tests.sim.fleet import Fleet
from tests.sim.history import Entry
from tests.sim.plan import LOSSES
from tests.sim.scenarios import releases
from tests.sim.scenarios.catalog import SCENARIOS

__all__ = ["violations"]


def violations(fleet: Fleet) -> list[str]:
    """Return what is wrong with the history of a fleet; add to its counts what happened."""
    entries, plan = fleet.history.entries, fleet.plan
    scenario = SCENARIOS[plan.scenario]
    lease_findings = check_leases(entries)
    job_violations, lost_jobs = check_jobs(
        without_runs(entries),
        loss_budget=scenario.loss_budget(plan),
        tries=scenario.tries,
    )
    # The aftermath is a day in one step, and a replica counts no more than 1,000 missed ticks.
    before_aftermath = takewhile(lambda entry: entry.what != "aftermath", entries)
    tick_violations, tick_counts = check_ticks(
        before_aftermath,
        declared_for=releases.DECLARED_FOR,
        declared_anew_after=releases.DECLARED_ANEW_AFTER,
        forgotten_after=releases.FORGOTTEN_AFTER,
    )
    fleet.counts.update(tick_counts)
    fleet.counts["expired leases"] += lease_findings.expired
    fleet.counts["lost jobs"] += lost_jobs
    _count(fleet)
    return [
        *lease_findings.wrong,
        *job_violations,
        *scenario.check(entries),
        *check_http(entries),
        *check_effects(entries),
        *tick_violations,
        *check_once(entries),
        *check_unexpected_errors(entries),
        *check_notified_in_time(entries),
        *check_refused_ends_reported(entries),
        *(() if _may_overlap(entries) else check_sections(entries)),
        *(check_mild(entries, lease_findings.unreleased) if plan.is_mild else ()),
    ]


def _count(fleet: Fleet) -> None:
    counts, plan = fleet.counts, fleet.plan
    counts["lost writes"] += fleet.server.lost_writes
    counts["losses"] += len(LOSSES.intersection(plan.faults))
    counts["steps"] += fleet.loop.steps
    counts["mild plans"] += plan.is_mild
    counts.update(fleet.injected)
    counts.update(f"runs with {fault}" for fault, times in fleet.injected.items() if times)
    counts.update(count_entries(fleet.history.entries))


def _may_overlap(entries: Iterable[Entry]) -> bool:
    """Return whether the store may have granted a lease that another holder still trusts."""
    return any(
        entry.what in ("emptied", "rolled back") or (entry.what == "stepped" and entry.seconds > 0)
        for entry in entries
    )
