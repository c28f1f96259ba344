"""Code paths of some requests, counted: calls of sparklog's functions, the files they are in, changes of file.

    produce    one Produce of one batch over Kafka's listener, from the bytes of its frame to those of the answer
    fetch      one Fetch of one batch over Kafka's listener
    metadata   one Metadata of a topic with 1 partition, and of one with 100, over Kafka's listener: made, as after each
               change of the cluster, then found as it was made
    plan       one batch read, as Spark's driver asks the source for it: the reader and its partitions

Counted with `sys.setprofile` in a broker in this process, for the second request of its kind: the first fills caches.
The counts do not depend on the machine. They show how much code a reader has to follow for such a request.

    .venv/bin/python -m bench.paths
"""

from __future__ import annotations

import socket
import struct
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

from kio.index import load_request_schema

import sparklog
from sparklog.client import Admin
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.records.records import Record, write_records
from sparklog.server.kafka.messages import make
from sparklog.spark.source.source import SparklogDataSource
from sparklog.testing import RunningBroker, start_broker
from sparklog.testing.kafka_frames import request_frame

PRODUCE, FETCH, METADATA = 0, 1, 3
VERSIONS = {PRODUCE: 9, FETCH: 11, METADATA: 12}
PARTITIONS = 100
SIZE = struct.Struct(">i")
ROOT = str(Path(sparklog.__file__).parent)
PASSED_OVER = (f"{ROOT}/v1/", f"{ROOT}/testing/")


class Watcher:
    """Counts the calls of one thread between `start` and `stop`, both called there."""

    def __init__(self) -> None:
        self._files: list[str] = []

    def start(self) -> None:
        self._files.clear()
        sys.setprofile(self._note)

    def stop(self) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(ROOT) and not name.startswith(PASSED_OVER):
            self._files.append(name)

    def line(self, name: str) -> str:
        changes = sum(one != other for one, other in pairwise(self._files))
        return f"{name:32}{len(self._files):7}{len(set(self._files)):8}{changes:10}"


def produce_request() -> Any:
    batch = bytes(write_records([Record(offset=0, timestamp_ms=1_700_000_000_000, value=b"v" * 100)]))
    topics = [{"name": "t", "partition_data": [{"index": 0, "records": batch}]}]
    return make(load_request_schema(PRODUCE, VERSIONS[PRODUCE]), acks=-1, timeout=1_000, topic_data=topics)


def fetch_request() -> Any:
    parts = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
    topics = [{"topic": "t", "partitions": parts}]
    return make(
        load_request_schema(FETCH, VERSIONS[FETCH]), max_wait=500, min_bytes=1, topics=topics, forgotten_topics_data=[]
    )


def metadata_request(topic: str) -> Any:
    topics = [{"name": topic, "topic_id": None}]
    return make(
        load_request_schema(METADATA, VERSIONS[METADATA]),
        topics=topics,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )


def ask(connection: socket.socket, request: Any) -> None:
    frame = request_frame(request, 1, "paths")
    connection.sendall(SIZE.pack(len(frame)) + frame)
    left = SIZE.unpack(connection.recv(SIZE.size, socket.MSG_WAITALL))[0]
    connection.recv(left, socket.MSG_WAITALL)


async def on_loop(work: Any) -> None:
    work()


def change(metadata: MetadataCache, topic: str) -> None:
    metadata.put(metadata.get(topic))


def count(broker: RunningBroker, connection: socket.socket, watcher: Watcher, name: str, request: Any) -> None:
    broker.run(on_loop(watcher.start))
    ask(connection, request)
    broker.run(on_loop(watcher.stop))
    print(watcher.line(name))


def main() -> None:
    print(f"{'':32}{'calls':>7}{'files':>8}{'changes':>10}")
    watcher = Watcher()
    with start_broker(kafka=True) as broker:
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.create_topic("t", partitions=1)
            admin.create_topic("wide", partitions=PARTITIONS)
        host, _, port = broker.kafka.rpartition(":")
        with socket.create_connection((host, int(port))) as connection:
            for name, request in (("produce", produce_request()), ("fetch", fetch_request())):
                ask(connection, request)
                count(broker, connection, watcher, name, request)
            for name, topic in (("metadata, 1 partition", "t"), (f"metadata, {PARTITIONS} partitions", "wide")):
                ask(connection, request := metadata_request(topic))
                broker.run(on_loop(partial(change, broker.node.broker.metadata, topic)))
                count(broker, connection, watcher, f"{name}, made", request)
                count(broker, connection, watcher, f"{name}, found", request)
        source = SparklogDataSource({"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "t"})
        for _ in range(2):
            watcher.start()
            source.reader(source.schema()).partitions()
            watcher.stop()
        print(watcher.line("plan"))


if __name__ == "__main__":
    main()
