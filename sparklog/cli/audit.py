"""`sparklog audit`: run the job isr_audit and print its verdict as text.

Exit status: 0 nothing to do, 1 critical findings or warnings, 2 the audit could not run, 130 interrupted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from sparklog.cli.common import NOTHING, bootstrap_option, client_options, json_option, parse_configs, print_table
from sparklog.cli.job_runs import RunOptions, reports_option, run_here
from sparklog.jobs.table import load_job

if TYPE_CHECKING:
    from sparklog.jobs.job import Run

OK = "ok"


@click.command("audit")
@click.option(
    "--path",
    multiple=True,
    metavar="DIR",
    help="Audit a log directory of sparklog or Apache Kafka, without a broker; repeat for each replica.",
)
@click.option(
    "--topics", multiple=True, metavar="NAME", help="Only topics that match this regular expression; may be repeated."
)
@bootstrap_option
@reports_option
@click.option("--master", metavar="URL", help="Spark master.  [default: local[*]]")
@click.option(
    "--conf", "settings", multiple=True, metavar="KEY=VALUE", help="Set a Spark configuration key; may be repeated."
)
@json_option
def command(
    path: tuple[str, ...], topics: tuple[str, ...], bootstrap: str, reports: str, master: str | None,
    settings: tuple[str, ...], as_json: bool,
) -> int:  # fmt: skip
    """Check every replica, and print the verdict.

    \b
      sparklog audit
      sparklog audit --topics orders
      sparklog audit --path /var/lib/kafka
      sparklog audit --path /mnt/broker-1/data --path /mnt/broker-2/data --path /mnt/broker-3/data

    The audit compares the state in the store and the brokers, or in checkpoints, with the bytes of every replica. It
    changes nothing.
    """
    shared = RunOptions(
        client=client_options(bootstrap),
        reports=reports,
        master=master,
        conf=parse_configs(settings),
        dry_run=False,
        as_json=as_json,
    )
    return run_here(load_job("isr_audit"), {"path": path, "topics": topics}, shared, print_verdict)


def print_verdict(run: Run) -> None:
    """Print the findings, the worst first, then each next step once, then the verdict."""
    rows = [row.asDict() for row in run.rows.collect()]
    found = [row for row in rows if row["outcome"] != OK]
    if found:
        titles = ("SEVERITY", "KIND", "BROKER", "PARTITION", "OFFSET", "FOUND")
        print_table(titles, [_cells(row) for row in found])
        click.echo()
        for number, (step, kinds) in enumerate(_steps(found).items(), start=1):
            click.echo(f"{number}. {', '.join(kinds)}: {step}")
        click.echo()
    click.echo(_verdict(rows, found))


def _cells(row: dict[str, Any]) -> tuple[object, ...]:
    partition = NOTHING if row["topic"] is None else f"{row['topic']}-{row['partition']}"
    broker, offset = (NOTHING if row[name] is None else str(row[name]) for name in ("broker", "offset"))
    return row["outcome"], row["kind"], broker, partition, offset, row["reason"]


def _steps(found: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return each next step with its kinds of findings."""
    steps: dict[str, list[str]] = {}
    for row in found:
        kinds = steps.setdefault(row["next_step"], [])
        if row["kind"] not in kinds:
            kinds.append(row["kind"])
    return steps


def _verdict(rows: list[dict[str, Any]], found: list[dict[str, Any]]) -> str:
    read = {(row["topic"], row["partition"]): row for row in rows if row["segments"] is not None}
    size, batches = (sum(row[name] for row in read.values()) for name in ("size_bytes", "batches"))
    replicas = sum(row["replicas"] for row in read.values())
    what = f"{len(read)} partitions, {replicas} replicas, {batches:,} batches, {size:,} bytes"
    counts = {
        severity: sum(row["outcome"] == severity for row in found) for severity in ("critical", "warning", "info")
    }
    told = ", ".join(f"{count} {severity}" for severity, count in counts.items() if count)
    return f"{told or 'nothing found'}: {what}"
