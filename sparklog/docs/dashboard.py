"""The dashboard for Grafana, generated from the table of metrics.

Overview       one figure for each alert of a broker: red while the alert's condition holds
other rows     the sections of the table, with a graph for each metric

counter        rate per second, by its labels
gauge          value, by its labels; the worst of the partitions of a topic, and of the brokers
histogram      99th percentile, by its labels
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from sparklog.base.metric_table import SECTIONS, metrics_with_alerts
from sparklog.base.metric_types import MetricInfo, MetricType, Section

_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_TOO_MANY = {"partition", "client_instance_id", "client_software_version", "attributes"}
_WIDTH, _STAT_WIDTH, _STAT_HEIGHT, _GRAPH_WIDTH, _GRAPH_HEIGHT = 24, 4, 4, 8, 8
_TIMES = ("_timestamp_seconds", "_start_time_seconds")
"""Suffixes of metrics that are Unix times."""
_VARIABLES = {
    "job": "sparklog_active_controller",
    "instance": "sparklog_active_controller",
    "topic": "sparklog_log_end_offset",
    "consumergroup": "sparklog_consumergroup_members",
}
"""Label of each variable of the dashboard → the metric with all its values."""


def dashboard_json() -> str:
    """Return the whole file."""
    dashboard = {
        "title": "sparklog",
        "uid": "sparklog",
        "description": "Written by `make reference`; do not edit.",
        "tags": ["sparklog"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_datasource(), *(_variable(*each) for each in _VARIABLES.items())]},
        "panels": list(_numbered(_panels())),
    }
    return json.dumps(dashboard, indent=2) + "\n"


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _variable(name: str, metric: str) -> dict[str, Any]:
    query = f"label_values({metric}, {name})"
    return {
        "name": name,
        "type": "query",
        "datasource": _DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panels() -> Iterator[dict[str, Any]]:
    y = 0
    alerting = [info for info in metrics_with_alerts() if "schedule" not in info.labels]
    yield _row("Overview", y, ())
    for number, info in enumerate(alerting):
        column, line = number % (_WIDTH // _STAT_WIDTH), number // (_WIDTH // _STAT_WIDTH)
        yield _stat(info, column * _STAT_WIDTH, 1 + line * _STAT_HEIGHT)
    y = 1 + _STAT_HEIGHT * -(-len(alerting) * _STAT_WIDTH // _WIDTH)
    for section in SECTIONS:
        yield _row(section.title, y, _graphs(section, y + 1))
        y += 1


def _numbered(panels: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Set the ids of the panels, also of those in rows."""
    number = 0
    for panel in panels:
        for each in (panel, *panel.get("panels", ())):
            number += 1
            each["id"] = number
        yield panel


def _row(title: str, y: int, panels: Iterable[dict[str, Any]]) -> dict[str, Any]:
    found = list(panels)
    return {
        "type": "row", "title": title, "collapsed": bool(found), "panels": found,
        "gridPos": {"x": 0, "y": y, "w": _WIDTH, "h": 1},
    }  # fmt: skip


def _stat(info: MetricInfo, x: int, y: int) -> dict[str, Any]:
    """Return the panel with the number of series for which the alert's condition holds."""
    assert info.alert is not None
    target = {"refId": "A", "expr": f"count({info.alert.expr}) or vector(0)", "instant": True}
    return {
        "type": "stat",
        "title": info.alert.name.removeprefix("Sparklog"),
        "description": f"{info.text} Fires if: {info.alert.expr}",
        "datasource": _DATASOURCE,
        "gridPos": {"x": x, "y": y, "w": _STAT_WIDTH, "h": _STAT_HEIGHT},
        "targets": [target],
        "options": {"colorMode": "background", "reduceOptions": {"calcs": ["lastNotNull"]}},
        "fieldConfig": {
            "defaults": {
                "thresholds": {
                    "mode": "absolute",
                    "steps": [{"color": "green", "value": None}, {"color": "red", "value": 1}],
                }
            },
            "overrides": [],
        },
    }


def _graphs(section: Section, y: int) -> Iterator[dict[str, Any]]:
    for number, info in enumerate(section.metrics):
        column, line = number % (_WIDTH // _GRAPH_WIDTH), number // (_WIDTH // _GRAPH_WIDTH)
        by = _shown_labels(info)
        yield {
            "type": "timeseries",
            "title": info.name,
            "description": info.text,
            "datasource": _DATASOURCE,
            "gridPos": {
                "x": column * _GRAPH_WIDTH, "y": y + line * _GRAPH_HEIGHT, "w": _GRAPH_WIDTH, "h": _GRAPH_HEIGHT,
            },
            "targets": [{"refId": "A", "expr": _expr(info, by), "legendFormat": " ".join(f"{{{{{n}}}}}" for n in by)}],
            "fieldConfig": {"defaults": {"unit": _unit(info)}, "overrides": []},
        }  # fmt: skip


def _shown_labels(info: MetricInfo) -> tuple[str, ...]:
    """Return the labels of the graph's lines, without labels of too many values; the broker if there are none."""
    return tuple(label for label in info.labels if label not in _TOO_MANY) or ("instance",)


def _expr(info: MetricInfo, by: tuple[str, ...]) -> str:
    metric, joined = f"{info.name}{_selector(info)}", ", ".join(by)
    match info.type:
        case MetricType.COUNTER:
            return f"sum by ({joined}) (rate({metric}[$__rate_interval]))"
        case MetricType.GAUGE:
            found = f"max by ({joined}) ({metric})"
            return f"1000 * {found}" if info.name.endswith(_TIMES) else found
        case MetricType.HISTOGRAM:
            rate = f"rate({info.name}_bucket{_selector(info)}[$__rate_interval])"
            return f"histogram_quantile(0.99, sum by (le, {joined}) ({rate}))"


def _selector(info: MetricInfo) -> str:
    """Return the selector by the dashboard's variables, in which a job is one of Prometheus, not of sparklog."""
    if "job" in info.labels:
        return ""
    labels = [label for label in _VARIABLES if label in ("job", "instance", *info.labels)]
    return "{" + ", ".join(f'{label}=~"${label}"' for label in labels) + "}"


def _unit(info: MetricInfo) -> str:
    """Return Grafana's unit, from the metric's name; Unix times are in ms in Grafana."""
    if info.type is MetricType.COUNTER:
        return "Bps" if "_bytes_" in info.name else "percentunit" if info.name.endswith("_seconds_total") else "ops"
    if info.name.endswith(_TIMES):
        return "dateTimeFromNow"
    return "bytes" if info.name.endswith("_bytes") else "s" if info.name.endswith("_seconds") else "short"
