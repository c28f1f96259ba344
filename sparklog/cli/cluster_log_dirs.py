"""`sparklog cluster log-dirs` and `alter-log-dir`: show the log directories of brokers, move replicas between them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from sparklog.base.errors import BrokerNotAvailable, LogDirNotFound, SparklogError
from sparklog.base.ids import TopicPartition
from sparklog.cli.common import (
    admin_client,
    bootstrap_option,
    json_option,
    parse_partitions,
    print_rows,
)

if TYPE_CHECKING:
    from sparklog.client import Admin
    from sparklog.client.admin.descriptions import LogDirDescription, LogDirPartition

UNFINISHED = 1
POLL_S = 0.5
LogDirs = Mapping[str, "LogDirDescription"]
"""A broker's log directories by their paths."""


@click.command("log-dirs")
@click.option("--broker", type=int, metavar="ID", help="Only this broker.")
@bootstrap_option
@json_option
def log_dirs(broker: int | None, bootstrap: str, as_json: bool) -> None:
    """List the brokers' log directories with their replicas.

    ARRIVING counts the replicas that move to the directory from another one of the broker. Nothing is appended in a
    full directory; the replicas in a failed one are offline.
    """
    with admin_client(bootstrap) as admin:
        found = admin.describe_log_dirs()
    rows = []
    for number, dirs in sorted(found.items()):
        if broker not in (None, number):
            continue
        for each in sorted(dirs, key=lambda each: each.path):
            here = [part for part in each.partitions if not part.is_future]
            rows.append(
                {
                    "broker": number,
                    "log_dir": each.path,
                    "state": "failed" if each.error else "full" if each.is_full else "ok",
                    "replicas": len(here),
                    "bytes": sum(part.size_bytes for part in here),
                    "arriving": len(each.partitions) - len(here),
                }
            )
    if broker is not None and not rows:
        raise BrokerNotAvailable(f"broker {broker} is not up")
    print_rows(rows, as_json=as_json)


@click.command("alter-log-dir")
@click.argument("log_dir", metavar="LOG_DIR")
@click.option("--broker", type=int, required=True, metavar="ID", help="The broker whose replicas move.")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC[:0,1]", help="Replicas to move; may be repeated.")
@click.option("--from", "source", metavar="LOG_DIR", help="Move all replicas that are in this log directory.")
@click.option("--wait", is_flag=True, help="Wait until all moves are done, and show the progress.")
@bootstrap_option
@json_option
def alter_log_dir(
    log_dir: str, broker: int, topics: tuple[str, ...], source: str | None, wait: bool, bootstrap: str, as_json: bool
) -> int:
    """Move a broker's replicas to LOG_DIR, another of its log directories.

    \b
      sparklog cluster alter-log-dir /disk2 --broker 1 --topic orders:0,1 --wait
      sparklog cluster alter-log-dir /disk2 --broker 1 --from /disk1 --wait

    Replicas stay readable and writable while they are copied. Give the command again to see how far it is, and with the
    present log directory to end a move. To limit the copying, set replica.alter.log.dirs.io.max.bytes.per.second. Exit
    status 1 until all replicas are in LOG_DIR.
    """
    if bool(topics) == bool(source):
        raise click.UsageError("name replicas with --topic, or take all of a log directory with --from")
    with admin_client(bootstrap) as admin:
        before = _log_dirs_of(admin, broker)
        if source is None:
            wanted = parse_partitions(admin, topics)
        elif source in before:
            wanted = [TopicPartition(part.topic, part.partition) for part in before[source].partitions]
        else:
            raise LogDirNotFound(f"broker {broker} has no log directory {source}; it has {', '.join(before)}")
        answers = admin.alter_replica_log_dirs({(name, broker): log_dir for name in wanted})
        refused = {name: error for (name, _), error in answers.items()}
        if wait:
            _wait(admin, broker, log_dir, [name for name in wanted if name not in refused])
        rows = list(_move_states(_log_dirs_of(admin, broker), log_dir, wanted, refused))
    print_rows(rows, as_json=as_json, titles={"copied": "COPIED %"})
    unfinished = [row for row in rows if row["state"] != "done"]
    if unfinished and not refused and not wait:
        click.echo(f"{len(unfinished)} replicas are moving: ask again, or --wait next time", err=True)
    return UNFINISHED if unfinished else 0


def _log_dirs_of(admin: Admin, broker: int) -> LogDirs:
    found = admin.describe_log_dirs()
    if broker not in found:
        raise BrokerNotAvailable(f"broker {broker} is not up")
    return {each.path: each for each in found[broker]}


def _wait(admin: Admin, broker: int, log_dir: str, moving: list[TopicPartition]) -> None:
    """Wait until none of these replicas moves to `log_dir`, and show progress. Moves continue after an interrupt."""
    with click.progressbar(length=100, label="moving", file=sys.stderr) as bar:
        shown = 0
        while True:
            dirs = _log_dirs_of(admin, broker)
            arriving = {_partition_of(part): part for part in _replicas_in(dirs, [log_dir]) if part.is_future}
            if not arriving.keys() & set(moving):
                break
            sizes = {_partition_of(part): part.size_bytes for part in _replicas_in(dirs, dirs) if not part.is_future}
            whole = sum(sizes.get(name, 0) for name in moving)
            left = sum(sizes.get(name, 0) - arriving[name].size_bytes for name in moving if name in arriving)
            percent = max(shown, int(100 * (whole - left) / whole) if whole else 0)
            bar.update(percent - shown)
            shown = percent
            time.sleep(POLL_S)
        bar.update(100 - shown)


def _move_states(
    dirs: LogDirs, log_dir: str, wanted: Iterable[TopicPartition], refused: Mapping[TopicPartition, SparklogError]
) -> Iterator[dict[str, Any]]:
    homes = {
        _partition_of(part): (path, part.size_bytes)
        for path in dirs
        for part in _replicas_in(dirs, [path])
        if not part.is_future
    }
    arriving = {_partition_of(part): part.size_bytes for part in _replicas_in(dirs, [log_dir]) if part.is_future}
    for name in wanted:
        home, size = homes.get(name, (None, 0))
        copied = size if home == log_dir else arriving.get(name, 0)
        state = "done" if home == log_dir else "moving" if name in arriving else str(refused.get(name, "elsewhere"))
        yield {
            "topic": name.topic,
            "partition": name.partition,
            "log_dir": home,
            "copied": 100 if state == "done" or not size else min(99, 100 * copied // size),
            "state": state,
        }


def _replicas_in(dirs: LogDirs, paths: Iterable[str]) -> Iterator[LogDirPartition]:
    for path in paths:
        if path in dirs:
            yield from dirs[path].partitions


def _partition_of(part: LogDirPartition) -> TopicPartition:
    return TopicPartition(part.topic, part.partition)
