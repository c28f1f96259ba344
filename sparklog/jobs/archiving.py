"""The common part of the jobs that archive: the selected logs, the state of the archives, and the copying."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import click

from sparklog.base.errors import SparklogError
from sparklog.base.ids import INTERNAL_TOPICS, TopicPartition
from sparklog.jobs.job import JobContext, Options
from sparklog.jobs.logs import Logs, describe_logs
from sparklog.jobs.options import topic_filter
from sparklog.log.description import LogDescription
from sparklog.spark.history.archive import SLICE_BYTES, ArchiveTarget, CopyResult, archive
from sparklog.spark.history.archive_files import TableLocation
from sparklog.spark.history.archive_table import ArchiveTable

MIB = 1 << 20
Tables = dict[str, ArchiveTable | SparklogError | None]
"""Opened archives by URI; None if the archive does not exist yet, an error if it cannot be opened."""


def topics_option(default: str) -> click.Option:
    """Return the option that selects topics; `default` says which are selected without it."""
    return click.Option(
        ["--topics"],
        multiple=True,
        metavar="NAME|PATTERN",
        help="Only these topics: a name, or a regular expression that matches whole names. May be repeated. "
        f"Default: {default}.",
    )


def slice_option() -> click.Option:
    """Return the option that bounds a commit to an archive."""
    return click.Option(
        ["--slice-mb"],
        type=click.IntRange(1),
        default=SLICE_BYTES // MIB,
        show_default=True,
        help="Archive about this many megabytes of segments with each commit.",
    )


def describe_selected(context: JobContext, options: Options) -> Logs:
    """Return the logs of the topics that the options select. Raises ConfigError for an invalid pattern."""
    wanted = external_topic_filter(options["topics"])
    return {name: log for name, log in describe_logs(context).items() if wanted(name.topic)}


def external_topic_filter(texts: Sequence[str]) -> Callable[[str], bool]:
    """Return a function that tells whether the options select a topic; an internal topic only by its exact name."""
    chosen_by_pattern = topic_filter(texts)

    def chosen(topic: str) -> bool:
        if topic in INTERNAL_TOPICS:
            return topic in texts
        return chosen_by_pattern(topic)

    return chosen


def archived_to(place: TableLocation, log: LogDescription, tables: Tables) -> int | None:
    """Return the offset up to which a partition is archived; None if the archive has nothing of it.

    Takes the archive from `tables`, or opens it and adds it there. Raises ConfigError if the archive cannot be opened,
    holds another topic of that name, or holds records that the log has lost.
    """
    if place.uri not in tables:
        try:
            tables[place.uri] = ArchiveTable.open(place)
        except SparklogError as error:
            tables[place.uri] = error
    table = tables[place.uri]
    if isinstance(table, SparklogError):
        raise table
    archived = table.archived_of(log) if table else None
    return archived.offset_to if archived else None


def archive_all(
    context: JobContext, options: Options, wanted: Mapping[str, Sequence[ArchiveTarget]]
) -> dict[TopicPartition, CopyResult]:
    """Archive the targets of each table, by URI; return the result of each partition.

    If a table cannot be written, only its own partitions fail.
    """
    copied: dict[TopicPartition, CopyResult] = {}
    for uri, targets in sorted(wanted.items()):
        try:
            copied |= archive(
                context.spark, TableLocation(uri), targets, context.client,
                slice_bytes=options["slice_mb"] * MIB, say=context.say,
            )  # fmt: skip
        except SparklogError as error:
            copied |= {each.log.partition: CopyResult(error=str(error)) for each in targets}
    return copied


def lost_reason(copied: CopyResult) -> str:
    """Return a text about offsets that were deleted before they could be archived; empty if there are none."""
    if copied.lost_to is None:
        return ""
    return f"offsets {copied.lost_from} to {copied.lost_to - 1} were deleted before they were archived"
