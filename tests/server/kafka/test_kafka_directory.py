"""A log directory of Apache Kafka, old message formats included, served to Kafka's clients."""

from __future__ import annotations

import base64
import json
import shutil
import uuid
from collections.abc import Iterator

import confluent_kafka
import pytest
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from sparklog.testing import RunningBroker, start_broker
from support import GOLDEN
from support.patience import PATIENCE_S

pytestmark = pytest.mark.slow

FOLDERS = ("codec-gzip-0", "codec-lz4-0", "codec-none-0", "codec-snappy-0", "codec-zstd-0", "compacted-0", "segments-0")
FIRST_SEGMENT = "00000000000000000000.log"


def old_segment(magic: int) -> bytes:
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=0, batch_size=1 << 20)
    for number in range(3):
        builder.append(number, timestamp=1000 + number, key=b"k", value=b"%d" % number)
    return bytes(builder.build())


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    folder = tmp_path_factory.mktemp("kafka-logs")
    for name in FOLDERS:
        shutil.copytree(GOLDEN / name, folder / name, ignore=shutil.ignore_patterns("*.dump", "*.jsonl"))
    for magic in (0, 1):
        (folder / f"old-{magic}").mkdir()
        (folder / f"old-{magic}" / FIRST_SEGMENT).write_bytes(old_segment(magic))
    with start_broker(folder, kafka=True, log_retention_ms=-1) as running:
        yield running


def read(broker: RunningBroker, topic: str, partition: int, count: int) -> list[confluent_kafka.Message]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.kafka, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, confluent_kafka.OFFSET_BEGINNING)])
    messages: list[confluent_kafka.Message] = []
    while len(messages) < count:
        found = consumer.consume(count - len(messages), timeout=PATIENCE_S)
        assert found, f"{len(messages)} of {count} messages came"
        messages += found
    consumer.close()
    return messages


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_kafka_wrote_is_consumed_as_kafka_consumed_it(broker: RunningBroker, folder: str) -> None:
    lines = (GOLDEN / folder / "expected.jsonl").read_text().splitlines()
    expected = [(row["offset"], row["key"], row["value"]) for row in map(json.loads, lines)]
    messages = read(broker, folder.removesuffix("-0"), 0, len(expected))
    assert [(each.offset(), _text(each.key()), _text(each.value())) for each in messages] == expected


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_are_sent_as_they_are(broker: RunningBroker, magic: int) -> None:
    messages = read(broker, "old", magic, 3)
    assert [(each.offset(), each.key(), each.value()) for each in messages] == [
        (number, b"k", b"%d" % number) for number in range(3)
    ]
    if magic:
        assert [each.timestamp()[1] for each in messages] == [1000, 1001, 1002]


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()
