"""Reassignment plans: JSON files in the format of Apache Kafka's kafka-reassign-partitions.

    {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2]}]}

A plan has only the target replicas, not the current ones, so it can be repeated, verified and cancelled at any time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from sparklog.base.errors import BrokerNotAvailable, ConfigError
from sparklog.base.ids import TopicPartition
from sparklog.cli.common import print_table

if TYPE_CHECKING:
    from sparklog.client import Admin

Plan = Mapping[TopicPartition, tuple[int, ...]]
_UNITS = {"": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "kb": 10**3, "mb": 10**6, "gb": 10**9}


class RateParam(click.ParamType[int]):
    """Bytes per second: 1000000, 50MB or 50MiB."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"(\d+)\s*([a-z]*)", value.strip().lower().removesuffix("/s"))
        if not found or found[2] not in _UNITS or not int(found[1]):
            self.fail(f"{value!r} is not a rate such as 50MiB, of bytes in a second", param, ctx)
        return int(found[1]) * _UNITS[found[2]]


class BrokerIdsParam(click.ParamType[tuple[int, ...]]):
    """Broker ids separated by commas: 1,2,3."""

    name = "brokers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        if not re.fullmatch(r"\d+(,\d+)*", value):
            self.fail(f"{value!r} is not a list of broker ids such as 1,2,3", param, ctx)
        return tuple(dict.fromkeys(int(each) for each in value.split(",")))


def read_plan(file: str) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the target replicas of each partition.

    Raises ConfigError if the file is no plan, OSError if it is unreadable.
    """
    with open(file, encoding="utf-8") as opened:
        text = opened.read()
    try:
        planned = {
            TopicPartition(str(part["topic"]), int(part["partition"])): tuple(int(each) for each in part["replicas"])
            for part in json.loads(text)["partitions"]
        }
    except (ValueError, KeyError, TypeError):
        raise ConfigError(
            f"{file} is not a plan: make one with: sparklog cluster reassign plan --output FILE"
        ) from None
    if not planned:
        raise ConfigError(f"{file} names no partitions")
    return planned


def write_plan(file: str, planned: Plan) -> None:
    """Write a plan, in place of any file of that name. Raises OSError."""
    with open(file, "w", encoding="utf-8") as opened:
        opened.write(plan_text(planned) + "\n")


def plan_text(planned: Plan) -> str:
    """Return the plan as JSON, on one line."""
    partitions = [
        {"topic": name.topic, "partition": name.partition, "replicas": list(replicas)}
        for name, replicas in planned.items()
    ]
    return json.dumps({"version": 1, "partitions": partitions})


def racks_of(admin: Admin, wanted: Iterable[int] | None) -> dict[int, str]:
    """Return the racks of these brokers; None: of all live brokers that are not cordoned.

    Raises BrokerNotAvailable if a broker is not up.
    """
    cluster = admin.describe_cluster()
    alive = {broker.id: broker.rack for broker in cluster.brokers}
    for broker in wanted or ():
        if broker not in alive:
            raise BrokerNotAvailable(f"broker {broker} is not up; these are: {', '.join(map(str, sorted(alive)))}")
    chosen = alive.keys() - cluster.cordoned if wanted is None else wanted
    return {broker: rack for broker, rack in sorted(alive.items()) if broker in chosen}


def show_plan(
    planned: Plan, current: Mapping[TopicPartition, tuple[int, ...]], output: str | None, *, as_json: bool
) -> None:
    """Print a plan, and write it to the file `output`, if there is one. Raises OSError.

    as_json: print the content of the file, instead of a table with the current replicas
    """
    if output:
        write_plan(output, planned)
    if as_json:
        click.echo(plan_text(planned))
    elif planned:
        rows = [(name.topic, name.partition, ids(current[name]), ids(to)) for name, to in planned.items()]
        print_table(("TOPIC", "PARTITION", "FROM", "TO"), rows)
    if not planned:
        click.echo("nothing is to be moved", err=True)
    elif output:
        click.echo(f"wrote {output}; carry it out with: sparklog cluster reassign execute {output}", err=True)


def ids(brokers: Iterable[int]) -> str:
    """Return the broker ids, separated by commas; a dash if there are none."""
    return ",".join(map(str, brokers)) or "-"
