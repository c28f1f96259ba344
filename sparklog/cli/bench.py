"""`sparklog bench`: a quick measurement of a running broker, through the Python client.

Full comparisons with Apache Kafka are in the repository's bench/ folder.
"""

from __future__ import annotations

import random
import time
import uuid
from typing import NamedTuple

import click
import pyarrow as pa

from sparklog import client
from sparklog.cli.common import admin_client, bootstrap_option, client_options, json_option, print_json, print_table

TABLE_ROWS = 50_000


class BenchResult(NamedTuple):
    """One row of the result."""

    what: str
    records: int
    seconds: float
    megabytes: float

    @property
    def rates(self) -> dict[str, object]:
        """The row for --json, with rates per second; 1 MB is 1,000,000 bytes."""
        return {
            "what": self.what,
            "records": self.records,
            "seconds": round(self.seconds, 3),
            "records_per_second": round(self.records / self.seconds),
            "mb_per_second": round(self.megabytes / self.seconds, 1),
        }


@click.command("bench")
@click.option("--records", type=click.IntRange(1), default=500_000, show_default=True, metavar="N")
@click.option(
    "--size", type=click.IntRange(1), default=100, show_default=True, metavar="BYTES", help="Size of each value."
)
@click.option("--partitions", type=click.IntRange(1), default=1, show_default=True, metavar="N")
@click.option(
    "--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="none", show_default=True
)
@bootstrap_option
@json_option
def command(records: int, size: int, partitions: int, compression: str, bootstrap: str, as_json: bool) -> None:
    """Write records to a new topic, read them back, and delete the topic.

    If client and broker run on one machine they share it, so the figures are for both together.
    """
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    letters = random.Random(7).choices(range(65, 91), k=size + 1024)
    values = [bytes(letters[i : i + size]) for i in range(1024)]
    with admin_client(bootstrap) as admin:
        admin.create_topic(topic, partitions=partitions)
        try:
            figures = [
                _produce(bootstrap, topic, values, records, compression),
                _produce_tables(bootstrap, topic, values, records, compression),
                _consume(bootstrap, topic, 2 * records, size),
            ]
        finally:
            admin.delete_topics([topic])
    rows = [figure.rates for figure in figures]
    if as_json:
        for row in rows:
            print_json(row)
    else:
        print_table(("", "RECORDS", "SECONDS", "RECORDS/S", "MB/S"), [tuple(row.values()) for row in rows])


def _produce(bootstrap: str, topic: str, values: list[bytes], records: int, compression: str) -> BenchResult:
    with client.Producer(**client_options(bootstrap, compression_type=compression)) as producer:
        started = time.perf_counter()
        for i in range(records):
            producer.send(topic, values[i & 1023])
        producer.flush()
        seconds = time.perf_counter() - started
    return BenchResult("produce, record by record", records, seconds, records * len(values[0]) / 1e6)


def _produce_tables(bootstrap: str, topic: str, values: list[bytes], records: int, compression: str) -> BenchResult:
    table = pa.table({"value": pa.array([values[i & 1023] for i in range(min(records, TABLE_ROWS))], pa.binary())})
    with client.Producer(**client_options(bootstrap, compression_type=compression)) as producer:
        started = time.perf_counter()
        for first in range(0, records, TABLE_ROWS):
            producer.send_table(topic, table.slice(0, min(TABLE_ROWS, records - first)))
        producer.flush()
        seconds = time.perf_counter() - started
    return BenchResult("produce, Arrow tables", records, seconds, records * len(values[0]) / 1e6)


def _consume(bootstrap: str, topic: str, records: int, size: int) -> BenchResult:
    with client.Consumer(**client_options(bootstrap, auto_offset_reset="earliest")) as consumer:
        consumer.assign_topic(topic)
        started = time.perf_counter()
        read = 0
        while read < records and time.perf_counter() - started < 600:
            read += consumer.poll_arrow(1_000).num_rows
        seconds = time.perf_counter() - started
    return BenchResult("consume, Arrow tables", read, seconds, read * size / 1e6)
