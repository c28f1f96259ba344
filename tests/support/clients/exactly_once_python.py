"""As exactly_once.py, with sparklog's own clients.

python -m support.clients.exactly_once_python BOOTSTRAP SOURCE TARGET GROUP TRANSACTIONAL_ID
"""

from __future__ import annotations

import sys

from sparklog.base.errors import KafkaError, ProducerFenced
from sparklog.client import Consumer, Producer, TopicPartition
from support.clients.exactly_once import AT_ONCE, TIMEOUT_S

TIMEOUT_MS = 1_000 * TIMEOUT_S


def main(bootstrap: str, source: str, target: str, group: str, transactional_id: str) -> None:
    with (
        Consumer(
            bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest",
            session_timeout_ms=6_000, request_timeout_ms=5_000,
        ) as consumer,
        Producer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=10_000, linger_ms=1,
            request_timeout_ms=5_000, default_api_timeout_ms=TIMEOUT_MS,
        ) as producer,
    ):  # fmt: skip
        consumer.subscribe([source])
        copied = 0
        while True:
            records = consumer.poll(500, max_records=AT_ONCE)
            if not records:
                continue
            try:
                with producer.transaction():
                    for record in records:
                        producer.send(target, record.value, partition=record.partition)
                    moved = {TopicPartition(each.topic, each.partition): each.offset + 1 for each in records}
                    producer.send_offsets(moved, consumer.group_metadata())
            except ProducerFenced:
                raise
            except KafkaError as error:
                print(f"aborted: {error}", file=sys.stderr, flush=True)
                consumer.seek_to_committed()
            else:
                copied += len(records)
                print(copied, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
