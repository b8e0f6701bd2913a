"""The alert rules and the dashboard in examples/monitoring name metrics and headings that exist."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from tests.unit.test_docs import anchors

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "monitoring"
PAGE = ROOT / "docs" / "monitoring.md"
REFERENCE = ROOT / "docs" / "metrics.md"
# That each of them exists, and no other, is tested in tests/observe/test_prometheus.py.
DOCUMENTED = {
    name: set(re.findall(r"\w+", labels))
    for name, labels in re.findall(
        r"^\| `(tenure_\w+)` \| \w+ \|([^|]*)\|", REFERENCE.read_text("utf-8"), re.MULTILINE
    )
}
METRICS = DOCUMENTED.keys()
LABELS = {"instance", "le"}.union(*DOCUMENTED.values())


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load((FOLDER / "alerts.yml").read_text("utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    document = json.loads((FOLDER / "dashboard.json").read_text("utf-8"))
    return [panel for panel in document["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[str]:
    """Yield every expression of the rules and of the dashboard."""
    for rule in rules():
        yield rule["expr"]
    yield from expressions_of_panels()


def expressions_of_panels() -> Iterator[str]:
    for panel in panels():
        for target in panel["targets"]:
            yield target["expr"]


def metrics_in(text: str) -> set[str]:
    """Return the names of the metrics; a histogram has three series."""
    names = re.findall(r"\btenure_[a-z_]+", text)
    series = {re.sub(r"_seconds_(bucket|sum|count)$", "_seconds", name) for name in names}
    return series - {"tenure_event"}  # a field of log lines


def test_every_metric_that_is_named_exists():
    assert {name for text in expressions() for name in metrics_in(text)} <= METRICS
    assert metrics_in(PAGE.read_text("utf-8")) <= METRICS


def test_every_label_that_is_used_exists():
    used = set()
    for text in expressions():
        for names in re.findall(r"\bby \(([^)]*)\)", text):
            used |= {name.strip() for name in names.split(",")}
        used |= set(re.findall(r"[{,]\s*(\w+)=~?\"", text))
    assert used <= LABELS


def test_rules_about_a_single_event_see_the_first_one():
    """The series of a label begins with its first event: increase() alone sees nothing happen."""
    blind = []
    for rule in rules():
        single = re.search(r"increase\((\w+)[^[]*\[(\w+)\]\)\) > 0(?!\.)", rule["expr"])
        if single and DOCUMENTED[single[1]]:
            sees = f" unless {single[1]}" in rule["expr"] and f"offset {single[2]}" in rule["expr"]
            if not sees:
                blind.append(rule["alert"])
    assert blind == []


def test_every_alert_says_what_it_is_and_where_to_read_on():
    assert 8 <= len(rules()) <= 20  # more of them and nobody reads the page
    for rule in rules():
        assert rule["labels"]["severity"] in {"page", "ticket"}
        annotations = rule["annotations"]
        assert set(annotations) == {"summary", "description", "runbook_url"}
        page, _, anchor = annotations["runbook_url"].partition("#")
        assert (ROOT / page, anchor) == (PAGE, rule["alert"].lower())
        assert anchor in anchors(PAGE)
        assert annotations["description"].endswith(".")


def test_the_page_has_the_table_of_alerts_and_what_to_do_for_each():
    text = PAGE.read_text("utf-8")
    listed = dict(re.findall(r"^\| \[(\w+)\]\(#\w+\) \| (\w+) \|", text, re.MULTILINE))
    assert listed == {rule["alert"]: rule["labels"]["severity"] for rule in rules()}
    for name in listed:
        section = text.partition(f"### {name}\n")[2].partition("\n#")[0]
        assert "**Means:**" in section, name
        assert "**Do:**" in section, name


def test_the_read_me_counts_the_rules():
    assert f"{len(rules())} alert rules" in (FOLDER / "README.md").read_text("utf-8")


def test_a_rule_rings_when_no_worker_is_left():
    """Then the jobs of dead workers count as running, so no gauge of a queue shows anything."""
    [rule] = [rule for rule in rules() if rule["alert"] == "TenureNoWorkers"]
    assert 'call="beat"' in rule["expr"]
    assert "vector(0)" in rule["expr"]  # the series of dead processes are gone, not 0


def test_a_rule_rings_when_a_store_refuses_some_calls_and_answers_others():
    """A full or read-only store answers heartbeats or claims, so tenure_store_up is 1 again."""
    [rule] = [rule for rule in rules() if rule["alert"] == "TenureStoreRefuses"]
    errors, calls = rule["expr"].split("/")
    assert metrics_in(errors) == {"tenure_store_errors_total"}
    assert metrics_in(calls) == {"tenure_store_call_seconds"}
    assert errors.count("by (call)") == calls.count("by (call)") == 1  # else others hide one call


def test_a_rule_pages_when_a_store_has_lost_its_data():
    """Also if the process that found it was not scraped before: its series begins at 1."""
    [rule] = [rule for rule in rules() if rule["alert"] == "TenureDataLost"]
    assert rule["labels"]["severity"] == "page"
    assert "for" not in rule  # it happens in an instant
    assert "unless tenure_data_lost_total offset" in rule["expr"]
    assert any("tenure_data_lost_total" in text for text in expressions_of_panels())


def test_the_tests_of_the_rules_are_about_these_rules():
    document = yaml.safe_load((FOLDER / "alerts_test.yml").read_text("utf-8"))
    annotations = {rule["alert"]: rule["annotations"] for rule in rules()}
    tested = [check for test in document["tests"] for check in test["alert_rule_test"]]
    assert {check["alertname"] for check in tested} <= set(annotations)
    for check in tested:
        for alert in check["exp_alerts"]:
            expected = annotations[check["alertname"]]
            assert alert["exp_annotations"]["description"] == expected["description"]


def test_every_panel_explains_itself_and_has_its_own_place():
    places = set()
    for panel in panels():
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"]["uid"] == "${datasource}"
        grid = panel["gridPos"]
        assert grid["x"] + grid["w"] <= 24
        cells = {
            (x, y)
            for x in range(grid["x"], grid["x"] + grid["w"])
            for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & places
        places |= cells
