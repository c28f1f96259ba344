"""The alerting rules for Prometheus, generated from the table of metrics."""

from __future__ import annotations

import json

from sparklog.base.metric_table import metrics_with_alerts
from sparklog.base.metric_types import Alert

_HEAD = """\
# Alerting rules for Prometheus. Written by `make reference`; do not edit.
#
# rule_files of Prometheus' configuration names this file. docs/operating/monitoring.md describes the scrape that the
# rules expect: the brokers of a cluster share the label `job`.
groups:
  - name: sparklog
    rules:
"""


def alerts_yaml() -> str:
    """Return the whole file."""
    return _HEAD + "\n".join(_rule(info.alert) for info in metrics_with_alerts() if info.alert)


def _rule(alert: Alert) -> str:
    """Return one rule. JSON strings are valid YAML."""
    return f"""\
      - alert: {alert.name}
        expr: {json.dumps(alert.expr)}
        for: {alert.for_minutes}m
        labels:
          severity: {alert.severity.value}
        annotations:
          summary: {json.dumps(alert.summary)}
"""
