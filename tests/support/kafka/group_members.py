"""Consumers of one group, of several clients, that all poll while a test waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import aiokafka
import kafka
from confluent_kafka import Consumer, Message, Producer

from support.patience import PATIENCE_S, wait_until


class Polled(Protocol):
    """What a test does with a consumer; librdkafka's is one."""

    def poll(self, seconds: float) -> Any: ...

    def assignment(self) -> Any: ...

    def close(self) -> None: ...


class KafkaPython:
    """kafka-python's consumer, which knows the classic protocol only."""

    def __init__(self, bootstrap: str, group_id: str, topic: str) -> None:
        self._consumer = kafka.KafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group_id, heartbeat_interval_ms=100, enable_auto_commit=False
        )

    def poll(self, seconds: float) -> None:
        self._consumer.poll(timeout_ms=int(seconds * 1000))

    def assignment(self) -> Any:
        return self._consumer.assignment()

    def close(self) -> None:
        self._consumer.close(autocommit=False)


class AioKafka:
    """aiokafka's consumer, which knows the classic protocol only; on a loop of its own, as others may wait for it."""

    def __init__(self, bootstrap: str, group_id: str, topic: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aiokafka")
        self._thread.start()
        self._run(self._start(bootstrap, group_id, topic))

    async def _start(self, bootstrap: str, group_id: str, topic: str) -> None:
        self._consumer = aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group_id, heartbeat_interval_ms=100, enable_auto_commit=False
        )
        await self._consumer.start()

    def _run(self, work: Coroutine[Any, Any, Any]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def poll(self, seconds: float) -> None:
        """Nothing: the loop does what its group asks, and waiting for it would keep the others from doing so."""

    def assignment(self) -> Any:
        return self._consumer.assignment()

    def close(self) -> None:
        self._run(self._consumer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Members:
    """Consumers of one group; all poll while a test waits."""

    def __init__(self, bootstrap: str, group_id: str) -> None:
        self.bootstrap = bootstrap
        self.group_id = group_id
        self.open: dict[str, Polled] = {}
        self.read: dict[str, list[bytes]] = {}

    def add(self, name: str, *topics: str, **config: Any) -> Consumer:
        options = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group_id,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "client.id": name,
            "topic.metadata.refresh.interval.ms": 500,
            **{key.replace("_", "."): value for key, value in config.items()},
        }
        consumer = Consumer(options)
        self.open[name] = consumer
        self.read.setdefault(name, [])
        consumer.subscribe(list(topics))
        return consumer

    def close(self, name: str) -> None:
        self.open.pop(name).close()

    def until(self, condition: Callable[[], bool]) -> None:
        def is_so_or_poll() -> bool:
            if condition():
                return True
            for name, consumer in self.open.items():
                message = consumer.poll(0.01)
                if isinstance(message, Message) and message.error() is None:
                    self.read[name].append(message.value())
            return False

        def tell() -> dict[str, object]:
            return {name: (self.has(name), len(self.read.get(name, ()))) for name in self.open}

        wait_until(is_so_or_poll, "the members have and have read what the test waits for", tell=tell, every_s=0)

    def has(self, *names: str) -> list[tuple[str, int]]:
        return sorted((each.topic, each.partition) for name in names for each in self.open[name].assignment())


def produce(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.list_topics(topic, timeout=PATIENCE_S)  # creates it
    for number in range(40):
        producer.produce(topic, f"{number}", partition=number % 4)
    assert producer.flush(PATIENCE_S) == 0


def all_of(topic: str) -> list[tuple[str, int]]:
    return [(topic, partition) for partition in range(4)]
