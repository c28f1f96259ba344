"""Offsets replay: writes the offsets topic to Delta tables, and makes snapshots that coordinators load.

    plan     lists the partitions of `__consumer_offsets`, the new offsets since the last run, and whether a snapshot is
             due
    apply    writes tables (spark/offsets/tables.py), in this order: the history (appended to); the newest record of
             each key; from these records the committed offsets and the members of groups. Then it makes the snapshots
    report   has the outcome of each partition, with figures

Each run reads only new offsets. The tables hold their own progress, so the next run continues a run that died, and the
history has every commit once. If the log was compacted above the progress of the tables (by the cleaner's checkpoint,
or because an offset is missing), the tables may lack tombstones that are gone. The run then rebuilds the newest records
from the whole log, which compaction has made small, and the history gets the records that are left. The run also
rebuilds them if the log has lost records that the tables have, as the leader epochs show: a broker lost unflushed
records, or there was an unclean election. The history keeps the lost records, and continues with their replacements.
If the history is behind the other tables, because it was removed or is an older copy, the run reads the whole log, too,
and the history gets the records that are left.

A snapshot holds the newest record of each key, up to the offset that the tables have reached. It is due
`--snapshot-after` records after the last snapshot, or when the log was compacted above the last one, which makes that
one useless. Tables and snapshots end before the first open transaction. An offset that was committed in a transaction
counts from its place in the log, as for a coordinator, once the transaction is committed.

Outcomes:

    read        the tables are up to date with `offset_to`, and so is the snapshot, if one was due
    unchanged   there was nothing new
    failed      a finding: the leader did not describe its log or refused the snapshot, or a batch is damaged, for the
                given reason; the other partitions are read
    behind      a finding: the log ends below the progress of the tables (records were lost, or it is another log)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparklog.base.errors import KafkaError, UnknownTopicOrPartition
from sparklog.base.ids import TopicPartition
from sparklog.client import Admin
from sparklog.jobs.job import Job, JobContext, Options
from sparklog.jobs.logs import Logs, describe_logs, kafka_error_text
from sparklog.log.description import LogDescription
from sparklog.log.epochs import NO_EPOCH, LeaderEpochs
from sparklog.spark.folders import describe_folders
from sparklog.spark.offsets import topic as offsets_topic
from sparklog.spark.offsets.groups import RecordPosition
from sparklog.spark.offsets.read import PartitionSlice, SliceCompacted, SliceSurvey
from sparklog.spark.offsets.snapshots import SnapshotTarget, install
from sparklog.spark.offsets.tables import HISTORY, MEMBERS, NEWEST, OFFSETS, PartitionProgress, ReplayTable
from sparklog.spark.offsets.topic import ReplayTask

NAME = "offset_replay"
OFFSETS_TOPIC = "__consumer_offsets"
ATTEMPTS = 3
"""Number of attempts if the topic is compacted between the survey and the reading."""
READ, UNCHANGED, FAILED, BEHIND = "read", "unchanged", "failed", "behind"
PLAN_SCHEMA = (
    "topic string, partition int, outcome string, reason string, offset_from bigint, offset_to bigint, "
    "rebuild boolean, snapshot boolean"
)
REPORT_SCHEMA = (
    "topic string, partition int, outcome string, reason string, offset_from bigint, offset_to bigint, "
    "records bigint, snapshot_offset bigint, snapshot_bytes bigint"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTables:
    """The tables at the start of a run."""

    history: ReplayTable
    newest: ReplayTable
    offsets: ReplayTable
    members: ReplayTable

    @classmethod
    def open(cls, context: JobContext, options: Options) -> ReplayTables:
        """Return the tables in the folder of --tables, by default beside the reports. A missing table is empty."""

        def table(name: str) -> ReplayTable:
            folder = options["tables"]
            return ReplayTable.open(context.spark, f"{folder.rstrip('/')}/{name}" if folder else context.table(name))

        return cls(history=table(HISTORY), newest=table(NEWEST), offsets=table(OFFSETS), members=table(MEMBERS))

    @property
    def is_derived(self) -> bool:
        """Whether `offsets` and `members`, which are derived from `newest`, are up to date with it."""
        return dict(self.offsets.progress) == dict(self.members.progress) == dict(self.newest.progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReplay:
    """The work on one partition."""

    log: LogDescription
    outcome: str
    reason: str
    offset_from: int
    offset_to: int
    history_from: int
    rebuild: bool
    snapshot: bool

    @property
    def number(self) -> int:
        """The number of the partition."""
        return self.log.partition.partition


def plan(context: JobContext, options: Options) -> DataFrame:
    """Return one row for each partition of the offsets topic."""
    logs, tables, snapshots = (
        _describe_offsets_topic(context, options),
        ReplayTables.open(context, options),
        _last_snapshots(context),
    )
    rows: list[tuple[Any, ...]] = []
    for partition, log in sorted(logs.items()):
        if isinstance(log, KafkaError):
            rows.append((*partition, FAILED, kafka_error_text(log), None, None, False, False))
        else:
            part = plan_partition(log, tables, options, snapshots)
            rows.append((*partition, part.outcome, part.reason, part.offset_from, part.offset_to, part.rebuild,
                         part.snapshot))  # fmt: skip
    context.say(f"{sum(row[2] == READ for row in rows)} of {len(rows)} partitions have something new")
    return context.spark.createDataFrame(rows, PLAN_SCHEMA)


def apply(context: JobContext, options: Options, planned: DataFrame) -> DataFrame:
    """Replay the due partitions, including records written after the plan; return a row for each partition.

    Starts again if compaction removes records between the survey and the reading.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return _apply_once(context, options)
        except (PySparkException, Py4JJavaError) as error:  # its text has the task's error
            if SliceCompacted.__name__ not in str(error):
                raise
            context.say("the topic was compacted meanwhile: once more")
    return _apply_once(context, options)


def _apply_once(context: JobContext, options: Options) -> DataFrame:
    logs, tables = _describe_offsets_topic(context, options), ReplayTables.open(context, options)
    snapshots = _last_snapshots(context)
    parts = [
        plan_partition(log, tables, options, snapshots) for log in logs.values() if isinstance(log, LogDescription)
    ]
    due = [part for part in parts if part.outcome == READ]
    surveyed, surveys = _survey_parts(context, options, due)
    due = [part for part in surveyed if part.outcome == READ]
    works = _replay_tasks(context, options, due, surveys, tables)
    newest = _write_tables(context, tables, works, due)
    sizes = _install_snapshots(context, newest, due)
    rows = [_report_row(part, sizes) for part in (*surveyed, *(each for each in parts if each.outcome != READ))]
    rows += [(*name, FAILED, kafka_error_text(log), None, None, None, None, None) for name, log in logs.items()
             if isinstance(log, KafkaError)]  # fmt: skip
    return context.spark.createDataFrame(rows, REPORT_SCHEMA)


def _describe_offsets_topic(context: JobContext, options: Options) -> Logs:
    """Return the partitions of the offsets topic; none if the topic does not exist, as no group was used yet."""
    if options["path"]:
        return describe_folders(options["path"], OFFSETS_TOPIC)
    try:
        with Admin(**context.client) as admin:
            (topic,) = admin.describe_topics([OFFSETS_TOPIC])
    except UnknownTopicOrPartition:
        return {}
    return describe_logs(context, [TopicPartition(OFFSETS_TOPIC, each.partition) for each in topic.partitions])


def _survey_parts(
    context: JobContext, options: Options, parts: Sequence[PartitionReplay]
) -> tuple[list[PartitionReplay], Mapping[int, SliceSurvey]]:
    """Survey the batch headers of the partitions; return the adjusted replays and the surveys.

    Each replay ends before the first transaction that has not ended. A replay whose new records were compacted starts
    at the log start offset instead. A partition that cannot be read has failed; the others go on.
    """
    first = {each.partition: each for each in offsets_topic.surveys(context.spark, _slices(context, options, parts))}
    incomplete = {part.number for part in parts if not part.rebuild and not first[part.number].is_complete}
    parts = [
        replace(part, rebuild=True, offset_from=part.log.log_start_offset) if part.number in incomplete else part
        for part in parts
    ]
    again = _slices(context, options, [part for part in parts if part.number in incomplete])
    surveys = first | {each.partition: each for each in offsets_topic.surveys(context.spark, again)}
    return [_surveyed(part, surveys[part.number]) for part in parts], surveys


def _surveyed(part: PartitionReplay, survey: SliceSurvey) -> PartitionReplay:
    if survey.error:
        return replace(part, outcome=FAILED, reason=survey.error, offset_to=survey.offset_to, snapshot=False)
    return replace(part, offset_to=survey.offset_to)


def plan_partition(
    log: LogDescription, tables: ReplayTables, options: Options, snapshots: Mapping[int, int]
) -> PartitionReplay:
    """Return the work on a partition, with the reason. snapshots: end offset of the last snapshot, by partition."""
    number, offset_to = log.partition.partition, min(log.high_watermark, log.last_stable_offset)
    in_history, _ = _agreed_offset(tables.history, log)
    in_newest, is_newest_of_log = _agreed_offset(tables.newest, log)
    history_from = max(in_history or 0, log.log_start_offset)
    lacks_history = in_newest is not None and history_from < in_newest  # the table was removed, or is an older copy
    rebuild = (
        in_newest is None
        or not is_newest_of_log
        or max(log.cleaned_offset, log.log_start_offset) > in_newest
        or lacks_history
    )
    offset_from = log.log_start_offset if rebuild or in_newest is None else in_newest
    is_new = offset_to > min(history_from, log.log_start_offset if in_newest is None else in_newest)
    outcome, reason = (READ, f"{offset_to - history_from} new records") if is_new else (UNCHANGED, "nothing new")
    if in_newest is not None and offset_to < in_newest:
        outcome, reason = BEHIND, f"the log ends at {log.log_end_offset}, the tables are at {in_newest}"
        if log.log_end_offset >= in_newest:  # after an election the high watermark may lag for a moment
            outcome, reason = UNCHANGED, f"the high watermark is {log.high_watermark}, the tables are at {in_newest}"
    elif is_new and not is_newest_of_log:
        reason += "; the log has lost records that the tables have, so all is read"
    elif is_new and lacks_history:
        reason += f"; the history is at {history_from}, the other tables are at {in_newest}, so all is read"
    elif is_new and rebuild and in_newest is not None:
        reason += f"; compacted up to {log.cleaned_offset}, so all is read"
    last = snapshots.get(number, 0)
    before = last if last <= offset_to else 0  # a greater offset is of a snapshot of another log
    is_old = offset_to - before >= options["snapshot_after"] or (log.cleaned_offset > before and offset_to > before)
    snapshot = options["snapshots"] and not options["path"] and outcome == READ and is_old
    return PartitionReplay(
        log=log, outcome=outcome, reason=reason, offset_from=offset_from, offset_to=offset_to,
        history_from=history_from, rebuild=rebuild, snapshot=snapshot,
    )  # fmt: skip


def _agreed_offset(table: ReplayTable, log: LogDescription) -> tuple[int | None, bool]:
    """Return the offset up to which a table agrees with the log, and whether the log still has all of the table.

    The offset is None if the table has nothing of the log. The leader epochs show whether the log has lost records.
    """
    reached = table.reached(log.partition.partition, log.topic_id)
    if reached is None:
        return None, True
    epochs = LeaderEpochs(log.epochs)
    now = epochs.epoch_at(reached.offset - 1)
    if NO_EPOCH in (reached.leader_epoch, now) or now == reached.leader_epoch or reached.offset > log.high_watermark:
        return reached.offset, True
    common = epochs.end_offset_for(reached.leader_epoch, log.log_end_offset).end_offset
    return min(reached.offset, max(common, log.log_start_offset)), False


def _last_snapshots(context: JobContext) -> dict[int, int]:
    """Return the end offset of the newest snapshot in the reports, by partition."""
    try:
        reports = context.spark.read.format("delta").load(context.table(NAME))
    except AnalysisException:  # the first run
        return {}
    newest = reports.filter("snapshot_offset is not null").groupBy("partition").agg(F.max_by("snapshot_offset", "at"))
    return {row[0]: row[1] for row in newest.collect()}


def _slices(context: JobContext, options: Options, parts: Sequence[PartitionReplay]) -> list[PartitionSlice]:
    client = {} if options["path"] else dict(context.client)
    return [PartitionSlice.of(part.log, part.offset_from, part.offset_to, client) for part in parts]


def _replay_tasks(
    context: JobContext,
    options: Options,
    parts: Sequence[PartitionReplay],
    surveys: Mapping[int, SliceSurvey],
    tables: ReplayTables,
) -> list[ReplayTask]:
    known = _known_groups(tables, [part.number for part in parts if not part.rebuild])
    return [
        ReplayTask(
            slice=replace(slice_, markers=surveys[part.number].markers, must_be_complete=not part.rebuild),
            history_from=part.history_from,
            groups=known.get(part.number, ()),
        )
        for part, slice_ in zip(parts, _slices(context, options, parts), strict=True)
    ]


def _known_groups(
    tables: ReplayTables, partitions: Sequence[int]
) -> dict[int, list[tuple[bytes, bytes, RecordPosition]]]:
    """Return the newest records of groups and members before this run, by partition.

    Their number grows with members, not with commits.
    """
    if tables.newest.version < 0 or not partitions:
        return {}
    rows = tables.newest.read().filter(F.col("log_partition").isin(*partitions)).filter(~offsets_topic.is_commit())
    found: dict[int, list[tuple[bytes, bytes, RecordPosition]]] = {}
    for row in rows.orderBy("log_offset").collect():
        place = RecordPosition(row.log_offset, round(row.log_time.timestamp() * 1000))
        found.setdefault(row.log_partition, []).append((bytes(row.key), bytes(row.value), place))
    return found


def _write_tables(
    context: JobContext, tables: ReplayTables, works: Sequence[ReplayTask], parts: Sequence[PartitionReplay]
) -> ReplayTable:
    """Update all tables, and return the table with the newest records."""
    newest = tables.newest
    if works:
        reached = {part.number: _progress_of(part) for part in parts}
        commits = offsets_topic.commits(context.spark, works)
        tables.history.write(commits, "append", {**tables.history.progress, **reached}, context.run_id)
        context.say("the history is written")
        rows = _newest_records(context, tables, works, [part.number for part in parts if part.rebuild])
        newest = newest.write(rows, "overwrite", {**newest.progress, **reached}, context.run_id)
    if works or (newest.version >= 0 and not tables.is_derived):
        rows = newest.read()
        tables.offsets.write(offsets_topic.current_offsets(rows), "overwrite", newest.progress, context.run_id)
        tables.members.write(offsets_topic.current_members(rows), "overwrite", newest.progress, context.run_id)
    return newest


def _progress_of(part: PartitionReplay) -> PartitionProgress:
    epoch = LeaderEpochs(part.log.epochs).epoch_at(part.offset_to - 1)
    return PartitionProgress(part.log.topic_id, part.offset_to, epoch)


def _newest_records(
    context: JobContext, tables: ReplayTables, works: Sequence[ReplayTask], rebuilt: Sequence[int]
) -> DataFrame:
    changes = offsets_topic.changes(context.spark, works)
    if tables.newest.version < 0:
        return changes.filter("value is not null")
    return offsets_topic.newest(tables.newest.read(), changes, rebuilt)


def _install_snapshots(
    context: JobContext, newest: ReplayTable, parts: Sequence[PartitionReplay]
) -> Mapping[int, int | str]:
    wanted = [part for part in parts if part.snapshot]
    if not wanted:
        return {}
    rows = newest.read()
    targets = [
        SnapshotTarget(partition=part.log.partition, leader_epoch=part.log.leader_epoch, end_offset=part.offset_to)
        for part in wanted
        if part.offset_to > 0
    ]
    done = dict(install(rows, targets, context.client))
    refused = [target for target in targets if isinstance(done[target.partition.partition], str)]
    done |= install(rows, _with_new_leader_epochs(context, refused, parts), context.client)
    context.say(f"{sum(isinstance(each, int) for each in done.values())} snapshots were made")
    return done


def _with_new_leader_epochs(
    context: JobContext, targets: Sequence[SnapshotTarget], parts: Sequence[PartitionReplay]
) -> list[SnapshotTarget]:
    """Return the targets whose leader epoch has changed, with the new one, if the log has all records of the snapshot.

    The leader may be another broker, or the same one again.
    """
    described = {part.log.partition: part.log for part in parts}
    logs = describe_logs(context, [target.partition for target in targets])
    found = []
    for target in targets:
        log, before, end = logs[target.partition], described[target.partition], target.end_offset - 1
        if isinstance(log, KafkaError) or log.leader_epoch == target.leader_epoch:
            continue
        if LeaderEpochs(log.epochs).epoch_at(end) == LeaderEpochs(before.epochs).epoch_at(end):
            found.append(replace(target, leader_epoch=log.leader_epoch))
    return found


def _report_row(part: PartitionReplay, sizes: Mapping[int, int | str]) -> tuple[Any, ...]:
    size = sizes.get(part.number)
    outcome, reason = part.outcome, part.reason
    if isinstance(size, str):
        outcome, reason = FAILED, f"the snapshot was refused: {size}"
    is_made = isinstance(size, int)
    return (
        *part.log.partition, outcome, reason, part.offset_from, part.offset_to,
        max(0, part.offset_to - part.history_from) if part.outcome == READ else 0,
        part.offset_to if is_made else None, size if is_made else None,
    )  # fmt: skip


JOB = Job(
    name=NAME,
    help="The offsets topic as Delta tables, and snapshots that coordinators load.",
    plan=plan,
    apply=apply,
    parameters=(
        click.Option(["--tables"], help="The folder of the tables. Default: the folder of the reports."),
        click.Option(["--path"], help="Read a log directory, sparklog's or Apache Kafka's, instead of asking brokers."),
        click.Option(["--snapshots/--no-snapshots"], default=True, help="Make snapshots for coordinators."),
        click.Option(
            ["--snapshot-after"], type=click.IntRange(1), default=1_000, show_default=True,
            help="Make a snapshot when there are this many records since the last one.",
        ),
    ),
    findings=frozenset({FAILED, BEHIND}),
)  # fmt: skip
