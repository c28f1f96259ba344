"""Kafka's protocol over the simulated network: frames go to the real dispatch and translations.

    SimKafkaListener   the broker's end. It serves the requests of a connection one after the other, in their order.
    SimKafka           the client's end. Several requests may be in flight on a connection. If the network loses a
                       frame, the connection closes, and each request on it fails.

Requests and responses are kio's entities, made with server/kafka/messages.py as in the translations.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any
from uuid import UUID

from kio.index import load_request_schema

from sparklog.base.addresses import Address
from sparklog.base.errors import (
    KafkaError,
    LeaderNotAvailable,
    NetworkException,
    UnknownTopicOrPartition,
    error_for,
)
from sparklog.base.ids import TopicPartition
from sparklog.broker.node import Broker
from sparklog.log.slice import LogSlice
from sparklog.server.kafka.dispatch import answer, read_frame
from sparklog.server.kafka.messages import Message, make
from sparklog.server.kafka.translation import Session
from sparklog.testing.kafka_frames import read_response, request_frame
from sparklog.testing.sim.network import SimNetwork, served_by_listener

LISTENER = "PLAINTEXT"
TIMEOUT_MS = 3_000
BACKOFF_S = 0.1
METADATA, METADATA_VERSION = 3, 12


def listeners(name: str) -> dict[str, Address]:
    """Return the Kafka listeners, by name, of the process that has this name on the network."""
    return {LISTENER: Address.parse(name, "name")}


@dataclass(frozen=True, slots=True, kw_only=True)
class FramedRequest:
    """A request as it travels over the network."""

    connection: str
    number: int
    """The request's number within its connection, from 0 on."""
    frame: bytes


class _ServerConnection:
    """The broker's end of one connection. `served` counts its requests so far."""

    def __init__(self, host: str) -> None:
        self.session = Session(listener=LISTENER, host=host)
        self.is_closed = False
        self.served = 0
        self.turn = asyncio.Condition()


class SimKafkaListener:
    """The Kafka listener of one broker process."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._connections: dict[str, _ServerConnection] = {}

    async def serve(self, framed: FramedRequest) -> bytes:
        """Serve a request when all earlier ones of its connection are served. Return the response's frame without size.

        Return empty bytes if the request has no response. Raise NetworkException if the connection is closed, or if
        an earlier request does not arrive within TIMEOUT_MS.
        """
        found = self._connections.setdefault(framed.connection, _ServerConnection(framed.connection.partition("/")[0]))
        async with found.turn:
            try:
                async with asyncio.timeout(TIMEOUT_MS / 1000):
                    await found.turn.wait_for(lambda: found.is_closed or found.served == framed.number)
            except TimeoutError:
                found.is_closed = True
            if found.is_closed:
                raise NetworkException("the connection is closed")
            try:
                return await self._answer(found.session, framed.frame)
            except KafkaError as error:
                found.is_closed = True
                raise NetworkException(f"the connection was closed: {error}") from None
            finally:
                found.served += 1
                found.turn.notify_all()

    async def _answer(self, session: Session, frame: bytes) -> bytes:
        parts = await answer(read_frame(self._broker, session, memoryview(bytearray(frame))))
        return b"".join(part.read() if isinstance(part, LogSlice) else bytes(part) for part in parts)[4:]


class SimKafka:
    """A client that speaks Kafka's protocol. It caches topic ids and leaders from the last Metadata responses."""

    def __init__(self, name: str, network: SimNetwork, bootstrap: Sequence[str], chance: random.Random) -> None:
        self.name = name
        self.chance = chance
        self.topic_ids: dict[str, UUID] = {}
        self._names: dict[UUID, str] = {}
        self._network = network
        self.bootstrap = list(bootstrap)
        self._leaders: dict[TopicPartition, tuple[str, int]] = {}
        self._epochs: dict[tuple[UUID, int], int] = {}
        """By topic id and partition, the newest leader epoch that metadata has told."""
        self._connections: dict[str, _ClientConnection] = {}
        self._numbers = count()

    async def ask(
        self, address: str, key: int, version: int, /, *, timeout_ms: int = TIMEOUT_MS, **fields: Any
    ) -> Message:
        """Send a request for API `key` at `version`. Return its response, or None if it has none; raise KafkaError.

        The broker serves the requests of one connection in the order of the calls. After an error, the next request to
        the address opens a new connection.
        """
        connection = self._connections.get(address)
        if connection is None or connection.is_closed:
            connection = _ClientConnection(self._network, self.name, address, next(self._numbers))
            self._connections[address] = connection
        return await connection.ask(key, version, fields, timeout_ms)

    def anyone(self) -> str:
        """Return the address of a random bootstrap broker."""
        return self.chance.choice(self.bootstrap)

    async def back_off(self) -> None:
        """Wait a random time before a retry: 50 to 200 ms."""
        await asyncio.sleep(BACKOFF_S * self.chance.uniform(0.5, 2))

    async def topic_id(self, topic: str) -> UUID:
        """Return a topic's id. Raise UnknownTopicOrPartition if no broker has answered it."""
        if topic not in self.topic_ids:
            await self._refresh(name=topic)
        if topic not in self.topic_ids:
            raise UnknownTopicOrPartition(topic)
        return self.topic_ids[topic]

    async def topic_name(self, topic_id: UUID) -> str | None:
        """Return a topic's name, or None if the broker that is asked knows no topic of this id."""
        if topic_id not in self._names:
            await self._refresh(topic_id=topic_id)
        return self._names.get(topic_id)

    async def leader(self, name: TopicPartition) -> tuple[str, int]:
        """Return the leader's address and leader epoch. Raise LeaderNotAvailable if none is known."""
        if name not in self._leaders:
            await self._refresh(name=name.topic)
        if name not in self._leaders:
            raise LeaderNotAvailable(str(name))
        return self._leaders[name]

    def forget_leader(self, name: TopicPartition) -> None:
        """Drop the cached leader, so that the next request looks it up again."""
        self._leaders.pop(name, None)

    async def _refresh(self, *, name: str | None = None, topic_id: UUID | None = None) -> None:
        try:
            told = await self.ask(
                self.anyone(),
                METADATA,
                METADATA_VERSION,
                topics=[{"name": name, "topic_id": topic_id}],
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=False,
            )
        except KafkaError:
            return
        addresses = {broker.node_id: f"{broker.host}:{broker.port}" for broker in told.brokers}
        for found in told.topics:
            if found.error_code:  # this broker does not know the topic, or not yet: it tells no id
                continue
            self.topic_ids[found.name] = found.topic_id
            self._names[found.topic_id] = found.name
            for part in found.partitions:
                place = TopicPartition(found.name, part.partition_index)
                key = found.topic_id, part.partition_index
                if part.leader_epoch < self._epochs.get(key, -1):
                    continue  # stale metadata: Kafka's clients ignore an older leader epoch too
                self._epochs[key] = part.leader_epoch
                if part.leader_id in addresses:
                    self._leaders[place] = addresses[part.leader_id], part.leader_epoch


class _ClientConnection:
    """The client's end of one connection. A failed request closes it."""

    def __init__(self, network: SimNetwork, source: str, target: str, number: int) -> None:
        self.is_closed = False
        self._network = network
        self._source = source
        self._target = target
        self._name = f"{source}/{number}"
        self._asked = 0

    async def ask(self, key: int, version: int, fields: dict[str, Any], timeout_ms: int) -> Message:
        number, self._asked = self._asked, self._asked + 1
        request = make(load_request_schema(key, version), **fields)
        framed = FramedRequest(connection=self._name, number=number, frame=request_frame(request, number, self._source))
        api = served_by_listener(type(request).__name__)
        try:
            response = await self._network.call(self._source, self._target, api, framed, timeout_ms=timeout_ms)
        except KafkaError:
            self.is_closed = True
            raise
        return read_response(key, version, response, number) if response else None


def raise_for(error_code: Any) -> None:
    """Raise the error of a response, if it has one."""
    if error_code:
        raise error_for(int(error_code), "")
