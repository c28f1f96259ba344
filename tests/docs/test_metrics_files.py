"""The dashboard and the alerts ask for metrics that brokers and job servers show, and the reference names all of them.

That a broker shows every metric of the table and no other: tests/server/test_metrics.py. Of a job server:
tests/jobs/test_job_server.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from sparklog.base.metric_table import KAFKA_ONLY, SECTIONS, metrics_with_alerts
from support.docs.markdown import ROOT
from support.docs.promql import NotPromQL, asked
from support.metrics import series_of

OF_TARGETS = {"job", "instance"}
"""The labels that Prometheus gives every series."""
SERIES = series_of(SECTIONS)
DASHBOARD = json.loads((ROOT / "conf" / "grafana" / "sparklog.json").read_text())
ALERTS = yaml.safe_load((ROOT / "conf" / "prometheus" / "alerts.yml").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]


def panels() -> Iterator[dict[str, Any]]:
    for panel in DASHBOARD["panels"]:
        yield from (panel, *panel.get("panels", ()))


GRAPHS = [panel for panel in panels() if panel["type"] != "row"]
EXPRESSIONS = [rule["expr"] for rule in RULES] + [target["expr"] for panel in GRAPHS for target in panel["targets"]]


def labels_of(series: str) -> set[str]:
    [labels] = SERIES[series]
    return {*labels, *OF_TARGETS}


@pytest.mark.parametrize("expr", EXPRESSIONS)
def test_an_expression_asks_for_series_and_labels_that_there_are(expr: str) -> None:
    found = asked(expr)
    series = [each.series for each in found if each.series]
    assert series
    assert set(series) <= set(SERIES)
    for each in found:
        known = labels_of(each.series) if each.series else set.intersection(*map(labels_of, series))
        assert each.labels <= known, each


@pytest.mark.parametrize(
    "expr",
    [
        "sum by (a (x)",
        "sum(x))",
        "rate x",
        "x{a}",
        'x{a="1"',
        "rat(x[5m])",
        "x[5]",
        "x # y",
        "sum by x",
        "histogram_quantile",
    ],
)
def test_what_is_no_expression_is_found_out(expr: str) -> None:
    with pytest.raises(NotPromQL):
        asked(expr)


def test_series_and_labels_of_an_expression_are_found() -> None:
    found = asked('sum by (a, b) (rate(x_total{c=~"$c", d="e"}[5m])) / y > 0.5 and on (f) z')
    assert [(each.series, sorted(each.labels)) for each in found] == [
        ("", ["a", "b"]), ("x_total", ["c", "d"]), ("y", []), ("", ["f"]), ("z", []),
    ]  # fmt: skip


def test_each_alert_has_a_rule_that_asks_for_its_metric() -> None:
    alerts = {info.alert.name: info for info in metrics_with_alerts() if info.alert}
    assert [rule["alert"] for rule in RULES] == list(alerts)
    for rule in RULES:
        info = alerts[rule["alert"]]
        assert {each.series for each in asked(rule["expr"])} & set(info.series)
        assert re.fullmatch(r"\d+m", rule["for"])
        assert rule["labels"]["severity"] in ("critical", "warning")
        said = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert said <= {*info.labels, *OF_TARGETS}


def test_alerts_say_in_their_summary_only_what_is_left_after_a_grouping() -> None:
    for rule in RULES:
        if by := re.match(r"\w+ by \(([^)]*)\)", rule["expr"]):
            said = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
            assert said <= set(re.findall(r"\w+", by[1])), rule["alert"]


WATCHED = {
    "sparklog_offline_partitions", "sparklog_cluster_leaderless_partitions", "sparklog_under_replicated_partitions",
    "sparklog_under_min_isr_partitions", "sparklog_active_controller", "sparklog_consumergroup_lag_seconds",
    "sparklog_failed_log_dirs", "sparklog_full_log_dirs", "process_max_fds", "sparklog_event_loop_delay_seconds",
    "sparklog_store_connected",
}  # fmt: skip
"""Metrics without whose alerts an operator would learn of a loss from users."""


def test_an_operator_is_told_of_what_users_would_notice() -> None:
    assert {info.name for info in metrics_with_alerts()} >= WATCHED


def test_every_metric_has_a_graph() -> None:
    graphed = {each.series for panel in GRAPHS for target in panel["targets"] for each in asked(target["expr"])}
    for info in (info for section in SECTIONS for info in section.metrics):
        assert graphed & set(info.series), info.name


def test_the_panels_of_the_dashboard_have_an_id_and_a_place_each() -> None:
    ids = [panel["id"] for panel in panels()]
    assert len(ids) == len(set(ids))
    for row in DASHBOARD["panels"]:
        places = [(each["gridPos"]["x"], each["gridPos"]["y"]) for each in row.get("panels", ())]
        assert len(places) == len(set(places))
    shown = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    assert len({(place["x"], place["y"]) for place in shown}) == len(shown)


def test_variables_of_the_dashboard_are_asked_for_and_set() -> None:
    names = {each["name"] for each in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(DASHBOARD["panels"])))
    assert used == names


def test_the_reference_names_every_metric() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    for info in (info for section in (*SECTIONS, KAFKA_ONLY) for info in section.metrics):
        assert f"| `{info.name}` | {info.type.value} |" in page
        assert not info.kafka_name or f"| `{info.kafka_name}` | `{info.name}` |" in page


def test_no_two_metrics_have_one_name() -> None:
    infos = [info for section in (*SECTIONS, KAFKA_ONLY) for info in section.metrics]
    names = [name for info in infos for name in (info.name, info.kafka_name) if name]
    assert len(names) == len(set(names))
