"""Apache Kafka's tools read what compaction has put in place on a broker: every codec, indexes, and transactions."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import KafkaError, Message
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka import TopicPartition as KafkaPartition

from sparklog.client import Producer
from sparklog.records.batch import Codec
from sparklog.spark import segment_files
from sparklog.spark.compaction import rewrite
from sparklog.spark.compaction.task import compact_in_task
from sparklog.testing import start_broker
from support.jobs.compactions import (
    COMPACTED,
    NOW_MS,
    close_segments,
    consume,
    expected_offsets,
    fill_alike,
    keyed_offsets,
    settings_of,
    works_of,
)
from support.patience import OPEN_MS, PATIENCE_S
from support.spark_topics import Topics

COMPLAINTS = re.compile(
    r"mismatch|isvalid: false|out of order|does not match|Indexed offset|corrupt|Error", re.IGNORECASE
)

# The tool goes by records: it knows of no timestamp in a batch that is a header alone, which cleaners put in the index.
OF_EMPTIED_BATCHES = re.compile(
    r"^Found timestamp mismatch in .*\n(  Index timestamp: \d+, log timestamp: -1\n)+", re.MULTILINE
)


def test_a_log_compacted_in_any_codec_is_read_with_its_indexes(
    tmp_path: Path, dump_log_segments: Callable[..., str]
) -> None:
    codecs = [codec.name.lower() for codec in Codec]
    with start_broker(tmp_path) as broker:
        topics = Topics(broker)
        topic = topics.create(partitions=len(codecs), **COMPACTED, index_interval_bytes=500)
        for partition, codec in enumerate(codecs):
            with Producer(bootstrap_servers=broker.bootstrap, compression_type=codec) as producer:
                fill_alike(producer, topic, (partition,), random.Random(codec))
        close_segments(topics, topic, range(len(codecs)))
        works = works_of(broker.bootstrap, topic)
        for partition in works:
            expected = expected_offsets(consume(broker.bootstrap, topic, partition))
            ((_, outcome),) = compact_in_task([works[partition]], settings_of(broker.bootstrap))
            assert outcome.outcome == "compacted"
            assert keyed_offsets(consume(broker.bootstrap, topic, partition)) == expected
        topics.close()
    for partition, codec in enumerate(codecs):
        logs = sorted((tmp_path / f"{topic}-{partition}").glob("*.log"))
        dumped = dump_log_segments(*logs)
        assert not COMPLAINTS.search(dumped), COMPLAINTS.search(dumped)
        assert f"compresscodec: {codec}" in dumped
    indexes = [path for kind in ("index", "timeindex") for path in sorted(tmp_path.glob(f"{topic}-*/*.{kind}"))]
    dumped = OF_EMPTIED_BATCHES.sub("", dump_log_segments(*indexes, options=()))
    assert not COMPLAINTS.search(dumped), dumped
    checked = dump_log_segments(*indexes, options=("--index-sanity-check",))
    assert not COMPLAINTS.search(checked), checked
    assert checked.count("passed sanity check.") > len(codecs)


@pytest.mark.parametrize("is_elsewhere", [False, True], ids=["files", "through the broker"])
def test_transactions_compacted_on_a_broker_are_whole_for_kafkas_clients_and_tools(
    is_elsewhere: bool, tmp_path: Path, dump_log_segments: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_elsewhere:
        for module in (segment_files, rewrite):
            monkeypatch.setattr(module, "is_visible", lambda _: False)
    with start_broker(tmp_path, kafka=True) as broker:
        topics = Topics(broker)
        topic = topics.create(cleanup_policy="compact", delete_retention_ms=0, internal_segment_bytes=1000)
        address = {"bootstrap.servers": broker.kafka}
        names = ("a", "b", "across")
        patient = {**address, "transaction.timeout.ms": OPEN_MS}
        one, other, across = (KafkaProducer({**patient, "transactional.id": name}) for name in names)
        for producer in (one, other, across):
            producer.init_transactions(PATIENCE_S)
        across.begin_transaction()
        across.produce(topic, "across", "across", partition=0)
        across.flush(PATIENCE_S)
        for number in range(20):
            one.begin_transaction()
            other.begin_transaction()
            for producer, key in ((one, "same"), (other, "same"), (one, f"k{number % 3}"), (other, f"k{number % 4}")):
                producer.produce(topic, f"{number}-{'one' if producer is one else 'other'}", key, partition=0)
                producer.flush(PATIENCE_S)
            one.commit_transaction(PATIENCE_S)
            (other.commit_transaction if number == 3 else other.abort_transaction)(PATIENCE_S)
        expected = {"same": "19-one", "k0": "18-one", "k1": "19-one", "k2": "17-one", "k3": "3-other"}
        close_segments(topics, topic)
        across.abort_transaction(PATIENCE_S)  # its marker lies in the active segment
        sizes = []
        for number in range(3):
            ((_, outcome),) = compact_in_task(
                [works_of(broker.bootstrap, topic)[0]], settings_of(broker.bootstrap, now_ms=NOW_MS + number)
            )
            assert outcome.outcome in {"compacted", "unchanged"}, outcome.reason
            sizes.append(outcome.records_after)
            assert committed(address, topic) == expected
        assert sizes[0] > 40 > sizes[2] + 20  # the first pass removes records, the others the markers
        topics.close()
        for producer in (one, other, across):
            producer.close()
    logs = sorted((tmp_path / f"{topic}-0").glob("*.log"))
    dumped = dump_log_segments(*logs)
    assert not COMPLAINTS.search(dumped), COMPLAINTS.search(dumped)
    assert "endTxnMarker: ABORT" in dumped
    if indexes := sorted((tmp_path / f"{topic}-0").glob("*.txnindex")):
        assert not COMPLAINTS.search(dump_log_segments(*indexes, options=()))


def committed(address: dict[str, str], topic: str) -> dict[str, str]:
    """The newest value of each key, as librdkafka reads committed records up to the last stable offset."""
    place = KafkaPartition(topic, 0, 0)
    consumer = KafkaConsumer({**address, "group.id": "none", "enable.partition.eof": True})
    consumer.assign([place])
    found: dict[str, str] = {}
    for message in itertools.takewhile(lambda each: not is_end(each), iter(lambda: consumer.poll(PATIENCE_S), None)):
        key, value = message.key(), message.value()
        if key is not None and value is not None:
            found[key.decode()] = value.decode()
    consumer.close()
    return found


def is_end(message: Message) -> bool:
    """Whether it tells that the partition has no more."""
    error = message.error()
    assert error is None or error.code() == KafkaError._PARTITION_EOF, error
    return error is not None
