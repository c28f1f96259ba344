"""What the tests of this folder say most often: topics with records, and reads without a JVM."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from sparklog.base.fs import LocalFs
from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Producer
from sparklog.log.directory.checkpoints import HIGH_WATERMARKS, read_offsets
from sparklog.spark.columns import table_schema
from sparklog.spark.source.option_parsing import parse_read_options
from sparklog.spark.source.option_table import OptionUse
from sparklog.spark.source.read import PushdownReader, TopicReader
from sparklog.testing import RunningBroker
from support.patience import PATIENCE_S, wait_until


class Topics:
    """Makes topics, and fills them."""

    numbers = itertools.count()

    def __init__(self, broker: RunningBroker) -> None:
        self.broker = broker
        self.bootstrap = broker.bootstrap
        self.admin = Admin(bootstrap_servers=broker.bootstrap)
        self.producer = Producer(bootstrap_servers=broker.bootstrap, linger_ms=0)

    def reconnect(self) -> None:
        """A producer that has yet to learn how many partitions topics have."""
        self.producer.close()
        self.producer = Producer(bootstrap_servers=self.bootstrap, linger_ms=0)

    def create(self, partitions: int = 1, **configs: Any) -> str:
        """A new topic that keeps its records, however old; `configs` have underscores for dots."""
        name = f"topic-{next(self.numbers)}"
        texts = {key.replace("_", "."): str(value) for key, value in {"retention_ms": -1, **configs}.items()}
        self.admin.create_topic(name, partitions=partitions, configs=texts)
        return name

    def fill(self, topic: str, count: int, *, partition: int = 0, batches: int = 1, **columns: Any) -> None:
        """Add `count` records with values ``v0``, ``v1`` … in so many batches; other columns as they are given."""
        rows = pa.table({"value": [f"v{i}" for i in range(count)], **columns})
        size = -(-count // batches)
        for first in range(0, count, size):
            self.producer.send_table(topic, rows.slice(first, size), partition=partition).result(PATIENCE_S)

    def await_checkpoint(self, topic: str, offset: int) -> None:
        """Wait until the log directory says that partition 0 is committed up to `offset`."""
        path = str(self.broker.data_dir / HIGH_WATERMARKS)

        def committed() -> int | None:
            return read_offsets(LocalFs(), path).get(TopicPartition(topic, 0))

        wait_until(lambda: committed() == offset, f"{offset} is committed", tell=committed)

    def folder(self, topic: str, partition: int = 0) -> str:
        return str(self.broker.data_dir / f"{topic}-{partition}")

    def delete_before(self, topic: str, offset: int, partition: int = 0) -> None:
        self.admin.delete_records({TopicPartition(topic, partition): offset})

    def close(self) -> None:
        self.producer.close()
        self.admin.close()


def make_reader(options: Mapping[str, str], *, filters: Sequence[Any] = (), headers: bool = False) -> TopicReader:
    """What Spark would plan and read with, without a JVM."""
    parsed = parse_read_options(options, OptionUse.BATCH)
    schema = table_schema(include_headers=headers)
    if not filters:
        return TopicReader(parsed, schema)
    reader = PushdownReader(parsed, schema)
    reader.pushFilters(list(filters))
    return reader


def rows_of(reader: TopicReader, tasks: Sequence[Any] | None = None) -> list[dict[str, Any]]:
    """The records of all tasks, one after the other."""
    planned = reader.partitions() if tasks is None else tasks
    return [row for task in planned for batch in reader.read(task) for row in batch.to_pylist()]
