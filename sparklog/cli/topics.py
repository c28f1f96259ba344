"""`sparklog topics`: create, list, describe, alter and delete topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from sparklog.base.errors import InvalidTopic, KafkaError, NetworkException
from sparklog.base.ids import INTERNAL_TOPICS
from sparklog.cli.common import admin_client, bootstrap_option, json_option, parse_configs, print_json, print_table

if TYPE_CHECKING:
    from sparklog.client.admin.descriptions import ConfigValue, PartitionDescription, TopicDescription

UNSURE = (
    "unsure: the cluster store had lost this topic, or changes of it. Replicas that are not listed may have been moved "
    "here or elsewhere meanwhile; brokers keep them."
)


@click.group("topics")
def command() -> None:
    """Create, list, describe, alter and delete topics.

    \b
      sparklog topics create orders --partitions 6 --config retention.ms=86400000
      sparklog topics list
      sparklog topics describe orders --configs
      sparklog topics alter orders --partitions 12 --config retention.bytes=1073741824 --unset retention.ms
      sparklog topics delete orders
    """


@command.command()
@click.argument("name")
@click.option(
    "--partitions", type=int, metavar="N", help="Number of partitions.  [default: the broker's num.partitions]"
)
@click.option(
    "--replication-factor", type=int, metavar="N", help="Replicas of each partition.  [default: the broker's]"
)
@click.option(
    "--config", "configs", multiple=True, metavar="KEY=VALUE", help="Set a configuration key; may be repeated."
)
@click.option("--if-not-exists", is_flag=True, help="Succeed without a change if the topic exists.")
@bootstrap_option
def create(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    bootstrap: str,
) -> None:
    """Create the topic NAME."""
    with admin_client(bootstrap) as admin:
        if if_not_exists and name in {topic.name for topic in admin.list_topics(include_internal=True)}:
            click.echo(f"topic {name} is there already")
            return
        count = admin.create_topic(
            name, partitions=partitions, replication_factor=replication_factor, configs=parse_configs(configs)
        )
    click.echo(f"created topic {name} with {count} partition{'s' if count != 1 else ''}")


@command.command("list")
@click.option("--internal", is_flag=True, help="Include internal topics.")
@bootstrap_option
@json_option
def list_topics(internal: bool, bootstrap: str, as_json: bool) -> None:
    """List all topics."""
    with admin_client(bootstrap) as admin:
        names = [topic.name for topic in admin.list_topics(include_internal=internal)]
        topics = admin.describe_topics(names)
    if as_json:
        for topic in topics:
            print_json({"name": topic.name, "partitions": len(topic.partitions), **_sums(topic)})
    elif topics:
        rows = [(topic.name, len(topic.partitions), *_sums(topic).values()) for topic in topics]
        print_table(("TOPIC", "PARTITIONS", "RECORDS", "BYTES"), rows)
    else:
        click.echo("no topics; create one with: sparklog topics create NAME", err=True)


@command.command()
@click.argument("names", nargs=-1, required=True)
@click.option(
    "--configs", "all_configs", is_flag=True, help="Show every configuration key and the source of its value."
)
@bootstrap_option
@json_option
def describe(names: tuple[str, ...], all_configs: bool, bootstrap: str, as_json: bool) -> None:
    """Describe topics: partitions, leaders, offsets, sizes, configuration."""
    with admin_client(bootstrap) as admin:
        for topic in admin.describe_topics(names, include_unsure=True):
            configs = admin.describe_configs(topic=topic.name) if all_configs else {}
            if as_json:
                print_json(_described(topic) | ({"all_configs": _values(configs)} if configs else {}))
                continue
            _print_topic(topic)
            if configs:
                click.echo()
                print_table(("KEY", "VALUE", "FROM"), [(key, it.value, it.source) for key, it in configs.items()])


@command.command()
@click.argument("name")
@click.option("--partitions", type=int, metavar="N", help="New number of partitions; it can only grow.")
@click.option(
    "--config", "configs", multiple=True, metavar="KEY=VALUE", help="Set a configuration key; may be repeated."
)
@click.option("--unset", multiple=True, metavar="KEY", help="Reset a key to the broker's default; may be repeated.")
@bootstrap_option
def alter(name: str, partitions: int | None, configs: tuple[str, ...], unset: tuple[str, ...], bootstrap: str) -> None:
    """Change the configuration or the number of partitions of the topic NAME."""
    changed = parse_configs(configs)
    if not (changed or unset or partitions is not None):
        raise click.UsageError("nothing to change: give --partitions, --config or --unset")
    with admin_client(bootstrap) as admin:
        if changed or unset:
            admin.alter_configs(name, set=changed, unset=unset)
        if partitions is not None:
            admin.create_partitions(name, partitions)
    click.echo(f"altered topic {name}")


@command.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--internal", is_flag=True, help="Allow internal topics, such as __consumer_offsets.")
@bootstrap_option
def delete(names: tuple[str, ...], internal: bool, bootstrap: str) -> None:
    """Delete topics, with all their records."""
    if (kept := sorted(INTERNAL_TOPICS.intersection(names))) and not internal:
        raise InvalidTopic(
            f"{', '.join(kept)}: the cluster keeps its own records there, such as all that groups have committed; "
            "give --internal to delete them all the same"
        )
    deleted: list[str] = []
    failed: list[KafkaError] = []
    with admin_client(bootstrap) as admin:
        for name in dict.fromkeys(names):
            try:
                admin.delete_topics([name])
                deleted.append(name)
            except KafkaError as error:
                failed.append(error)
                if isinstance(error, NetworkException):
                    break
    if deleted:
        click.echo(f"deleted {', '.join(deleted)}")
    if failed:
        raise type(failed[0])("; ".join(map(str, failed)))


def _sums(topic: TopicDescription) -> dict[str, int]:
    return {"records": topic.records, "bytes": topic.size_bytes}


def _print_topic(topic: TopicDescription) -> None:
    configs = ", ".join(f"{key}={value}" for key, value in topic.configs.items()) or "the broker's defaults"
    click.echo(f"topic {topic.name}: {topic.records:,} records, {topic.size_bytes:,} bytes; {configs}")
    titles = ("PARTITION", "LEADER", "REPLICAS", "IN SYNC", "START", "HIGH WATERMARK", "END", "BYTES")
    print_table(titles, [tuple(_row(part).values()) for part in topic.partitions])
    failed = [part for part in topic.partitions if part.error]
    for part in failed:
        click.echo(f"partition {part.partition}: {_text(part.error)}")
    if failed:
        click.echo(f"not known, and not in the sums: what is in {_count(len(failed), 'partition')}")
    if topic.unsure:
        click.echo(UNSURE)


def _row(part: PartitionDescription) -> dict[str, object]:
    return {
        "partition": part.partition,
        "leader": part.leader,
        "replicas": ",".join(map(str, part.replicas)),
        "in_sync_replicas": ",".join(map(str, part.in_sync_replicas)),
        "log_start_offset": part.log_start_offset,
        "high_watermark": part.high_watermark,
        "log_end_offset": part.log_end_offset,
        "size_bytes": part.size_bytes,
    }


def _described(topic: TopicDescription) -> dict[str, object]:
    partitions = [
        _row(part)
        | {
            "replicas": part.replicas,
            "in_sync_replicas": part.in_sync_replicas,
            "error": _text(part.error) if part.error else None,
        }
        for part in topic.partitions
    ]
    return {"name": topic.name, "configs": topic.configs, "partitions": partitions, "unsure": topic.unsure}


def _text(error: KafkaError | None) -> str:
    return f"{error.name}: {error}" if error else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number != 1 else ''}"


def _values(configs: Mapping[str, ConfigValue]) -> dict[str, object]:
    return {key: {"value": it.value, "source": it.source} for key, it in configs.items()}
