"""The requests of a follower's fetch session."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sparklog.base.ids import TopicPartition
from sparklog.replica.fetch_requests import FetchSessionHandler, SessionChanges
from sparklog.replica.messages import FetchPartition
from support.replicas.fetch_oracle import FullComparison
from support.runs.seeds import examples

A, B, C = (TopicPartition("t", number) for number in range(3))


def part(name: TopicPartition, offset: int = 0, topic: int = 1) -> FetchPartition:
    return FetchPartition(
        name=name, topic_id=UUID(int=topic), fetch_offset=offset, max_bytes=1, current_leader_epoch=0,
        last_fetched_epoch=None, log_start_offset=0,
    )  # fmt: skip


def in_session(*wanted: FetchPartition) -> FetchSessionHandler:
    """The partitions are in this order."""
    requests = FetchSessionHandler()
    want(requests, *wanted)
    requests.next_request()
    requests.handle_response(9)
    return requests


def want(requests: FetchSessionHandler, *wanted: FetchPartition) -> None:
    for place, each in enumerate(wanted):
        requests.want(place, each)


def test_all_is_said_once_and_then_what_has_changed() -> None:
    requests = FetchSessionHandler()
    want(requests, part(A), part(B))
    assert requests.next_request() == SessionChanges(0, 0, (part(A), part(B)), ())
    requests.handle_response(9)
    want(requests, part(A), part(B, 5))
    assert requests.next_request() == SessionChanges(9, 1, (part(B, 5),), ())
    requests.handle_response(9)
    assert requests.next_request() == SessionChanges(9, 2, (), ())
    assert (len(requests), requests.find(A), requests.find(B), requests.find(C)) == (2, part(A), part(B, 5), None)


def test_a_removed_partition_is_forgotten_and_may_come_again() -> None:
    requests = in_session(part(A), part(B))
    requests.drop(B)
    assert requests.next_request() == SessionChanges(9, 1, (), (part(B),))
    requests.handle_response(9)
    requests.want(2, part(B))
    assert requests.next_request() == SessionChanges(9, 2, (part(B),), ())


def test_what_is_taken_back_before_the_request_is_not_said() -> None:
    requests = in_session(part(A), part(B))
    requests.drop(A)
    requests.want(2, part(A))
    requests.want(1, part(B, 5))
    requests.want(1, part(B))
    requests.want(3, part(C))
    requests.drop(C)
    assert requests.next_request() == SessionChanges(9, 1, (), ())


def test_another_topic_of_the_same_name_is_another_partition() -> None:
    requests = in_session(part(A))
    again = replace(part(A), topic_id=UUID(int=2))
    requests.drop(A)
    requests.want(1, again)
    assert requests.next_request() == SessionChanges(9, 1, (again,), (part(A),))


def test_partitions_are_named_in_the_order_of_their_places() -> None:
    requests = in_session(part(A), part(B), part(C))
    for name in (C, A, B):
        requests.drop(name)
    assert requests.next_request().forgotten == (part(A), part(B), part(C))
    requests.handle_response(9)
    for place, name in ((9, A), (7, C), (8, B)):
        requests.want(place, part(name))
    assert requests.next_request().partitions == (part(C), part(B), part(A))
    requests.reset()
    assert requests.next_request().partitions == (part(C), part(B), part(A))


def test_without_a_session_all_is_said_each_time() -> None:
    requests = FetchSessionHandler()
    requests.want(0, part(A))
    for _ in range(2):
        assert requests.is_new
        assert requests.next_request() == SessionChanges(0, 0, (part(A),), ())
        requests.handle_response(0)


def test_after_an_error_all_is_said_again_and_the_old_session_named() -> None:
    requests = in_session(part(A))
    requests.drop(A)
    requests.want(1, part(B))
    assert not requests.is_new
    requests.reset()
    assert requests.next_request() == SessionChanges(9, 0, (part(B),), ())


STEPS = st.one_of(
    st.tuples(st.just("want"), st.sampled_from((A, B, C)), st.integers(0, 2), st.integers(1, 2)),
    st.tuples(st.sampled_from(("drop", "move")), st.sampled_from((A, B, C))),
    st.tuples(st.sampled_from(("answer", "answer", "answer", "no session", "reset"))),
)


@settings(max_examples=examples(200))
@given(st.lists(STEPS, max_size=40))
def test_requests_are_those_of_a_comparison_of_all_partitions(steps: list[tuple]) -> None:
    requests, expected = FetchSessionHandler(), FullComparison()
    wanted: dict[TopicPartition, FetchPartition] = {}
    places: dict[TopicPartition, int] = {}

    def put(each: FetchPartition) -> None:
        if each.name not in wanted:
            places[each.name] = max(places.values(), default=0) + 1
        wanted[each.name] = each
        requests.want(places[each.name], each)

    def drop(name: TopicPartition) -> FetchPartition | None:
        requests.drop(name)
        return wanted.pop(name, None)

    for action, *arguments in steps:
        match action, arguments:
            case "want", (name, offset, topic):
                put(part(name, offset, topic))
            case "drop", (name,):
                drop(name)
            case "move", (name,):
                if dropped := drop(name):
                    put(dropped)
            case "reset", ():
                requests.reset()
            case _:
                is_new, changes = requests.is_new, requests.next_request()
                assert (changes.partitions, changes.forgotten) == expected.changes(wanted, is_new=is_new)
                requests.handle_response(0 if action == "no session" else 9)
