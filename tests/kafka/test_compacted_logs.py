"""Apache Kafka's DumpLogSegments reads what compaction has put in place on a broker: every codec, and indexes."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

from sparklog.client import Producer
from sparklog.records.batch import Codec
from sparklog.spark.compaction.task import compact_in_task
from sparklog.testing import start_broker
from support.jobs.compactions import (
    COMPACTED,
    close_segments,
    consume,
    expected_offsets,
    fill_alike,
    keyed_offsets,
    settings_of,
    works_of,
)
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
