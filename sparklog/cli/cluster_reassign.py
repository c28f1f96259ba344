"""`sparklog cluster reassign` and `drain`: move replicas between brokers.

A throttle is a setting of brokers and topics that outlives the command, as with kafka-reassign-partitions; `verify`
removes it once no partition is moving.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from sparklog.base.errors import (
    BrokerNotAvailable,
    ClientError,
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    ReassignmentInProgress,
)
from sparklog.base.ids import TopicPartition
from sparklog.cli.cluster_plan import BrokerIdsParam, Plan, RateParam, ids, racks_of, read_plan, show_plan
from sparklog.cli.common import admin_client, all_partitions, bootstrap_option, json_option, print_json, print_table
from sparklog.controller.spreading import spread

if TYPE_CHECKING:
    from sparklog.client import Admin

UNFINISHED = 1
POLL_S = 0.5
METADATA_DELAY_S = 5.0
CORDONED = "cordoned.log.dirs"
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"


throttle_option = click.option(
    "--throttle", type=RateParam(), metavar="RATE", help="Limit each broker's copying, in bytes per second (50MiB)."
)
wait_option = click.option("--wait", is_flag=True, help="Wait until all moves are done, and show the progress.")


@click.group("reassign")
def reassign() -> None:
    """Move partitions to other brokers: plan, execute, verify; or cancel.

    \b
      sparklog cluster reassign plan --topics orders --brokers 1,2,3 --output plan.json
      sparklog cluster reassign execute plan.json --throttle 50MiB
      sparklog cluster reassign verify plan.json
      sparklog cluster reassign cancel plan.json

    A partition that moves stays readable and writable: the new replicas copy it before the old ones are deleted.
    Plans have the format of kafka-reassign-partitions.
    """


@reassign.command()
@click.option("--topics", metavar="NAMES", help="Topics to move, separated by commas.")
@click.option("--all-topics", is_flag=True, help="All topics, including internal ones.")
@click.option(
    "--brokers",
    type=BrokerIdsParam(),
    metavar="IDS",
    help="Brokers to move to.  [default: all that are up and not cordoned]",
)
@click.option("--replication-factor", type=click.IntRange(1), metavar="N", help="Replicas.  [default: as many as now]")
@click.option("--output", metavar="FILE", help="Write the plan to FILE; without this, only show it.")
@bootstrap_option
@json_option
def plan(
    topics: str | None,
    all_topics: bool,
    brokers: tuple[int, ...] | None,
    replication_factor: int | None,
    output: str | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Plan an even spread of replicas over brokers and racks, with as few moves as that takes."""
    if all_topics == bool(topics):
        raise click.UsageError("name topics with --topics, or take all with --all-topics")
    with admin_client(bootstrap) as admin:
        racks = racks_of(admin, brokers)
        named = topics.split(",") if topics else None
        current = {name: part.replicas for name, part in all_partitions(admin, named)}
    planned = spread(current, racks, factor=replication_factor)
    show_plan(planned, current, output, as_json=as_json)


@reassign.command()
@click.argument("file", metavar="FILE")
@throttle_option
@click.option("--additional", is_flag=True, help="Start even if other partitions are already moving.")
@wait_option
@bootstrap_option
def execute(file: str, throttle: int | None, additional: bool, wait: bool, bootstrap: str) -> int:
    """Move partitions as FILE says. After --throttle, run verify: it removes the throttle."""
    planned = read_plan(file)
    with admin_client(bootstrap) as admin:
        return _execute(admin, planned, throttle=throttle, additional=additional, wait=wait, verify=f"verify {file}")


@reassign.command()
@click.argument("file", metavar="FILE")
@click.option("--keep-throttle", is_flag=True, help="Keep the throttle for the next moves.")
@bootstrap_option
@json_option
def verify(file: str, keep_throttle: bool, bootstrap: str, as_json: bool) -> int:
    """Show the progress of FILE's moves. Exit status 1 until all are done; removes the throttle when nothing moves."""
    planned = read_plan(file)
    with admin_client(bootstrap) as admin:
        moving = admin.list_partition_reassignments()
        copied = _copied_bytes(admin, planned)
        there = dict(all_partitions(admin, {name.topic for name in planned}))
        rows = []
        for name, target in planned.items():
            is_there = name in there and there[name].replicas == target
            state = "moving" if name in moving else "done" if is_there else "elsewhere"
            done, size = copied.get(name, (0, 0))
            rows.append(
                {
                    "topic": name.topic,
                    "partition": name.partition,
                    "replicas": list(there[name].replicas) if name in there else [],
                    "target": list(target),
                    "in_sync": list(there[name].in_sync_replicas) if name in there else [],
                    "copied": 100 if state == "done" or not size else 100 * done // size,
                    "state": state,
                }
            )
        if not moving and not keep_throttle:
            _remove_throttle(admin, {name.topic for name in planned})
    _print_progress(rows, as_json=as_json)
    return _verdict(rows, file)


@reassign.command()
@click.argument("file", metavar="FILE")
@click.option("--keep-throttle", is_flag=True, help="Keep the throttle.")
@bootstrap_option
def cancel(file: str, keep_throttle: bool, bootstrap: str) -> int:
    """Cancel the moves of FILE's partitions: those that have not finished go back to their former brokers."""
    planned = read_plan(file)
    with admin_client(bootstrap) as admin:
        refused = admin.alter_partition_reassignments(dict.fromkeys(planned))
        idle = [name for name, error in refused.items() if isinstance(error, NoReassignmentInProgress)]
        failed = {name: error for name, error in refused.items() if name not in idle}
        if not keep_throttle and not admin.list_partition_reassignments():
            _remove_throttle(admin, {name.topic for name in planned})
    click.echo(f"cancelled {len(planned) - len(refused)} moves; {len(idle)} partitions were not moving")
    for name, error in failed.items():
        click.echo(f"{name}: {error}", err=True)
    return UNFINISHED if failed else 0


@click.command()
@click.argument("broker", type=int)
@click.option("--leaders-only", is_flag=True, help="Move only leaderships; the replicas stay and are kept up to date.")
@click.option("--execute", "do", is_flag=True, help="Carry out the plan; without this, only show it.")
@throttle_option
@wait_option
@bootstrap_option
@json_option
def drain(
    broker: int, leaders_only: bool, do: bool, throttle: int | None, wait: bool, bootstrap: str, as_json: bool
) -> int:
    """Move all replicas away from BROKER, so that it can be stopped for long, or for good.

    \b
      sparklog cluster drain 2                          show the plan
      sparklog cluster drain 2 --execute --wait         move the replicas, and wait
      sparklog cluster drain 2 --leaders-only --execute

    Without --leaders-only, the broker gets no new partitions afterwards, until: sparklog cluster uncordon 2

    A restart needs no drain: a broker hands over its leaderships when it stops.
    """
    with admin_client(bootstrap) as admin:
        current = {name: part.replicas for name, part in all_partitions(admin)}
        held = {name for name, replicas in current.items() if broker in replicas}
        if not held and broker not in (known := _known_brokers(admin)):
            raise BrokerNotAvailable(
                f"no broker {broker} is there, nor a partition that is assigned to it; "
                f"there are {', '.join(map(str, known))}"
            )
        planned: Plan
        if leaders_only:
            planned = {
                name: (*(each for each in current[name] if each != broker), broker)
                for name in sorted(held)
                if len(current[name]) > 1 and current[name][0] == broker
            }
        else:
            others = {number: rack for number, rack in racks_of(admin, None).items() if number != broker}
            planned = _spread_without(current, others, held)
        show_plan(planned, current, None, as_json=as_json)
        if not do:
            if planned:
                click.echo("nothing was changed: give --execute to do it", err=True)
            return 0
        if not leaders_only:
            admin.alter_broker_configs(broker, set={CORDONED: "*"})
            click.echo(f"it gets no new partitions, until: sparklog cluster uncordon {broker}", err=True)
        if not planned:
            return 0
        status = _execute(admin, planned, throttle=throttle, additional=True, wait=wait, verify=None)
        if leaders_only:
            admin.elect_leaders(planned)
        return status


@click.command()
@click.argument("broker", type=int)
@bootstrap_option
def uncordon(broker: int, bootstrap: str) -> int:
    """Let BROKER get new partitions again after a drain."""
    with admin_client(bootstrap) as admin:
        if broker not in (known := _known_brokers(admin)):
            raise BrokerNotAvailable(f"no broker {broker} is there; there are {', '.join(map(str, known))}")
        admin.alter_broker_configs(broker, unset=[CORDONED])
    click.echo(
        f"broker {broker} gets new partitions again; give it a share of those there are with: "
        "sparklog cluster reassign plan"
    )
    return 0


def _known_brokers(admin: Admin) -> list[int]:
    """Return the ids of the live and of the cordoned brokers."""
    cluster = admin.describe_cluster()
    return sorted({broker.id for broker in cluster.brokers}.union(cluster.cordoned))


def _spread_without(
    current: Mapping[TopicPartition, tuple[int, ...]], others: Mapping[int, str], held: set[TopicPartition]
) -> Plan:
    try:
        return spread(current, others, only=held, even=False)
    except InvalidReplicationFactor as error:
        raise InvalidReplicationFactor(
            f"{error}: start another broker first, or keep fewer replicas with: "
            "sparklog cluster reassign plan --replication-factor"
        ) from None


def _execute(
    admin: Admin, planned: Plan, *, throttle: int | None, additional: bool, wait: bool, verify: str | None
) -> int:
    moving = admin.list_partition_reassignments()
    if moving and not additional:
        raise ReassignmentInProgress(
            f"{len(moving)} partitions are moving already: wait for them, or give --additional to move these too"
        )
    if throttle:
        _set_throttle(admin, planned, throttle)
    refused = admin.alter_partition_reassignments(dict(planned))
    for name, error in sorted(refused.items(), key=lambda item: item[0]):
        click.echo(f"{name}: {error}", err=True)
    click.echo(f"moving {len(planned) - len(refused)} partitions")
    if wait:
        started = {name: target for name, target in planned.items() if name not in refused}
        _wait(admin, started)
        if throttle and not admin.list_partition_reassignments():
            _remove_throttle(admin, {name.topic for name in planned})
        click.echo(f"{len(started)} partitions are where they should be")
    elif verify:
        click.echo(f"see how far it is with: sparklog cluster reassign {verify}", err=True)
    return UNFINISHED if refused else 0


def _wait(admin: Admin, started: Plan) -> None:
    """Wait until none of these partitions is moving, and show the progress. Moves continue after an interrupt.

    Raises ClientError if a partition then has other replicas than the target.
    """
    with click.progressbar(length=100, label="moving", file=sys.stderr) as bar:
        shown = 0
        while moving := admin.list_partition_reassignments(started):
            copied = _copied_bytes(admin, started)
            size = sum(total for _, total in copied.values())
            by_bytes = sum(done for done, _ in copied.values()) / size if size else 1.0
            share = min(by_bytes, 1 - len(moving) / (2 * len(started)))
            percent = max(shown, int(100 * share))
            bar.update(percent - shown)
            shown = percent
            time.sleep(POLL_S)
        bar.update(100 - shown)
    there = _replicas_after_move(admin, started)
    if elsewhere := [name for name, target in started.items() if there.get(name) != target]:
        raise ClientError(f"{len(elsewhere)} partitions were sent elsewhere meanwhile, {elsewhere[0]} is one of them")


def _replicas_after_move(admin: Admin, planned: Plan) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the partitions' replicas, once they are as planned or after METADATA_DELAY_S.

    The metadata of the answering broker may be older than the controller's.
    """
    deadline = time.monotonic() + METADATA_DELAY_S
    while True:
        there = {name: part.replicas for name, part in all_partitions(admin, {name.topic for name in planned})}
        if all(there.get(name) == target for name, target in planned.items()) or time.monotonic() > deadline:
            return there
        time.sleep(POLL_S)


def _copied_bytes(admin: Admin, planned: Plan) -> dict[TopicPartition, tuple[int, int]]:
    """Return for each partition the present and the final bytes of its target replicas."""
    sizes: dict[TopicPartition, dict[int, int]] = {}
    for broker, dirs in admin.describe_log_dirs({name.topic for name in planned}).items():
        for part in (part for log_dir in dirs for part in log_dir.partitions):
            if part.is_future:  # the replica is counted in its present directory
                continue
            sizes.setdefault(TopicPartition(part.topic, part.partition), {})[broker] = part.size_bytes
    copied = {}
    for name, target in planned.items():
        whole = max(sizes.get(name, {}).values(), default=0)
        copied[name] = (sum(sizes.get(name, {}).get(broker, 0) for broker in target), whole * len(target))
    return copied


def _set_throttle(admin: Admin, planned: Plan, rate: int) -> None:
    """Limit the rates of leaders and of new replicas, as kafka-reassign-partitions does."""
    moving = admin.list_partition_reassignments()
    current = {name: part.replicas for name, part in all_partitions(admin, {name.topic for name in planned})}
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    brokers: set[int] = set()
    for name, target in planned.items():
        sources = moving[name].origin if name in moving else current.get(name, ())
        new = [broker for broker in target if broker not in sources]
        brokers.update(sources, target)
        leaders.setdefault(name.topic, []).extend(f"{name.partition}:{broker}" for broker in sources)
        followers.setdefault(name.topic, []).extend(f"{name.partition}:{broker}" for broker in new)
    for topic, replicas in leaders.items():
        admin.alter_configs(topic, set={LEADERS: ",".join(replicas), FOLLOWERS: ",".join(followers[topic])})
    for broker in sorted(brokers):
        admin.alter_broker_configs(broker, set=dict.fromkeys(RATES, str(rate)))
    click.echo(
        f"brokers {ids(sorted(brokers))} copy at most {rate:,} bytes a second until verify removes that", err=True
    )


def _remove_throttle(admin: Admin, topics: Iterable[str]) -> None:
    for topic in sorted(set(topics)):
        configs = admin.describe_configs(topic=topic)
        if any(configs[key].source == "topic" for key in (LEADERS, FOLLOWERS) if key in configs):
            admin.alter_configs(topic, unset=(LEADERS, FOLLOWERS))
    for broker in admin.describe_cluster().brokers:
        admin.alter_broker_configs(broker.id, unset=RATES)


def _print_progress(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        for row in rows:
            print_json(row)
        return
    titles = ("TOPIC", "PARTITION", "REPLICAS", "TARGET", "IN SYNC", "COPIED %", "STATE")
    print_table(titles, [[ids(cell) if isinstance(cell, list) else cell for cell in row.values()] for row in rows])


def _verdict(rows: list[dict[str, Any]], file: str) -> int:
    moving, elsewhere = (sum(row["state"] == state for row in rows) for state in ("moving", "elsewhere"))
    if moving:
        click.echo(f"{moving} of {len(rows)} partitions are moving still: ask again, or --wait next time", err=True)
    if elsewhere:
        click.echo(
            f"{elsewhere} of {len(rows)} partitions are elsewhere and do not move; move them with: "
            f"sparklog cluster reassign execute {file}",
            err=True,
        )
    return UNFINISHED if moving or elsewhere else 0
