"""`sparklog cluster`: show brokers and partitions with problems, move replicas and leaderships.

`brokers`, `controller`, `log-dirs`, `under-replicated` and `history` only read; `reassign`, `elect-leaders`, `drain`,
`uncordon` and `alter-log-dir` change the cluster. A command that searches for faults has exit status 1 if it finds one,
so that a script can wait until the cluster is healthy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from sparklog.base.errors import BrokerNotAvailable, ElectionNotNeeded
from sparklog.base.ids import TopicPartition
from sparklog.cli.cluster_history import history
from sparklog.cli.cluster_log_dirs import alter_log_dir, log_dirs
from sparklog.cli.cluster_reassign import drain, reassign, uncordon
from sparklog.cli.common import (
    admin_client,
    all_partitions,
    bootstrap_option,
    json_option,
    parse_partitions,
    print_json,
    print_rows,
)

if TYPE_CHECKING:
    from sparklog.client import Admin

FOUND = 1
NO_BROKER = -1


@click.group("cluster")
def command() -> None:
    """Show brokers and their partitions, and move partitions between brokers.

    \b
      sparklog cluster brokers
      sparklog cluster under-replicated
      sparklog cluster reassign plan --all-topics --brokers 1,2,3,4 --output plan.json
      sparklog cluster reassign execute plan.json --throttle 50MiB --wait
      sparklog cluster reassign verify plan.json
      sparklog cluster elect-leaders --all
      sparklog cluster drain 2 --execute --wait
      sparklog cluster log-dirs --broker 2
      sparklog cluster alter-log-dir /disk2 --broker 2 --topic orders --wait
      sparklog cluster history --topic orders

    A replica is a partition's copy on one broker. One replica is the leader: it accepts writes, and the others copy
    them. Replicas that are up to date are in sync; one of them takes over when the leader fails.
    """


command.add_command(reassign)
command.add_command(drain)
command.add_command(uncordon)
command.add_command(history)
command.add_command(log_dirs)
command.add_command(alter_log_dir)


@command.command()
@bootstrap_option
@json_option
def brokers(bootstrap: str, as_json: bool) -> None:
    """List the brokers with their addresses, leaderships and replicas.

    PREFERRED counts the partitions whose preferred leader is the broker: if it is greater than LEADS, other brokers
    lead some of them (see: sparklog cluster elect-leaders). BEHIND counts the broker's replicas that are not in sync.
    A CORDONED broker gets no new partitions (see: sparklog cluster drain).
    Nothing is appended to FULL LOG DIRS until their disks have room; replicas in FAILED LOG DIRS are offline until the
    broker restarts.
    """
    with admin_client(bootstrap) as admin:
        cluster = admin.describe_cluster()
        partitions = all_partitions(admin)
        # For one topic, as only the directories are needed, not their replicas.
        log_dirs = admin.describe_log_dirs({name.topic for name, _ in partitions[:1]})
    leads = Counter(part.leader for _, part in partitions)
    preferred = Counter(part.replicas[0] for _, part in partitions if part.replicas)
    has = Counter(broker for _, part in partitions for broker in part.replicas)
    behind = Counter(broker for _, part in partitions for broker in {*part.replicas} - {*part.in_sync_replicas})
    rows: list[dict[str, Any]] = []
    alive = {broker.id: broker for broker in cluster.brokers}
    for number in sorted(alive.keys() | has.keys() | {*cluster.cordoned}):
        broker = alive.get(number)
        rows.append(
            {
                "broker": number,
                "state": "down" if broker is None else "controller" if number == cluster.controller_id else "up",
                "cordoned": number in cluster.cordoned,
                "address": broker.grpc_address if broker else None,
                "rack": (broker.rack if broker else None) or None,
                "leads": leads[number],
                "preferred": preferred[number],
                "replicas": has[number],
                "behind": behind[number],
                "full_log_dirs": [each.path for each in log_dirs.get(number, ()) if each.is_full],
                "failed_log_dirs": [each.path for each in log_dirs.get(number, ()) if each.error],
                "version": broker.version if broker else None,
            }
        )
    print_rows(rows, as_json=as_json)


@command.command()
@bootstrap_option
@json_option
def controller(bootstrap: str, as_json: bool) -> None:
    """Show the controller: the broker that elects leaders and informs the other brokers."""
    with admin_client(bootstrap) as admin:
        cluster = admin.describe_cluster()
    found = next((broker for broker in cluster.brokers if broker.id == cluster.controller_id), None)
    if found is None:
        raise BrokerNotAvailable("there is no controller at the moment: one is elected within the session time-out")
    if as_json:
        print_json({"controller": found.id, "address": found.grpc_address, "rack": found.rack or None})
    else:
        click.echo(f"broker {found.id} at {found.grpc_address}{f', rack {found.rack}' if found.rack else ''}")


@command.command("under-replicated")
@click.option("--under-min-isr", is_flag=True, help="Only those with fewer in sync than acks=all needs.")
@click.option("--offline", is_flag=True, help="Only those without a leader: they cannot be read or written.")
@bootstrap_option
@json_option
def under_replicated(under_min_isr: bool, offline: bool, bootstrap: str, as_json: bool) -> int:
    """List the partitions with a replica that is not in sync. Exit status 1 if there are any."""
    with admin_client(bootstrap) as admin:
        partitions = all_partitions(admin)
        if under_min_isr:
            needed = _min_in_sync(admin, {name.topic for name, _ in partitions})
            found = [item for item in partitions if len(item[1].in_sync_replicas) < needed[item[0].topic]]
        elif offline:
            found = [item for item in partitions if item[1].leader == NO_BROKER]
        else:
            found = [item for item in partitions if {*item[1].replicas} - {*item[1].in_sync_replicas}]
    rows = [
        {
            "topic": name.topic,
            "partition": name.partition,
            "leader": None if part.leader == NO_BROKER else part.leader,
            "replicas": list(part.replicas),
            "in_sync": list(part.in_sync_replicas),
            "missing": [broker for broker in part.replicas if broker not in part.in_sync_replicas],
        }
        for name, part in found
    ]
    print_rows(rows, as_json=as_json)
    if not found:
        if not as_json:
            click.echo(f"none of {len(partitions)} partitions", err=True)
        return 0
    missing = Counter(broker for row in rows for broker in _numbers(row["missing"]))
    brokers = ", ".join(map(str, sorted(missing)))
    click.echo(
        f"{len(found)} of {len(partitions)} partitions"
        + (f"; look at broker {brokers} with: sparklog cluster brokers" if missing else ""),
        err=True,
    )
    return FOUND


@command.command("elect-leaders")
@click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC[:0,1]", help="Partitions to elect leaders of; may be repeated."
)
@click.option("--all", "everything", is_flag=True, help="All partitions of all topics.")
@click.option(
    "--unclean",
    is_flag=True,
    help="Give partitions without a leader any live replica: records that it has not copied are LOST.",
)
@bootstrap_option
@json_option
def elect_leaders(topics: tuple[str, ...], everything: bool, unclean: bool, bootstrap: str, as_json: bool) -> int:
    """Elect the preferred leaders of partitions: the first of their replicas.

    The controller does so by itself every leader.imbalance.check.interval.seconds; this command does it now. Exit
    status 1 if a partition did not get its leader.
    """
    if everything == bool(topics):
        raise click.UsageError("name partitions with --topic, or take all with --all")
    with admin_client(bootstrap) as admin:
        answers = admin.elect_leaders(None if everything else parse_partitions(admin, topics), unclean=unclean)
        leaders = {name: part.leader for name, part in all_partitions(admin)}
    failed = [name for name, error in answers.items() if error and not isinstance(error, ElectionNotNeeded)]
    rows = [
        {
            "topic": name.topic,
            "partition": name.partition,
            "leader": leaders.get(name),
            "outcome": "led already" if isinstance(error, ElectionNotNeeded) else str(error) if error else "elected",
        }
        for name, error in sorted(answers.items(), key=_by_name)
    ]
    print_rows(rows, as_json=as_json)
    if not rows and not as_json:
        click.echo("no election was needed", err=True)
    if failed:
        click.echo(
            f"{len(failed)} partitions did not get the leader: list the partitions that lag with: sparklog cluster "
            "under-replicated",
            err=True,
        )
    return FOUND if failed else 0


def _by_name(item: tuple[TopicPartition, object]) -> TopicPartition:
    return item[0]


def _min_in_sync(admin: Admin, topics: Iterable[str]) -> dict[str, int]:
    """Return the effective min.insync.replicas of each topic."""
    key = "min.insync.replicas"
    return {topic: int(admin.describe_configs(topic=topic)[key].value) for topic in sorted(topics)}


def _numbers(value: object) -> list[int]:
    return value if isinstance(value, list) else []
