"""One topic over a bare connection: produce, fetch and list offsets in any version, and the batches for it."""

from __future__ import annotations

from typing import Any

from sparklog.records.batch import HEADER_SIZE, build_header, iterate_headers, seal
from sparklog.records.records import Record, iterate_records, write_records
from support.kafka.connection import Wire

PRODUCE, FETCH, LIST_OFFSETS, METADATA, EPOCH_ENDS, CLUSTER, TOPIC_PARTITIONS = 0, 1, 2, 3, 23, 60, 75
MEBIBYTE = 1 << 20


def make_batch(*values: bytes, timestamp_ms: int = 1000, **fields: int) -> bytes:
    """One uncompressed batch, a record for each value; `fields` change its header."""
    rows = [Record(offset=at, timestamp_ms=timestamp_ms + at, value=value) for at, value in enumerate(values)]
    records = write_records(rows)[HEADER_SIZE:]
    header = {
        "base_offset": 0, "leader_epoch": -1, "attributes": 0, "last_offset_delta": len(values) - 1,
        "base_timestamp": timestamp_ms, "max_timestamp": timestamp_ms + len(values) - 1, "producer_id": -1,
        "producer_epoch": -1, "base_sequence": -1, "record_count": len(values),
    }  # fmt: skip
    batch = build_header(records_size=len(records), **header | fields) + records
    seal(batch)
    return bytes(batch)


def values_in(records: bytes) -> list[bytes]:
    """Of all batches in a partition's part of a Fetch response."""
    batches = [records[at : at + header.size] for at, header in iterate_headers(records)]
    return [record.value for batch in batches for record in iterate_records(batch)]


def ask_metadata(wire: Wire, version: int, topics: Any, **fields: Any) -> Any:
    asked = {"include_topic_authorized_operations": False, "include_cluster_authorized_operations": False} | fields
    return wire.send(METADATA, version, topics=topics, **asked)


class Topic:
    """A topic with one connection to its broker."""

    def __init__(self, wire: Wire, name: str) -> None:
        self.wire = wire
        self.name = name
        self.topic_id = self.metadata(12).topic_id

    def metadata(self, version: int, **fields: Any) -> Any:
        topics = [{"name": self.name, "topic_id": None}]
        return ask_metadata(self.wire, version, topics, **fields).topics[0]

    def produce(self, version: int, data: bytes | None, partition: int = 0, **fields: Any) -> Any:
        topic = {
            "name": self.name,
            "topic_id": self.topic_id,
            "partition_data": [{"index": partition, "records": data}],
        }
        response = self.wire.send(PRODUCE, version, **{"acks": -1, "timeout": 1000, "topic_data": [topic]} | fields)
        return response.responses[0].partition_responses[0]

    def fetch(self, version: int, offset: int, **fields: Any) -> Any:
        part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": MEBIBYTE}
        part |= {name: fields.pop(name) for name in ("current_leader_epoch", "last_fetched_epoch") if name in fields}
        topic = {"topic": self.name, "topic_id": self.topic_id, "partitions": [part]}
        return self.wire.send(
            FETCH,
            version,
            **{"max_wait": 0, "min_bytes": 1, "max_bytes": MEBIBYTE, "isolation_level": 0, "replica_id": -1}
            | {"topics": [topic], "forgotten_topics_data": ()}
            | fields,
        )

    def list_offset(self, version: int, timestamp: int, **fields: Any) -> Any:
        part = {"partition_index": 0, "timestamp": timestamp} | fields
        topic = {"name": self.name, "partitions": [part]}
        response = self.wire.send(LIST_OFFSETS, version, replica_id=-1, isolation_level=0, topics=[topic])
        return response.topics[0].partitions[0]
