"""Every file that is generated from the code, with the function that generates it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from sparklog.base.config_doc import broker_toml
from sparklog.docs.alerts import alerts_yaml
from sparklog.docs.commands import commands_page
from sparklog.docs.configuration import configuration_page
from sparklog.docs.dashboard import dashboard_json
from sparklog.docs.grpc_api import grpc_page
from sparklog.docs.metrics import metrics_page
from sparklog.docs.python_api import python_page
from sparklog.docs.spark_source import spark_page
from sparklog.jobs.config_doc import jobs_toml
from sparklog.server.kafka.supported_apis import page as kafka_apis_page

ROOT = Path(__file__).parents[2]
PAGES: Mapping[str, Callable[[], str]] = {
    "conf/broker.toml": broker_toml,
    "conf/grafana/sparklog.json": dashboard_json,
    "conf/jobs.toml": jobs_toml,
    "conf/prometheus/alerts.yml": alerts_yaml,
    "docs/reference/cli.md": commands_page,
    "docs/reference/configuration.md": configuration_page,
    "docs/reference/grpc.md": grpc_page,
    "docs/reference/kafka-apis.md": kafka_apis_page,
    "docs/reference/metrics.md": metrics_page,
    "docs/reference/python.md": python_page,
    "docs/reference/spark.md": spark_page,
}


def write_pages(root: Path = ROOT) -> None:
    """Write all generated files into a checkout."""
    for name, written in PAGES.items():
        (root / name).write_text(written(), encoding="utf-8")


def stale_pages(root: Path = ROOT) -> list[str]:
    """Return the names of the files that `write_pages` would change in a checkout."""
    return [name for name, written in PAGES.items() if (root / name).read_text(encoding="utf-8") != written()]
