"""`sparklog groups`: list groups, show their lag, reset their offsets, delete them.

A reset works as in Kafka's own tool: it shows the plan, and executes it only with --execute and without members in the
group. An offset outside of the log is replaced by the nearer end of the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from sparklog.base.errors import NonEmptyGroup
from sparklog.base.ids import TopicPartition
from sparklog.cli.common import (
    NOTHING,
    TimeParam,
    admin_client,
    bootstrap_option,
    json_option,
    print_json,
    print_table,
    seconds,
    wall_clock_ms,
)

if TYPE_CHECKING:
    from sparklog.client import Admin
    from sparklog.client.admin.group_descriptions import GroupDescription, GroupOffset
    from sparklog.client.offsets import OffsetSpec

ACTIVE = ("Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


class ResumableOffsets(NamedTuple):
    """The first and the last offset at which a group can resume in a partition."""

    first: int
    end: int


AllBounds = Mapping[TopicPartition, ResumableOffsets]


@click.group("groups")
def command() -> None:
    """List consumer groups, describe them with their lag, reset their offsets, delete them.

    \b
      sparklog groups list
      sparklog groups describe billing
      sparklog groups describe billing --members
      sparklog groups reset billing --topic orders --to-datetime 2026-03-01T00:00:00+00:00
      sparklog groups reset billing --topic orders:0,1 --shift-by -100 --execute
      sparklog groups delete billing
    """


@command.command("list")
@click.option("--state", "states", multiple=True, metavar="STATE", help="Only groups in this state; may be repeated.")
@bootstrap_option
@json_option
def list_groups(states: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """List all groups."""
    with admin_client(bootstrap) as admin:
        groups = admin.list_groups(states=states)
    if as_json:
        for group in groups:
            print_json({"group": group.group_id, "state": group.state, "type": group.type})
    elif groups:
        print_table(("GROUP", "STATE", "TYPE"), [(group.group_id, group.state, group.type) for group in groups])
    else:
        click.echo("no groups; a consumer with a group.id makes one", err=True)


@command.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--members", is_flag=True, help="Show the members instead of the offsets.")
@bootstrap_option
@json_option
def describe(names: tuple[str, ...], members: bool, bootstrap: str, as_json: bool) -> None:
    """Describe groups: committed offsets, lag in records and in time, the reader of each partition.

    LAG is counted in offsets up to the high watermark. BEHIND is the time, in seconds, for which the oldest record
    beyond the committed offset has been waiting.
    """
    with admin_client(bootstrap) as admin:
        for group in admin.describe_groups(names):
            offsets = {} if members else _offsets(admin, group)
            if as_json:
                print_json(_described(group) | ({} if members else {"offsets": _progress(group, offsets)}))
                continue
            who = f"{len(group.members)} member{'s' if len(group.members) != 1 else ''}"
            click.echo(f"group {group.group_id}: {group.state}, {group.type}, {who}, coordinator {group.coordinator}")
            if members:
                _print_members(group)
            else:
                _print_progress(_progress(group, offsets))


@command.command()
@click.argument("name")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC[:0,1]", help="Partitions to reset; may be repeated.")
@click.option("--all-topics", is_flag=True, help="Reset every partition that the group has committed.")
@click.option("--to-earliest", is_flag=True, help="Move to the start of the log.")
@click.option("--to-latest", is_flag=True, help="Move to the end of the log.")
@click.option("--to-offset", type=int, metavar="N", help="Move to this offset.")
@click.option("--to-datetime", type=TimeParam(), metavar="TIME", help="Move to the first record at or after this time.")
@click.option("--shift-by", type=int, metavar="N", help="Move forward by N, or back by -N.")
@click.option("--execute", is_flag=True, help="Carry out the plan; without this, only show it.")
@bootstrap_option
@json_option
def reset(
    name: str, topics: tuple[str, ...], all_topics: bool, execute: bool, bootstrap: str, as_json: bool, **target: Any
) -> None:
    """Reset the committed offsets of the group NAME: show the plan, and carry it out with --execute."""
    chosen = [(way, value) for way, value in target.items() if value is not None and value is not False]
    if len(chosen) != 1:
        raise click.UsageError("choose one of --to-earliest, --to-latest, --to-offset, --to-datetime and --shift-by")
    if all_topics == bool(topics):
        raise click.UsageError("name what to reset with --topic, or everything with --all-topics")
    with admin_client(bootstrap) as admin:
        committed = admin.list_group_offsets(name)
        bounds = _resumable_offsets(admin, committed if all_topics else _selected_partitions(admin, topics))
        wanted = _targets(admin, *chosen[0], committed, bounds)
        plan = {item: min(max(offset, bounds[item].first), bounds[item].end) for item, offset in wanted.items()}
        if execute:
            _refuse_members(admin, name)
            admin.alter_group_offsets(name, plan)
    _print_plan(committed, plan, as_json=as_json)
    if not execute:
        click.echo("nothing was changed: give --execute to do it", err=True)


@command.command()
@click.argument("names", nargs=-1, required=True)
@bootstrap_option
def delete(names: tuple[str, ...], bootstrap: str) -> None:
    """Delete groups without members, with all their committed offsets."""
    with admin_client(bootstrap) as admin:
        admin.delete_groups(names)
    click.echo(f"deleted {', '.join(names)}")


def _offsets(admin: Admin, group: GroupDescription) -> dict[TopicPartition, GroupOffset]:
    """Return the committed offsets, and entries for assigned partitions without one."""
    found = admin.list_group_offsets(group.group_id)
    missing = {item for member in group.members for item in member.assignment} - found.keys()
    return {**found, **(admin.list_group_offsets(group.group_id, missing) if missing else {})}


def _described(group: GroupDescription) -> dict[str, object]:
    return {
        "group": group.group_id,
        "state": group.state,
        "type": group.type,
        "protocol": group.protocol,
        "coordinator": group.coordinator,
        "members": [
            {
                "member": member.member_id,
                "instance": member.group_instance_id,
                "client": member.client_id,
                "host": member.client_host,
                "partitions": [str(item) for item in member.assignment],
            }
            for member in group.members
        ],
    }


def _progress(group: GroupDescription, offsets: Mapping[TopicPartition, GroupOffset]) -> list[dict[str, object]]:
    owners = {item: member for member in group.members for item in member.assignment}
    now_ms = wall_clock_ms()
    return [
        {
            "topic": item.topic,
            "partition": item.partition,
            "offset": found.offset,
            "end": found.high_watermark,
            "lag": found.lag,
            "lag_ms": found.lag_ms(now_ms),
            "client": owners[item].client_id if item in owners else None,
            "host": owners[item].client_host if item in owners else None,
        }
        for item, found in sorted(offsets.items())
    ]


def _print_progress(rows: Iterable[Mapping[str, object]]) -> None:
    titles = ("TOPIC", "PARTITION", "OFFSET", "END", "LAG", "BEHIND", "CLIENT", "HOST")
    shown = []
    for row in rows:
        lag_ms = row["lag_ms"]
        cells = {**row, "lag_ms": seconds(lag_ms if isinstance(lag_ms, int) else None)}.values()
        shown.append([NOTHING if cell in (None, -1) else cell for cell in cells])
    print_table(titles, shown)


def _print_members(group: GroupDescription) -> None:
    rows = [
        (
            member.client_id,
            member.client_host,
            member.member_id,
            member.group_instance_id or NOTHING,
            ", ".join(map(str, member.assignment)) or NOTHING,
        )
        for member in group.members
    ]
    print_table(("CLIENT", "HOST", "MEMBER", "INSTANCE", "PARTITIONS"), rows)


def _selected_partitions(admin: Admin, topics: Iterable[str]) -> list[TopicPartition]:
    """Return the partitions of --topic. Raises UnknownTopicOrPartition or click.UsageError."""
    numbers: dict[str, set[int] | None] = {}
    for text in topics:
        topic, colon, listed = text.partition(":")
        try:
            numbers[topic] = {int(number) for number in listed.split(",")} if colon else None
        except ValueError:
            raise click.UsageError(f"--topic {text}: write TOPIC, or TOPIC:0,1 for some partitions") from None
    found = []
    for described in admin.describe_topics(numbers):
        there = {part.partition for part in described.partitions}
        chosen = numbers[described.name]
        if chosen and not chosen <= there:
            missing = ", ".join(map(str, sorted(chosen - there)))
            raise click.UsageError(f"topic {described.name} has no partition {missing}")
        found += [TopicPartition(described.name, number) for number in sorted(chosen or there)]
    return found


def _resumable_offsets(admin: Admin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ResumableOffsets]:
    earliest: dict[TopicPartition, OffsetSpec] = dict.fromkeys(partitions, "earliest")
    latest: dict[TopicPartition, OffsetSpec] = dict.fromkeys(earliest, "latest")
    ends = admin.list_offsets(latest)
    return {
        item: ResumableOffsets(first.offset, ends[item].offset) for item, first in admin.list_offsets(earliest).items()
    }


def _targets(
    admin: Admin, way: str, value: int, committed: Mapping[TopicPartition, GroupOffset], bounds: AllBounds
) -> dict[TopicPartition, int]:
    """Return the new offset of each partition, possibly outside of the log."""
    if way == "to_earliest":
        return {item: bound.first for item, bound in bounds.items()}
    if way == "to_latest":
        return {item: bound.end for item, bound in bounds.items()}
    if way == "to_offset":
        return dict.fromkeys(bounds, value)
    if way == "to_datetime":
        since: dict[TopicPartition, OffsetSpec] = dict.fromkeys(bounds, value)
        found = admin.list_offsets(since)
        return {item: each.offset if each.offset >= 0 else bounds[item].end for item, each in found.items()}
    moved = {item: found.offset + value for item, found in committed.items() if found.offset >= 0}
    return {item: offset for item, offset in moved.items() if item in bounds}


def _refuse_members(admin: Admin, name: str) -> None:
    """Raise NonEmptyGroup if the group has members, whose next commit would undo the reset."""
    if any(group.group_id == name for group in admin.list_groups(states=ACTIVE)):
        [group] = admin.describe_groups([name])
        who = ", ".join(sorted({member.client_id for member in group.members}))
        raise NonEmptyGroup(f"group {name} has members ({who}): stop them, then reset")


def _print_plan(
    committed: Mapping[TopicPartition, GroupOffset], plan: Mapping[TopicPartition, int], *, as_json: bool
) -> None:
    rows = [
        {
            "topic": item.topic,
            "partition": item.partition,
            "offset": committed[item].offset if item in committed else -1,
            "new_offset": offset,
        }
        for item, offset in sorted(plan.items())
    ]
    if as_json:
        for row in rows:
            print_json(row)
        return
    print_table(
        ("TOPIC", "PARTITION", "OFFSET", "NEW OFFSET"),
        [[NOTHING if value == -1 else value for value in row.values()] for row in rows],
    )
