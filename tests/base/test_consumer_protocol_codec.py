"""Subscriptions and assignments, byte for byte as kio writes and reads them from Kafka's own message definitions."""

from __future__ import annotations

import io
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from sparklog.base.consumer_protocol import (
    VERSION,
    Assignment,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from sparklog.base.ids import TopicPartition

names = st.text(min_size=1, max_size=8)
partitions = st.lists(st.builds(TopicPartition, names, st.integers(0, 99)), unique=True, max_size=6).map(sorted)
subscriptions = st.builds(
    Subscription,
    topics=st.lists(names, max_size=3),
    user_data=st.none() | st.binary(max_size=9),
    owned=partitions,
    generation=st.integers(-1, 2**31 - 1),
    rack=st.none() | names,
)


def module(name: str, version: int) -> Any:
    return import_module(f"kio.schema.consumer_protocol_{name}.v{version}.data")


def grouped(found: list[TopicPartition]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic, number in found:
        by_topic.setdefault(topic, []).append(number)
    return by_topic


def kio_bytes(message: Any, version: int) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return version.to_bytes(2, "big") + buffer.getvalue()


def kio_subscription(value: Subscription, version: int) -> bytes:
    schema = module("subscription", version)
    fields: dict[str, Any] = {"topics": tuple(value.topics), "user_data": value.user_data}
    if version >= 1:
        fields["owned_partitions"] = tuple(
            schema.TopicPartition(topic=topic, partitions=tuple(numbers))
            for topic, numbers in grouped(list(value.owned)).items()
        )
    if version >= 2:
        fields["generation_id"] = value.generation
    if version >= 3:
        fields["rack_id"] = value.rack
    return kio_bytes(schema.ConsumerProtocolSubscription(**fields), version)


@settings(max_examples=40)
@given(subscription=subscriptions)
def test_a_subscription_is_written_as_kafkas_own(subscription: Subscription) -> None:
    assert write_subscription(subscription) == kio_subscription(subscription, VERSION)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@settings(max_examples=20)
@given(subscription=subscriptions)
def test_a_subscription_of_every_version_is_read(version: int, subscription: Subscription) -> None:
    found = read_subscription(kio_subscription(subscription, version))

    assert (list(found.topics), found.user_data) == (list(subscription.topics), subscription.user_data)
    assert list(found.owned) == (list(subscription.owned) if version >= 1 else [])
    assert found.generation == (subscription.generation if version >= 2 else -1)
    assert found.rack == (subscription.rack if version >= 3 else None)


@settings(max_examples=40)
@given(found=partitions, user_data=st.none() | st.binary(max_size=9))
def test_an_assignment_is_written_and_read_as_kafkas_own(found: list[TopicPartition], user_data: bytes | None) -> None:
    data = write_assignment(Assignment(partitions=found, user_data=user_data))

    reader = entity_reader(module("assignment", VERSION).ConsumerProtocolAssignment)
    message, size = reader(data[2:], 0)
    assert size == len(data) - 2
    assert {item.topic: list(item.partitions) for item in message.assigned_partitions} == grouped(found)
    assert message.user_data == user_data
    assert read_assignment(data) == Assignment(partitions=found, user_data=user_data)


@given(data=st.binary(max_size=40))
def test_other_bytes_are_refused_or_read_but_do_no_harm(data: bytes) -> None:
    for read in (read_subscription, read_assignment):
        try:
            read(data)
        except ValueError:
            continue


def test_fields_of_later_versions_are_ignored_and_empty_bytes_are_an_empty_assignment() -> None:
    data = write_subscription(Subscription(topics=["t"]))
    assert read_subscription((9).to_bytes(2, "big") + data[2:] + b"more") == read_subscription(data)
    assert read_assignment(b"") == Assignment(partitions=())
    for end in range(2, len(data)):
        with pytest.raises(ValueError, match=r"left|elements"):
            read_subscription(data[:end])
