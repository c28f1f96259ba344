"""Clients of librdkafka that write and read one partition without a pause, and what must be true of what they saw."""

from __future__ import annotations

import threading
from types import TracebackType

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from support.names import unique
from support.patience import PATIENCE_S, wait_until

VALUE_BYTES = 500
PER_TRANSACTION = 20


class Traffic:
    """An idempotent producer, a transactional one, and a consumer of committed records, each in a thread."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._stop = threading.Event()
        self._have_stopped = threading.Event()
        self.acknowledged: list[str] = []
        self.committed: list[str] = []
        self.read: list[str] = []
        self.failures: list[str] = []
        works = (self._write, self._transact, self._read)
        self._threads = [threading.Thread(target=self._noting_failures, args=(work,)) for work in works]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        wait_until(lambda: len(self.read) > 100 and self.committed, "records are read", tell=lambda: self.failures)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        *writers, reader = self._threads
        for thread in writers:
            thread.join(PATIENCE_S)
        self._have_stopped.set()
        reader.join(PATIENCE_S)

    def check(self) -> None:
        """Every acknowledged record was read once and in order, and no other; call it after the `with` block."""
        assert self.failures == [], self.failures
        assert not any(thread.is_alive() for thread in self._threads)
        assert [each for each in self.read if each.startswith("i")] == self.acknowledged
        assert [each for each in self.read if each.startswith("t")] == self.committed

    def _noting_failures(self, work) -> None:  # type: ignore[no-untyped-def]
        try:
            work()
        except (KafkaException, AssertionError) as error:
            self.failures.append(f"{work.__name__}: {error!r}")

    def _write(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "linger.ms": 5})

        def delivered(error: object, message: Message) -> None:
            if error:
                self.failures.append(f"not delivered: {error}")
            else:
                self.acknowledged.append(_number(message))

        for number in _until(self._stop):
            producer.produce(self._topic, _value("i", number), partition=0, on_delivery=delivered)
            producer.poll(0.002)
        assert producer.flush(PATIENCE_S) == 0

    def _transact(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "transactional.id": unique("mover")})
        producer.init_transactions(PATIENCE_S)
        for number in _until(self._stop):
            producer.begin_transaction()
            values = [_value("t", PER_TRANSACTION * number + each) for each in range(PER_TRANSACTION)]
            for value in values:
                producer.produce(self._topic, value, partition=0)
            if number % 3 == 2:
                # librdkafka may abort before the coordinator knows the partitions; Kafka, too, refuses to end that.
                assert producer.flush(PATIENCE_S) == 0
                producer.abort_transaction(PATIENCE_S)
            else:
                producer.commit_transaction(PATIENCE_S)
                self.committed += [value.split()[0] for value in values]

    def _read(self) -> None:
        settings = {"bootstrap.servers": self._bootstrap, "group.id": unique("g"), "enable.partition.eof": True}
        consumer = Consumer({**settings, "isolation.level": "read_committed", "auto.offset.reset": "error"})
        consumer.assign([TopicPartition(self._topic, 0, 0)])
        try:
            while True:
                for message in consumer.consume(500, timeout=0.2):
                    error = message.error()
                    if error is None:
                        if message.value()[:1] in b"it":
                            self.read.append(_number(message))
                    elif error.code() == error._PARTITION_EOF:
                        if self._have_stopped.is_set():
                            return
                    elif not error.retriable() and error.code() != error._TRANSPORT:
                        self.failures.append(f"not read: {error}")
                        return
        finally:
            consumer.close()


def _until(stop: threading.Event):  # type: ignore[no-untyped-def]
    number = 0
    while not stop.is_set():
        yield number
        number += 1


def _value(kind: str, number: int) -> str:
    return f"{kind}{number} ".ljust(VALUE_BYTES, "x")


def _number(message: Message) -> str:
    value = message.value()
    assert isinstance(value, bytes)
    return value.decode().split()[0]
