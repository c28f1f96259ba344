"""The requests of a follower's fetch session."""

from __future__ import annotations

from uuid import UUID

from msgspec.structs import replace

from sparklog.base.ids import TopicPartition
from sparklog.replica.fetch_requests import FetchSessionHandler, SessionChanges
from sparklog.replica.messages import FetchPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def part(name: TopicPartition, offset: int = 0, topic: int = 1) -> FetchPartition:
    return FetchPartition(
        name=name, topic_id=UUID(int=topic), fetch_offset=offset, max_bytes=1, current_leader_epoch=0,
        last_fetched_epoch=None, log_start_offset=0,
    )  # fmt: skip


def in_session(*wanted: FetchPartition) -> FetchSessionHandler:
    requests = FetchSessionHandler()
    requests.next_request({each.name: each for each in wanted})
    requests.handle_response(9)
    return requests


def test_all_is_said_once_and_then_what_has_changed() -> None:
    requests = FetchSessionHandler()
    assert requests.next_request({A: part(A), B: part(B)}) == SessionChanges(0, 0, (part(A), part(B)), ())
    requests.handle_response(9)
    assert requests.next_request({A: part(A), B: part(B, 5)}) == SessionChanges(9, 1, (part(B, 5),), ())
    requests.handle_response(9)
    assert requests.next_request({A: part(A), B: part(B, 5)}) == SessionChanges(9, 2, (), ())


def test_a_removed_partition_is_forgotten_and_may_come_again() -> None:
    requests = in_session(part(A), part(B))
    assert requests.next_request({A: part(A)}) == SessionChanges(9, 1, (), (part(B),))
    requests.handle_response(9)
    assert requests.next_request({A: part(A), B: part(B)}) == SessionChanges(9, 2, (part(B),), ())


def test_another_topic_of_the_same_name_is_another_partition() -> None:
    requests = in_session(part(A))
    again = replace(part(A), topic_id=UUID(int=2))
    assert requests.next_request({A: again}) == SessionChanges(9, 1, (again,), (part(A),))


def test_without_a_session_all_is_said_each_time() -> None:
    requests = FetchSessionHandler()
    for _ in range(2):
        assert requests.next_request({A: part(A)}) == SessionChanges(0, 0, (part(A),), ())
        requests.handle_response(0)


def test_after_an_error_all_is_said_again_and_the_old_session_named() -> None:
    requests = in_session(part(A))
    requests.reset()
    assert requests.next_request({A: part(A)}) == SessionChanges(9, 0, (part(A),), ())
