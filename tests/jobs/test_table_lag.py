"""The first record of a range of offsets: of any number of partitions, and where records are missing."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sparklog.base.ids import TopicPartition
from sparklog.client import Producer
from sparklog.jobs import table_lag
from sparklog.jobs.table_lag import oldest_records
from support.processes.ports import reserve_port
from support.spark_topics import Topics

FIRST_MS = 1_700_000_000_000


def fill(topics: Topics, topic: str, partition: int, count: int, size: int = 10) -> None:
    """Records of the times FIRST_MS, FIRST_MS + 1 …, in ten batches."""
    times = pa.array([FIRST_MS + number for number in range(count)], pa.timestamp("ms", "UTC"))
    topics.fill(topic, count, partition=partition, batches=10, value=[bytes(size)] * count, timestamp=times)


@pytest.mark.slow
def test_each_partition_has_its_own_first_record_however_much_comes_after_it(
    topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topics.create(8)
    for partition in range(8):
        fill(topics, topic, partition, 100, size=10_000)
    wanted = {TopicPartition(topic, partition): (10 * partition + 3, 100) for partition in range(8)}

    found = oldest_records({"bootstrap_servers": topics.bootstrap}, wanted)

    assert found == {partition: FIRST_MS + start for partition, (start, _) in wanted.items()}
    assert not caplog.records


@pytest.mark.slow
def test_a_range_without_records_has_none_and_one_that_was_deleted_begins_later(topics: Topics) -> None:
    topic = topics.create(2)
    own = {"transactional_id": f"{topic}-producer", "bootstrap_servers": topics.bootstrap}
    with Producer(**own) as producer, producer.transaction():
        producer.send(topic, b"in a transaction", partition=0)
    fill(topics, topic, 1, 50)
    topics.delete_before(topic, 20, partition=1)
    marker, deleted = TopicPartition(topic, 0), TopicPartition(topic, 1)

    found = oldest_records({"bootstrap_servers": topics.bootstrap}, {marker: (1, 2), deleted: (0, 50)})

    assert found == {marker: None, deleted: FIRST_MS + 20}


@pytest.mark.slow
def test_what_cannot_be_found_out_is_left_out_and_told(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(table_lag, "TIMEOUT_MS", 100)
    client = {"bootstrap_servers": f"127.0.0.1:{reserve_port(request.node)}"}
    assert oldest_records(client, {TopicPartition("t", 0): (0, 1)}) == {}
    assert "t-0" in caplog.text
