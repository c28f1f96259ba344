"""Requests that name very many things: they cost the event loop no more than their length."""

from __future__ import annotations

import pytest

from sparklog.base.errors import InvalidReplicaAssignment
from sparklog.broker.apis.delete_topics import API, DeleteTopicsRequest, TopicToDelete
from sparklog.broker.assignments import check_numbers

pytestmark = pytest.mark.slow

MANY = 150_000
"""Work of quadratic time would exceed the time limit of a test."""


def test_the_partitions_of_an_assignment() -> None:
    check_numbers(list(reversed(range(MANY))))
    with pytest.raises(InvalidReplicaAssignment, match=r"multiple .* partition 7$"):
        check_numbers([*range(MANY), 7])


async def test_the_topics_to_delete(world) -> None:
    broker = await world.start()
    topics = [TopicToDelete(name=f"nowhere-{number}") for number in range(MANY)]
    answer = await broker.serve(API, DeleteTopicsRequest(topics=[*topics, topics[7]]))
    codes = [topic.error.name for topic in answer.topics]
    assert codes[7] == codes[-1] == "INVALID_REQUEST"
    assert set(codes[:7]) == {"UNKNOWN_TOPIC_OR_PARTITION"}
