"""The synchronous clients have every method of the asynchronous ones, with its signature, docstring and types."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from sparklog import client
from sparklog.client import aio
from sparklog.client.base import SyncClient, blocking, direct
from support.type_checker import errors_in

PAIRS = {
    client.Admin: aio.AsyncAdmin,
    client.Consumer: aio.AsyncConsumer,
    client.Maintenance: aio.AsyncMaintenance,
    client.Producer: aio.AsyncProducer,
}
OF_THE_FACADE = {
    client.Admin: set(),
    client.Consumer: {
        *("start", "release", "queued_bytes", "known_position", "take", "take_arrow", "unread", "is_subscribed"),
        *("has_group", "deadline", "needs_poll", "next_call", "begin_to_leave", "next_call_of", "end_leaving"),
    },
    client.Maintenance: {"open_upload", "open_snapshot"},
    client.Producer: {
        *("start", "transforms", "transform", "with_acknowledgement", "try_send", "send_when_possible", "end_block"),
    },
}
"""What an asynchronous client has for its synchronous one, and not for users of either."""
TAKES_OTHER_TYPES = {
    *((client.Maintenance, name) for name in ("read_segment", "upload", "install_snapshot")),
    (client.Producer, "transaction"),
}
"""Chunks are iterated over, and a block is entered, without an event loop."""

USES = """
from typing import assert_type
from sparklog.client import Admin, Consumer, Maintenance, Producer, TopicPartition
from sparklog.log.description import LogDescription

def use(admin: Admin, consumer: Consumer, maintenance: Maintenance, producer: Producer) -> None:
    assert_type(admin.create_topic("orders", partitions=6), int)
    assert_type(consumer.assign_topic("orders"), list[TopicPartition])
    consumer.seek(TopicPartition("orders", 0), 5)
    assert_type(maintenance.describe_replicas(), list[LogDescription])
    producer.flush(timeout_ms=5)
    with admin as same:
        assert_type(same, Admin)
"""
MISUSES = """
from sparklog.client import Admin, Consumer, Producer

def use(admin: Admin, consumer: Consumer, producer: Producer) -> None:
    admin.create_topic("orders", partitoins=6)
    admin.delete_topics(5)
    consumer.seek("orders", 5)
    producer.flush("soon")
"""


class Core:
    """An asynchronous client."""

    async def double(self, number: int, *, twice: bool = False) -> int:
        """The number times two, or four."""
        return number * (4 if twice else 2)

    def half(self, number: int) -> float:
        """The number divided by two."""
        return number / 2


class Facade(SyncClient[Core]):
    double = blocking(Core.double)
    half = direct(Core.half)

    def close(self) -> None:
        pass


def public(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


def test_calls_return_what_the_asynchronous_client_returns():
    with Facade(Core()) as facade:
        assert facade.double(3) == 6
        assert facade.double(number=3, twice=True) == 12
        assert facade.half(3) == 1.5


@pytest.mark.parametrize("cls", PAIRS, ids=lambda cls: cls.__name__)
def test_no_method_is_missing(cls):
    assert public(cls) == public(PAIRS[cls]) - OF_THE_FACADE[cls]


@pytest.mark.parametrize("cls", PAIRS, ids=lambda cls: cls.__name__)
def test_signatures_are_those_of_the_asynchronous_client(cls):
    for name in public(cls):
        found, core = (getattr(each, name) for each in (cls, PAIRS[cls]))
        assert not inspect.iscoroutinefunction(found)
        assert found.__doc__
        if (cls, name) not in TAKES_OTHER_TYPES:
            assert inspect.signature(found, eval_str=True) == inspect.signature(core, eval_str=True), name


@pytest.mark.slow
def test_a_type_checker_sees_parameters_and_results(tmp_path: Path) -> None:
    found = errors_in(tmp_path, uses=USES, misuses=MISUSES)
    assert found == [("misuses", str(line)) for line in range(5, 9)]
