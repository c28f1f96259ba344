"""A program that reads a topic, writes each record to another one, and commits its offsets, all in transactions.

    python -m support.clients.exactly_once BOOTSTRAP SOURCE TARGET GROUP TRANSACTIONAL_ID

It prints a line for each transaction that it commits: the number of records that it has copied since its start. After
an error from which a producer cannot recover it ends with status 1, and its caller starts another one. So it does if a
transaction hangs: librdkafka's send_offsets_to_transaction ignores its time-out while the group's coordinator is down
(github.com/confluentinc/librdkafka/issues/5456).
"""

from __future__ import annotations

import faulthandler
import sys

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

TIMEOUT_S = 30
HANGS_S = 20
"""More than a transaction may take."""
AT_ONCE = 20


def main(bootstrap: str, source: str, target: str, group: str, transactional_id: str) -> None:
    common = {"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 200, "error_cb": lambda _: None}
    consumer = Consumer(
        {
            **common,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "session.timeout.ms": 6_000,
        }
    )
    producer = Producer({**common, "transactional.id": transactional_id, "transaction.timeout.ms": 10_000})
    producer.init_transactions(TIMEOUT_S)
    consumer.subscribe([source])
    copied = 0
    while True:
        messages = [each for each in consumer.consume(AT_ONCE, timeout=0.5) if each.error() is None]
        if messages:
            faulthandler.dump_traceback_later(HANGS_S, exit=True)
            producer.begin_transaction()
            try:
                for message in messages:
                    producer.produce(target, message.value(), partition=message.partition())
                positions = consumer.position(consumer.assignment())
                moved = [each for each in positions if each.offset >= 0]
                producer.send_offsets_to_transaction(moved, consumer.consumer_group_metadata(), TIMEOUT_S)
                producer.commit_transaction(TIMEOUT_S)
            except KafkaException as failure:
                error = failure.args[0]
                if not error.txn_requires_abort():
                    raise
                producer.abort_transaction(TIMEOUT_S)
                rewind(consumer)
            else:
                copied += len(messages)
                print(copied, flush=True)
            faulthandler.cancel_dump_traceback_later()


def rewind(consumer: Consumer) -> None:
    """Go back to what is committed: the aborted transaction has moved nothing."""
    for each in consumer.committed(consumer.assignment(), TIMEOUT_S):
        offset = each.offset if each.offset >= 0 else 0
        consumer.seek(TopicPartition(each.topic, each.partition, offset))


if __name__ == "__main__":
    main(*sys.argv[1:])
