"""Partitions of a topic in a log directory, described as a broker would describe them: for reads without a broker."""

from __future__ import annotations

import posixpath

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition, encode_id
from sparklog.log.description import LogDescription
from sparklog.log.directory.checkpoints import COMPACTED, CorruptCheckpoint, read_offsets, read_topic_id
from sparklog.spark.folders import FolderLookup, open_folder
from sparklog.spark.source.options import Subscribe


def describe_folders(path: str, topic: str) -> dict[TopicPartition, LogDescription | KafkaError]:
    """Describe the partitions of `topic` in the log directory at `path`, or the single partition whose folder it is.

    They end at the checkpointed high watermark. Raises ConfigError and OSError.
    """
    lookup = FolderLookup.open(path)
    found: dict[TopicPartition, LogDescription | KafkaError] = {}
    for partition, bounds in lookup.bounds(Subscribe((topic,))).items():
        fs, folder = open_folder(lookup.folder(partition))
        try:
            topic_id = read_topic_id(fs, folder)
            cleaned = read_offsets(fs, f"{posixpath.dirname(folder)}/{COMPACTED}").get(partition, 0)
        except CorruptCheckpoint:
            topic_id, cleaned = None, bounds.high_watermark  # compaction may have removed anything
        found[partition] = LogDescription(
            partition=partition, topic_id=encode_id(topic_id) if topic_id else "", folder=lookup.folder(partition),
            log_start_offset=bounds.log_start, high_watermark=bounds.high_watermark,
            last_stable_offset=bounds.high_watermark, log_end_offset=bounds.high_watermark, cleaned_offset=cleaned,
        )  # fmt: skip
    return found
