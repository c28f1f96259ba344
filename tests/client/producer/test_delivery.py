"""Deliveries of records and their results."""

from __future__ import annotations

import asyncio
import threading

import pytest

from sparklog.base.errors import DeliveryTimeout, SparklogError
from sparklog.base.ids import TopicPartition
from sparklog.client.producer.delivery import (
    AcknowledgedBatch,
    BatchDelivery,
    Delivery,
    OffsetRange,
    RecordMetadata,
    SplitBatch,
    TableDelivery,
    TableMetadata,
    settled,
)
from support.patience import PATIENCE_S

PLACE = TopicPartition("t", 1)


def outcome_of(count: int) -> BatchDelivery:
    outcome = BatchDelivery(PLACE)
    outcome.count = count
    return outcome


def test_records_of_a_batch_have_consecutive_offsets_and_their_own_timestamps() -> None:
    outcome = outcome_of(3)
    deliveries = [Delivery(outcome, index) for index in range(3)]
    assert not deliveries[0].done()

    outcome.written(AcknowledgedBatch(40, -1, [7, 8, 9]))

    assert [delivery.result() for delivery in deliveries] == [
        RecordMetadata("t", 1, 40, 7), RecordMetadata("t", 1, 41, 8), RecordMetadata("t", 1, 42, 9),
    ]  # fmt: skip
    assert all(delivery.done() for delivery in deliveries)


def test_the_brokers_time_stands_where_the_topic_says_so() -> None:
    outcome = outcome_of(1)
    outcome.written(AcknowledgedBatch(40, 1234, [7]))

    assert Delivery(outcome, 0).result().timestamp_ms == 1234


def test_without_acknowledgement_there_is_no_offset() -> None:
    outcome = outcome_of(2)
    outcome.written(AcknowledgedBatch(-1, -1, [7, 8]))

    assert Delivery(outcome, 1).result() == RecordMetadata("t", 1, -1, 8)
    assert TableDelivery("t", [outcome]).result().ranges == (OffsetRange("t", 1, -1, -1),)


def test_a_failure_is_raised_and_waiting_too_long_is_not_one() -> None:
    outcome = outcome_of(1)
    with pytest.raises(TimeoutError):
        Delivery(outcome, 0).result(timeout=0.01)

    outcome.failed(DeliveryTimeout("too late"))

    assert Delivery(outcome, 0).done()
    with pytest.raises(DeliveryTimeout):
        Delivery(outcome, 0).result()


def test_deliveries_follow_a_batch_that_was_split_and_split_again() -> None:
    whole, left, right, end = outcome_of(6), outcome_of(2), outcome_of(4), outcome_of(1)
    middle = outcome_of(3)
    deliveries = [Delivery(whole, index) for index in range(6)]

    whole.split(SplitBatch((0, 2), (left, right)))
    assert not deliveries[0].done()
    left.written(AcknowledgedBatch(10, -1, [0, 1]))
    right.split(SplitBatch((0, 3), (middle, end)))
    middle.written(AcknowledgedBatch(12, -1, [2, 3, 4]))
    end.failed(DeliveryTimeout("too late"))

    assert [delivery.result().offset for delivery in deliveries[:5]] == [10, 11, 12, 13, 14]
    with pytest.raises(DeliveryTimeout):
        deliveries[5].result()


def test_callbacks_are_called_once_even_where_the_batch_was_split_and_one_of_them_fails() -> None:
    seen: list[tuple[RecordMetadata | None, SparklogError | None]] = []
    whole, left, right = outcome_of(2), outcome_of(1), outcome_of(1)
    whole.call_when_done(0, lambda metadata, error: 1 / 0)
    whole.call_when_done(0, lambda metadata, error: seen.append((metadata, error)))
    whole.call_when_done(1, lambda metadata, error: seen.append((metadata, error)))
    failure = DeliveryTimeout("too late")

    whole.split(SplitBatch((0, 1), (left, right)))
    right.failed(failure)
    left.written(AcknowledgedBatch(10, -1, [5]))

    assert seen == [(None, failure), (RecordMetadata("t", 1, 10, 5), None)]


def test_a_table_has_a_range_for_each_batch_in_order() -> None:
    first, second, left, right = outcome_of(2), outcome_of(3), outcome_of(1), outcome_of(2)
    delivery = TableDelivery("t", [first, second])
    second.split(SplitBatch((0, 1), (left, right)))
    first.written(AcknowledgedBatch(0, -1, [0, 0]))
    assert not delivery.done()
    left.written(AcknowledgedBatch(5, -1, [0]))
    right.written(AcknowledgedBatch(9, -1, [0, 0]))

    assert delivery.done()
    assert delivery.result() == TableMetadata(
        "t", 5, (OffsetRange("t", 1, 0, 1), OffsetRange("t", 1, 5, 5), OffsetRange("t", 1, 9, 10))
    )


async def test_cancelling_one_who_waits_does_not_disturb_the_others() -> None:
    outcome = outcome_of(2)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(_await(Delivery(outcome, 0)), 0.01)

    threading.Timer(0.01, outcome.written, [AcknowledgedBatch(3, -1, [0, 0])]).start()

    assert (await Delivery(outcome, 1)).offset == 4
    assert (await Delivery(outcome, 0)).offset == 3


async def test_settled_waits_for_parts_and_does_not_mind_failures() -> None:
    whole, left, right = outcome_of(2), outcome_of(1), outcome_of(1)
    waiting = asyncio.create_task(settled([whole]))
    whole.split(SplitBatch((0, 1), (left, right)))
    left.failed(DeliveryTimeout("too late"))
    await asyncio.sleep(0)
    assert not waiting.done()

    right.written(AcknowledgedBatch(0, -1, [0]))

    await asyncio.wait_for(waiting, PATIENCE_S)


async def _await(delivery: Delivery) -> RecordMetadata:
    return await delivery
