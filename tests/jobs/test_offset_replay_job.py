"""The offsets topic as tables: a topic of Apache Kafka, and a broker that dies in the middle."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer as Librdkafka
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka import TopicPartition as KafkaPartition
from pyspark.sql import DataFrame, SparkSession

from sparklog.base.ids import TopicPartition
from sparklog.base.schemas import write_key, write_value
from sparklog.client import Admin, Consumer, Producer
from sparklog.jobs.job import JobContext, run_job
from sparklog.jobs.offset_replay import JOB, PartitionReplay, ReplayTables, plan_partition
from sparklog.jobs.options import parse_options
from sparklog.log.description import LogDescription
from sparklog.log.epochs import NO_EPOCH, EpochStart
from sparklog.offsets_topic.commits import read_offset_records
from sparklog.offsets_topic.schemas import OFFSETS_TOPIC
from sparklog.records.arrow import decode_batches
from sparklog.records.records import Record, write_records
from sparklog.spark.offsets import topic as offsets_topic
from sparklog.spark.offsets.tables import NEWEST, PartitionProgress, ReplayTable
from support.patience import OPEN_MS, PATIENCE_S, wait_until
from support.processes.broker import BrokerProcess
from support.spark_topics import Topics

PAGE = Path(__file__).parents[2] / "docs" / "operating" / "offset-replay.md"
PATIENT_MS = 3_600_000
"""Members that nobody polls while a job runs stay members."""
NEW_PROTOCOL = {
    "group.protocol": "consumer",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "max.poll.interval.ms": PATIENT_MS,
    "log_level": 0,
}
OURS = {
    "group_id": "ours",
    "client_id": "us",
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "max_poll_interval_ms": PATIENT_MS,
}
NONE, LZ4 = "codec-none", "codec-lz4"


def replay(context: JobContext, **options: Any) -> list[Any]:
    return run_job(JOB, context, parse_options(JOB, options)).rows.orderBy("partition").collect()


def table(context: JobContext, name: str) -> DataFrame:
    return context.spark.read.format("delta").load(context.table(name))


@pytest.fixture
def kafka_s(golden: Path, tmp_path: Path) -> Path:
    """A log directory with the offsets topic that Apache Kafka wrote."""
    folder = tmp_path / "kafka" / "__consumer_offsets-0"
    shutil.copytree(golden / "__consumer_offsets-0", folder)
    return folder


def test_what_kafka_wrote(make_context: Any, kafka_s: Path) -> None:
    context = make_context()

    (row,) = replay(context, path=str(kafka_s.parent))

    assert (row.outcome, row.offset_from, row.offset_to, row.records) == ("read", 0, 22, 22)
    history = table(context, "consumer_offsets_history").orderBy("log_offset").collect()
    assert [(each.log_offset, each.group_id, each.topic, each.offset, each.client_id) for each in history] == [
        (0, "g-txn", NONE, 77, None),
        (4, "g-classic", LZ4, 51, "rdkafka"),
        (5, "g-classic", NONE, 50, "rdkafka"),
        (6, "g-classic", LZ4, 121, "rdkafka"),
        (7, "g-classic", NONE, 120, "rdkafka"),
        (14, "g-consumer", LZ4, 51, "rdkafka"),
        (15, "g-consumer", NONE, 50, "rdkafka"),
        (16, "g-consumer", LZ4, 121, "rdkafka"),
        (17, "g-consumer", NONE, 120, "rdkafka"),
    ]
    assert history[1].commit_time == datetime(2026, 11, 21, 2, 17, 12, 222000)
    now = table(context, "consumer_offsets").orderBy("log_offset").collect()
    assert [(each.group_id, each.topic, each.offset, each.metadata) for each in now] == [
        ("g-txn", NONE, 77, ""),
        ("g-classic", LZ4, 121, ""),
        ("g-classic", NONE, 120, "g-classic at 120\0"),
        ("g-consumer", LZ4, 121, ""),
        ("g-consumer", NONE, 120, "g-consumer at 120\0"),
    ]
    assert table(context, "group_members").count() == 0  # all had left


def documented(heading: str) -> list[str]:
    """The SQL blocks under a heading of docs/operating/offset-replay.md."""
    _, _, text = PAGE.read_text().partition(f"## {heading}\n")
    section, _, _ = text.partition("\n## ")
    return re.findall(r"```sql\n(.*?)```", section, re.DOTALL)


def write_commits(
    folder: Path, commits: list[tuple[str, str, int, int | None, datetime]], gone: Collection[int] = ()
) -> None:
    """A partition of the offsets topic with commits of (group, topic, partition, offset, time); None: a tombstone.

    gone: at which offsets compaction has left nothing.
    """
    records = []
    for at, (group, topic, partition, offset, when) in enumerate(commits):
        key = {"group": group, "topic": topic, "partition": partition}
        time_ms = round(when.timestamp() * 1000)
        fields = {"offset": offset, "leaderEpoch": 0, "metadata": "", "commitTimestamp": time_ms}
        value = None if offset is None else write_value(4, fields, OFFSETS_TOPIC[1][1])
        records.append(Record(offset=at, timestamp_ms=time_ms, key=write_key(1, key, OFFSETS_TOPIC), value=value))
    folder.mkdir(parents=True)
    left = [record for record in records if record.offset not in gone]
    (folder / f"{0:020d}.log").write_bytes(write_records(left))


def test_the_documented_query_tells_the_lag_of_a_group_at_a_time(
    make_context: Any, topics: Topics, tmp_path: Path, spark: SparkSession
) -> None:
    at = datetime.combine(date.today() - timedelta(days=1), time(14, 5), UTC)
    minute = timedelta(minutes=1)
    topic = topics.create(partitions=3)
    for partition, before in enumerate([10, 4, 0]):
        times = [at - (before - number) * minute for number in range(before)] + [at + minute] * 5
        topics.fill(topic, before + 5, partition=partition, timestamp=pa.array(times, pa.timestamp("ms", "UTC")))
    write_commits(
        tmp_path / "log" / "__consumer_offsets-0",
        [
            ("g", "orders", 0, 3, at - 9 * minute),
            ("other", "orders", 0, 9, at - 8 * minute),
            ("g", "orders", 0, 6, at - 3 * minute),
            ("g", "orders", 1, 2, at - 2 * minute),
            ("g", "orders", 1, None, at - minute),
            ("g", "orders", 0, 12, at + minute),
        ],
    )
    context = make_context()
    replay(context, path=str(tmp_path / "log"))
    views, query = documented("The lag of a group, at any time")
    views = views.replace("127.0.0.1:9094", topics.bootstrap).replace('"orders"', f'"{topic}"')
    for statement in views.replace("/var/lib/sparklog/reports", context.reports).strip().rstrip(";").split(";\n"):
        spark.sql(statement)

    rows = spark.sql(query).collect()

    assert [(row.partition, row.committed_offset, row.end_offset, row.lag) for row in rows] == [
        (0, 6, 10, 4),
        (1, None, 4, 4),
    ]
    assert rows[0].committed_at == (at - 3 * minute).replace(tzinfo=None)


def damage(folder: Path) -> None:
    """Change the last byte of the last batch."""
    file = folder / f"{0:020d}.log"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def test_a_damaged_partition_is_a_finding_and_the_others_are_read(make_context: Any, tmp_path: Path) -> None:
    context, now = make_context(), datetime.now(UTC)
    folders = [tmp_path / "log" / f"__consumer_offsets-{number}" for number in range(3)]
    for folder in folders:
        write_commits(folder, [(folder.name, "orders", 0, number, now) for number in range(4)])
    damage(folders[0])
    (folders[0] / f"{9:020d}.log").write_bytes(b"")  # only the last segment is checked before it is read
    damage(folders[1])
    checkpoint = "".join(f"__consumer_offsets {number} 4\n" for number in range(3))
    (tmp_path / "log" / "replication-offset-checkpoint").write_text(f"0\n3\n{checkpoint}")

    rows = replay(context, path=str(tmp_path / "log"))

    assert [row.outcome for row in rows] == ["failed", "failed", "read"]
    assert "CRC" in rows[0].reason
    assert rows[1].reason == "CORRUPT_MESSAGE: the log can be read up to offset 0, below its high watermark 4"
    now_committed = table(context, "consumer_offsets").collect()
    assert [(row.group_id, row.offset) for row in now_committed] == [(folders[2].name, 3)]


def interrupt_after_a_table(context: JobContext, **options: Any) -> None:
    """Run the job, and end it before it writes its second table."""
    write = ReplayTable.write

    def die(table: ReplayTable, *what: Any) -> ReplayTable:
        if table.path.endswith(NEWEST):
            raise KeyboardInterrupt
        return write(table, *what)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ReplayTable, "write", die)
        with pytest.raises(KeyboardInterrupt):
            replay(context, **options)


@pytest.mark.soak_only
def test_a_run_that_dies_between_two_tables_is_taken_up_by_the_next(make_context: Any, tmp_path: Path) -> None:
    folder, context = tmp_path / "log" / "__consumer_offsets-0", make_context()
    now = datetime.now(UTC)
    commits: list[Any] = [("g", "orders", number % 2, number, now) for number in range(4)]
    write_commits(folder, commits)
    interrupt_after_a_table(context, path=str(folder))
    shutil.rmtree(folder)
    write_commits(folder, [*commits, ("g", "orders", 0, None, now), ("h", "orders", 0, 9, now)])

    (row,) = replay(context, path=str(folder))

    assert (row.outcome, row.records) == ("read", 2)
    history = table(context, "consumer_offsets_history").orderBy("log_offset").collect()
    assert [(each.log_offset, each.offset, each.deleted) for each in history] == [
        (0, 0, False), (1, 1, False), (2, 2, False), (3, 3, False), (4, None, True), (5, 9, False),
    ]  # fmt: skip
    rows = table(context, "consumer_offsets").collect()
    assert {(each.group_id, each.partition): each.offset for each in rows} == {("g", 1): 3, ("h", 0): 9}


def part_of(log: LogDescription, *, reached: int | None, made: int = 0, epoch: int = NO_EPOCH) -> PartitionReplay:
    """Return the plan of a partition whose tables are at `reached`, with a snapshot up to `made`."""
    progress = {} if reached is None else {0: PartitionProgress("id", reached, epoch)}
    same = ReplayTable(spark=None, path="", version=0, progress=progress)  # type: ignore[arg-type]
    tables = ReplayTables(history=same, newest=same, offsets=same, members=same)
    return plan_partition(log, tables, parse_options(JOB, {"snapshot_after": 100}), {0: made})


def log_of(
    high_watermark: int,
    *,
    start: int = 0,
    cleaned: int = 0,
    stable: int | None = None,
    end: int | None = None,
    epochs: Any = (),
) -> LogDescription:
    return LogDescription(
        partition=TopicPartition("__consumer_offsets", 0), topic_id="id", log_start_offset=start,
        high_watermark=high_watermark, last_stable_offset=high_watermark if stable is None else stable,
        log_end_offset=high_watermark if end is None else end, cleaned_offset=cleaned, epochs=epochs,
    )  # fmt: skip


def test_offsets_of_transactions_count_when_these_are_committed(make_context: Any, topics: Topics) -> None:
    context, topic = make_context(), topics.create()
    topics.fill(topic, 10)
    address = {"bootstrap.servers": topics.broker.kafka}
    member = Librdkafka({**address, "group.id": f"g-{topic}"})

    def begin(offset: int) -> KafkaProducer:
        own = {"transactional.id": f"{topic}-{offset}", "transaction.timeout.ms": OPEN_MS}
        producer = KafkaProducer({**address, **own})
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        position = KafkaPartition(topic, 0, offset)
        producer.send_offsets_to_transaction([position], member.consumer_group_metadata(), PATIENCE_S)
        return producer

    def replayed() -> tuple[list[int], list[tuple[int, bool]], int]:
        rows = replay(context, snapshot_after=1)
        of_topic = f"topic = '{topic}'"
        now = [row.offset for row in table(context, "consumer_offsets").filter(of_topic).collect()]
        history = table(context, "consumer_offsets_history").filter(of_topic).orderBy("log_offset").collect()
        (row,) = [row for row in rows if row.partition == history[0].log_partition]
        assert row.outcome == "read", row
        assert row.snapshot_offset == row.offset_to
        return now, [(row.offset, row.transactional) for row in history], row.snapshot_offset

    begin(5).commit_transaction(PATIENCE_S)
    begin(7).abort_transaction(PATIENCE_S)
    slow = begin(9)
    now, history, before = replayed()
    assert (now, history) == ([5], [(5, True)])
    slow.commit_transaction(PATIENCE_S)
    now, history, after = replayed()
    assert (now, history) == ([9], [(5, True), (9, True)])
    assert after > before
    member.close()


def test_only_what_is_new_is_read_unless_compaction_has_been_where_nobody_has_read() -> None:
    assert part_of(log_of(50), reached=None).offset_from == 0
    assert part_of(log_of(50), reached=50).outcome == "unchanged"
    assert (part_of(log_of(70), reached=50).offset_from, part_of(log_of(70), reached=50).rebuild) == (50, False)
    assert (part_of(log_of(70, cleaned=50), reached=50).offset_from) == 50
    lost = part_of(log_of(70, cleaned=51), reached=50)  # a tombstone may be gone
    assert (lost.offset_from, lost.history_from, lost.rebuild) == (0, 50, True)
    assert part_of(log_of(70, stable=60), reached=50).offset_to == 60
    assert part_of(log_of(40), reached=50).outcome == "behind"
    assert part_of(log_of(40, end=50), reached=50).outcome == "unchanged"  # only the high watermark lags


def test_a_history_that_was_removed_is_filled_again(make_context: Any, tmp_path: Path) -> None:
    folder, context = tmp_path / "log" / "__consumer_offsets-0", make_context()
    now = datetime.now(UTC)
    write_commits(folder, [("g", "orders", number % 2, number, now) for number in range(4)])
    replay(context, path=str(folder))
    shutil.rmtree(context.table("consumer_offsets_history"))

    (row,) = replay(context, path=str(folder))

    assert (row.outcome, row.offset_from, row.records) == ("read", 0, 4)
    history = table(context, "consumer_offsets_history").collect()
    assert sorted((each.log_offset, each.offset) for each in history) == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert [each.outcome for each in replay(context, path=str(folder))] == ["unchanged"]


def test_a_log_that_has_lost_what_the_tables_have_is_read_again_from_there() -> None:
    epochs = (EpochStart(1, 0), EpochStart(3, 40))

    same = part_of(log_of(70, epochs=epochs), reached=50, epoch=3)
    assert (same.offset_from, same.history_from, same.rebuild) == (50, 50, False)
    other = part_of(log_of(70, epochs=epochs), reached=50, epoch=1)  # 40 to 49 were others then
    assert (other.offset_from, other.history_from, other.rebuild) == (0, 40, True)
    assert "lost records" in other.reason
    assert part_of(log_of(50, epochs=epochs), reached=50, epoch=1).outcome == "read"
    assert part_of(log_of(45, epochs=epochs), reached=50, epoch=1).outcome == "behind"


def test_a_run_begins_again_where_the_topic_was_compacted_after_the_survey(
    make_context: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tables obey a tombstone that only the survey saw."""
    folder, context = tmp_path / "log" / "__consumer_offsets-0", make_context()
    now = datetime.now(UTC)
    commits: list[Any] = [("g", "orders", 0, 1, now), ("g", "orders", 1, 2, now)]
    write_commits(folder, commits)
    replay(context, path=str(folder))
    shutil.rmtree(folder)
    commits += [("g", "orders", 0, None, now), ("h", "orders", 0, 9, now)]
    write_commits(folder, commits)
    surveyed = offsets_topic.surveys

    def compacted_behind(spark: SparkSession, slices: Any) -> Any:
        monkeypatch.undo()
        found = surveyed(spark, slices)
        shutil.rmtree(folder)
        write_commits(folder, commits, gone=(0, 2))
        return found

    monkeypatch.setattr(offsets_topic, "surveys", compacted_behind)

    (row,) = replay(context, path=str(folder))

    assert row.outcome == "read"
    rows = table(context, "consumer_offsets").collect()
    assert {(each.group_id, each.partition): each.offset for each in rows} == {("g", 1): 2, ("h", 0): 9}


def test_a_snapshot_is_due_when_the_last_one_is_far_behind_or_compacted_past() -> None:
    assert part_of(log_of(100), reached=90).snapshot
    assert not part_of(log_of(150), reached=90, made=90).snapshot
    assert part_of(log_of(190), reached=90, made=90).snapshot
    assert part_of(log_of(150, cleaned=120), reached=130, made=110).snapshot


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, "offsets.topic.num.partitions=2") as process:
        yield process


def kill_after_a_table(context: JobContext) -> None:
    """Run the job in a process of its own, and kill all of it as soon as it has written a table."""
    command = [sys.executable, "-m", "sparklog", "jobs", "run", "offset_replay", "--reports", context.reports]
    job = subprocess.Popen(
        [*command, "--bootstrap", context.client["bootstrap_servers"]],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    version = Path(context.table("consumer_offsets_history"), "_delta_log", f"{0:020d}.json")
    try:
        wait_until(lambda: version.exists() or job.poll() is not None, f"the job writes {version}")
        assert job.poll() is None, job.communicate()
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.communicate()


def in_log(broker: BrokerProcess, folder: Path) -> set[tuple[int, int]]:
    """Partition and offset of every commit and tombstone in the log."""
    found = set()
    for number in range(2):
        for file in (folder / "data" / f"__consumer_offsets-{number}").glob("*.log"):
            for batch in decode_batches(file.read_bytes(), columns=("offset", "timestamp", "key", "value")):
                commits = read_offset_records(batch).commits
                found |= {(number, offset) for offset in commits["log_offset"].to_pylist()}
    return found


def committed(admin: Admin, *groups: str) -> dict[tuple[str, str, int], int]:
    return {
        (group, *partition): found.offset
        for group in groups
        for partition, found in admin.list_group_offsets(group).items()
        if found.offset >= 0
    }


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize(
    "end_job", [interrupt_after_a_table, pytest.param(kill_after_a_table, marks=pytest.mark.soak_only)]
)
def test_job_and_broker_are_killed_and_nothing_is_lost_or_doubled(
    make_context: Any, broker: BrokerProcess, tmp_path: Path, end_job: Callable[[JobContext], None]
) -> None:
    groups = ("ours", "theirs", "simple")
    context = make_context(client={"bootstrap_servers": broker.grpc})
    with Admin(bootstrap_servers=broker.grpc) as admin, Producer(bootstrap_servers=broker.grpc) as producer:
        admin.create_topic("orders", partitions=2)
        for number in range(20):
            producer.send("orders", b"%d" % number, partition=number % 2)
        producer.flush()
        theirs = Librdkafka(
            {"bootstrap.servers": broker.kafka, "group.id": "theirs", "client.id": "rd", **NEW_PROTOCOL}
        )
        theirs.subscribe(["orders"])
        with Consumer(bootstrap_servers=broker.grpc, **OURS) as ours:
            ours.subscribe(["orders"])
            read(ours, 20)
            ours.commit()
            for _ in range(20):
                theirs.commit(consumed(theirs), asynchronous=False)
            for number in range(50):
                admin.alter_group_offsets("simple", {TopicPartition("orders", number % 2): number // 3})

            end_job(context)
            broker.kill()
            broker.start()
            for number in range(50):
                admin.alter_group_offsets("simple", {TopicPartition("orders", number % 2): number // 2})

            rows = replay(context, snapshot_after=1)

            assert [row.outcome for row in rows] == ["read", "read"]
            assert [row.snapshot_offset for row in rows] == [row.offset_to for row in rows]
            history = table(context, "consumer_offsets_history").collect()
            assert len(history) == len({(row.log_partition, row.log_offset) for row in history})
            assert {(row.log_partition, row.log_offset) for row in history} == in_log(broker, tmp_path)
            assert {(row.group_id, row.client_id) for row in history if row.offset} == {
                ("ours", "us"), ("theirs", "rd"), ("simple", None),
            }  # fmt: skip
            before = committed(admin, *groups)
            now = table(context, "consumer_offsets").collect()
            assert {(row.group_id, row.topic, row.partition): row.offset for row in now} == before
            members = {row.group_id: row for row in table(context, "group_members").collect()}
            assert {group: row.protocol for group, row in members.items()} == {"ours": "classic", "theirs": "consumer"}
            for row in members.values():
                assert [(each.topic, sorted(each.partitions)) for each in row.assignment] == [("orders", [0, 1])]

            broker.kill()
            broker.start()

            assert committed(admin, *groups) == before
            assert broker.log.count("read a snapshot of") == 2
        theirs.close()


def read(consumer: Consumer, count: int) -> None:
    left = count

    def read_on() -> bool:
        nonlocal left
        left -= len(consumer.poll(100))
        return left <= 0

    wait_until(read_on, f"{count} records are read", tell=lambda: left)


def consumed(consumer: Librdkafka) -> Any:
    """Wait for the next record and return it."""

    def poll() -> Any:
        message = consumer.poll(1)
        return message if message and message.error() is None else None

    return wait_until(poll, "there is a record")
