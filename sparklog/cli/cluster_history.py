"""`sparklog cluster history`: print the decisions made in the cluster, from its topic `__cluster_history`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click

from sparklog import client
from sparklog.base.errors import UnknownTopicOrPartition
from sparklog.cli.common import TimeParam, bootstrap_option, client_options, json_option, print_json
from sparklog.cluster.history import HISTORY, HistoryKind

POLL_MS = 500
SILENT_POLLS = 20
"""Number of consecutive empty polls that end the command before the end of the history."""
HEAD = ("version", "time_ms", "by", "kind", "topic", "partition")


@click.command("history")
@click.option("--topic", help="Only records about this topic.")
@click.option("--partition", type=click.IntRange(0), help="Only records about this partition of the topic.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice([each.value for each in HistoryKind]),
    help="Only records of this kind; may be repeated.",
)
@click.option("--since", type=TimeParam(), metavar="TIME", help="Only records from this time on.")
@bootstrap_option
@json_option
def history(
    topic: str | None,
    partition: int | None,
    kinds: tuple[str, ...],
    since: int | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Print past decisions: elections, changes of in-sync replicas, brokers, topics, groups, jobs.

    Brokers keep the history if cluster.history.enable is set. Spark reads it as a table: see docs/concepts/history.md.
    """
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic")
    wanted = {name: value for name, value in (("topic", topic), ("partition", partition)) if value is not None}
    for each in _records(bootstrap, since):
        if all(each.get(name) == value for name, value in wanted.items()) and (not kinds or each["kind"] in kinds):
            print_json(each) if as_json else click.echo(_text_line(each))


def _records(bootstrap: str, since: int | None) -> Iterator[dict[str, Any]]:
    """Yield records up to the current end of the history. Raises UnknownTopicOrPartition without a history."""
    with client.Consumer(**client_options(bootstrap, auto_offset_reset="earliest")) as consumer:
        try:
            consumer.assign([HISTORY])
            end = consumer.end_offsets([HISTORY])[HISTORY]
        except UnknownTopicOrPartition:
            raise UnknownTopicOrPartition(
                f"there is no {HISTORY.topic}: set cluster.history.enable = true on the brokers"
            ) from None
        if since is None:
            consumer.seek_to_beginning(HISTORY)
        else:
            consumer.seek_to_timestamp(since, HISTORY)
        silent = 0
        while (before := consumer.position(HISTORY)) < end and silent < SILENT_POLLS:
            records = consumer.poll(POLL_MS)
            silent = silent + 1 if consumer.position(HISTORY) == before else 0
            yield from (json.loads(record.value or b"{}") for record in records if record.offset < end)


def _text_line(each: dict[str, Any]) -> str:
    moment = datetime.fromtimestamp(each["time_ms"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    about = each.get("topic", "")
    if "partition" in each:
        about += f"-{each['partition']}"
    details = " ".join(
        f"{name}={json.dumps(value, separators=(',', ':'))}"
        for name, value in each.items()
        if name not in HEAD and value is not None
    )
    return f"{moment}  {each['kind']:<22}  {about}{'  ' if about else ''}{details}"
