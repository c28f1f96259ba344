"""Fetch sessions: opening, reads, news for the client, and eviction."""

from __future__ import annotations

import itertools
import uuid

import pytest
from msgspec.structs import replace

from sparklog.base.errors import (
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    OffsetOutOfRange,
)
from sparklog.base.ids import TopicPartition
from sparklog.broker.fetch_sessions import EVICTION_MS, RECHECK_MS, FetchSessions, PartitionFetch, PartitionFetchResult
from sparklog.log.slice import LogSlice

FULL, LAST = 0, -1
NOW = 1_000_000


def asked(partition: int, offset: int = 0, **fields) -> PartitionFetch:
    return PartitionFetch(topic="t", partition=partition, fetch_offset=offset, max_bytes=1000, **fields)


def found(
    partition: int, high_watermark: int = 0, log_start: int = 0, size: int = 0, error=None
) -> PartitionFetchResult:
    return PartitionFetchResult(
        topic="t", partition=partition, fetch_offset=0, next_offset=0, high_watermark=high_watermark,
        log_start_offset=log_start, slice=LogSlice(None, 0, size, 0, None) if size else None, error=error,
    )  # fmt: skip


class Client:
    """Fetches against a cache of sessions, with the results that a test gives."""

    def __init__(self, slots: int = 10, **limits: int) -> None:
        numbers = itertools.count(1)
        self.sessions = FetchSessions(slots, lambda: next(numbers), **limits)

    def fetch(self, session_id, epoch, partitions=(), forget=(), answers=(), now=NOW, by_id=False):
        """Return the partitions read, the session's id, and the partitions in the response."""
        context = self.sessions.begin(
            session_id=session_id, epoch=epoch, asked=partitions, forgotten=[("t", number) for number in forget],
            uses_topic_ids=by_id, now_ms=now,
        )  # fmt: skip
        read = [part.partition for part, _ in context.pairs()]
        session_id, told = self.sessions.end(context, answers or [found(number) for number in read], now)
        return read, session_id, [part.partition for part in told]


def test_a_full_fetch_opens_a_session_and_the_next_ones_name_no_partition() -> None:
    client = Client()
    read, session_id, told = client.fetch(0, FULL, [asked(0), asked(1)])
    assert (read, told) == ([0, 1], [0, 1])
    assert client.fetch(session_id, 1) == ([0, 1], session_id, [])
    assert client.fetch(session_id, 2) == ([0, 1], session_id, [])


def test_an_incremental_fetch_returns_only_partitions_with_news() -> None:
    client = Client()
    _, session_id, _ = client.fetch(0, FULL, [asked(number) for number in range(4)])
    answers = [found(0, size=10), found(1, high_watermark=5), found(2, log_start=3), found(3)]
    assert client.fetch(session_id, 1, answers=answers)[2] == [0, 1, 2]
    assert client.fetch(session_id, 2, answers=[found(1, 5), found(2, log_start=3), found(3), found(0)])[2] == []


def test_an_error_is_returned_each_time_and_its_end_too() -> None:
    client = Client()
    _, session_id, _ = client.fetch(0, FULL, [asked(0)])
    failed = found(0, -1, -1, error=OffsetOutOfRange("5"))
    assert client.fetch(session_id, 1, answers=[failed])[2] == [0]
    assert client.fetch(session_id, 2, answers=[failed])[2] == [0]
    assert client.fetch(session_id, 3, answers=[found(0)])[2] == [0]
    assert client.fetch(session_id, 4, answers=[found(0)])[2] == []


def test_partitions_are_added_changed_and_forgotten() -> None:
    client = Client()
    _, session_id, _ = client.fetch(0, FULL, [asked(0), asked(1)])
    assert client.fetch(session_id, 1, [asked(2)], forget=[0])[0] == [1, 2]
    context = client.sessions.begin(
        session_id=session_id, epoch=2, asked=[asked(1, offset=7)], forgotten=(), uses_topic_ids=False, now_ms=NOW
    )
    assert [(part.partition, part.fetch_offset) for part, _ in context.pairs()] == [(1, 7), (2, 0)]


def test_partitions_that_returned_records_are_read_last_the_next_time() -> None:
    client = Client()
    _, session_id, _ = client.fetch(0, FULL, [asked(number) for number in range(3)])
    client.fetch(session_id, 1, answers=[found(0, size=10), found(1), found(2)])
    assert client.fetch(session_id, 2, answers=[found(1, size=10), found(2), found(0)])[0] == [1, 2, 0]
    assert client.fetch(session_id, 3)[0] == [2, 0, 1]


def test_a_session_without_partitions_ends() -> None:
    client = Client()
    _, session_id, _ = client.fetch(0, FULL, [asked(0)])
    assert client.fetch(session_id, 1, forget=[0]) == ([], 0, [])
    with pytest.raises(FetchSessionIdNotFound):
        client.fetch(session_id, 2)


@pytest.mark.parametrize("epoch", [FULL, LAST])
def test_a_full_fetch_ends_the_session_it_names(epoch: int) -> None:
    client = Client()
    _, session_id, _ = client.fetch(0, FULL, [asked(0)])
    _, other, told = client.fetch(session_id, epoch, [asked(0)])
    assert told == [0]
    assert (other == 0) == (epoch == LAST)
    with pytest.raises(FetchSessionIdNotFound):
        client.fetch(session_id, 1)


def test_requests_out_of_turn_are_refused_and_change_nothing() -> None:
    client = Client()
    _, session_id, _ = client.fetch(0, FULL, [asked(0)])
    with pytest.raises(FetchSessionIdNotFound):
        client.fetch(session_id + 1, 1)
    with pytest.raises(InvalidFetchSessionEpoch):
        client.fetch(session_id, 2, [asked(1)])
    with pytest.raises(FetchSessionTopicIdError):
        client.fetch(session_id, 1, [asked(1)], by_id=True)
    assert client.fetch(session_id, 1)[0] == [0]


def test_of_two_requests_at_once_the_first_is_refused() -> None:
    client = Client()
    _, session_id, _ = client.fetch(0, FULL, [asked(0)])
    waiting = client.sessions.begin(
        session_id=session_id, epoch=1, asked=(), forgotten=(), uses_topic_ids=False, now_ms=NOW
    )
    client.fetch(session_id, 2)
    with pytest.raises(InvalidFetchSessionEpoch):
        client.sessions.end(waiting, [found(0, size=1)], NOW)


def test_a_recreated_topic_has_other_partitions_in_a_session() -> None:
    client = Client()
    old, new = uuid.uuid4(), uuid.uuid4()
    _, session_id, _ = client.fetch(0, FULL, [asked(0, topic_id=old)], by_id=True)
    context = client.sessions.begin(
        session_id=session_id, epoch=1, asked=[asked(0, topic_id=new)], forgotten=[(old, 0)], uses_topic_ids=True,
        now_ms=NOW,
    )  # fmt: skip
    assert [part.topic_id for part, _ in context.pairs()] == [new]


def test_session_epochs_wrap_around_to_1() -> None:
    client = Client()
    _, session_id, _ = client.fetch(0, FULL, [asked(0)])
    context = client.sessions.begin(
        session_id=session_id, epoch=1, asked=(), forgotten=(), uses_topic_ids=False, now_ms=NOW
    )
    context.session.epoch = 2**31 - 1
    client.fetch(session_id, 2**31 - 1)
    assert client.fetch(session_id, 1)[1] == session_id


def test_sessions_in_use_are_not_evicted() -> None:
    client = Client(slots=1)
    _, first, _ = client.fetch(0, FULL, [asked(0)])
    assert client.fetch(0, FULL, [asked(0), asked(1)])[1] == 0
    assert client.fetch(first, 1)[1] == first


def test_an_unused_session_is_evicted() -> None:
    client = Client(slots=2)
    _, unused, _ = client.fetch(0, FULL, [asked(0), asked(1), asked(2)])
    _, used, _ = client.fetch(0, FULL, [asked(0)])
    later = NOW + EVICTION_MS + 1
    client.fetch(used, 1, now=later)
    assert client.fetch(0, FULL, [asked(0)], now=later)[1] != 0
    assert client.fetch(used, 2, now=later)[1] == used
    with pytest.raises(FetchSessionIdNotFound):
        client.fetch(unused, 1, now=later)


def test_a_small_old_session_is_evicted_for_a_larger_one_only() -> None:
    client = Client(slots=2)
    _, small, _ = client.fetch(0, FULL, [asked(0), asked(1)])
    _, large, _ = client.fetch(0, FULL, [asked(0), asked(1), asked(2)])
    later = NOW + EVICTION_MS + 1
    client.fetch(small, 1, now=later)
    client.fetch(large, 1, now=later)
    assert client.fetch(0, FULL, [asked(0), asked(1)], now=later)[1] == 0
    assert client.fetch(0, FULL, [asked(0), asked(1), asked(2)], now=later)[1] != 0
    assert client.fetch(large, 2, now=later)[1] == large
    with pytest.raises(FetchSessionIdNotFound):
        client.fetch(small, 2, now=later)


def test_all_sessions_together_have_a_limited_number_of_partitions() -> None:
    client = Client(max_partitions=5)
    assert client.fetch(0, FULL, [asked(number) for number in range(6)])[1] == 0
    _, first, _ = client.fetch(0, FULL, [asked(0), asked(1), asked(2)])
    assert client.fetch(0, FULL, [asked(number) for number in range(3)])[1] == 0
    _, second, _ = client.fetch(0, FULL, [asked(0), asked(1)])
    assert client.fetch(first, 1)[1] == first
    client.fetch(second, LAST)
    _, third, _ = client.fetch(0, FULL, [asked(0)])
    assert client.fetch(third, 1, [asked(1)], forget=[0])[1] == third
    client.fetch(first, 2, forget=[0, 1])
    later = NOW + EVICTION_MS + 1
    client.fetch(third, 2, now=later)
    assert client.fetch(0, FULL, [asked(number) for number in range(4)], now=later)[1] != 0
    assert client.fetch(third, 3, now=later)[1] == third
    with pytest.raises(FetchSessionIdNotFound):
        client.fetch(first, 3, now=later)


def test_a_session_that_becomes_too_large_for_all_is_closed() -> None:
    client = Client(max_partitions=5)
    _, first, _ = client.fetch(0, FULL, [asked(0), asked(1), asked(2)])
    _, second, _ = client.fetch(0, FULL, [asked(0)])
    assert client.fetch(second, 1, [asked(1)])[1] == second
    with pytest.raises(FetchSessionIdNotFound):
        client.fetch(second, 2, [asked(2)])
    assert client.fetch(first, 1)[1] == first
    assert client.fetch(0, FULL, [asked(0), asked(1)])[1] != 0


def test_a_session_may_begin_without_partitions() -> None:
    client = Client()
    assert client.fetch(0, FULL, []) == ([], 1, [])
    assert client.fetch(1, 1, [asked(0)]) == ([0], 1, [0])


def test_without_slots_no_session_is_opened() -> None:
    assert Client(slots=0).fetch(0, FULL, [asked(0)]) == ([0], 0, [0])


class TestActivePartitions:
    """Sessions that track changes: only partitions that may have news are read."""

    def session(self, partitions: int = 3) -> tuple[FetchSessions, int]:
        sessions = FetchSessions(10, lambda: 7, tracks_changes=True)
        context = sessions.begin(
            session_id=0, epoch=FULL, asked=[asked(number) for number in range(partitions)], forgotten=(),
            uses_topic_ids=False, now_ms=NOW,
        )  # fmt: skip
        session_id, _ = sessions.end(context, [found(number) for number in range(partitions)], NOW)
        return sessions, session_id

    def begin(
        self, sessions: FetchSessions, epoch: int, *, now: int = NOW, settles: bool = True, **fields
    ) -> list[int]:
        """Begin a fetch, and return the partitions that it reads; with `settles`, none of them has news."""
        context = sessions.begin(
            session_id=7, epoch=epoch, now_ms=now, uses_topic_ids=False,
            **{"asked": (), "forgotten": ()} | fields,
        )  # fmt: skip
        read = [part for part, _ in context.active_pairs()]
        for part in read if settles else ():
            context.session.settle(part.key)
        return [part.partition for part in read]

    def test_partitions_without_news_are_not_read_until_they_change(self) -> None:
        sessions, session_id = self.session()
        assert self.begin(sessions, 1, settles=False) == [0, 1, 2]
        assert self.begin(sessions, 2) == [0, 1, 2]
        assert self.begin(sessions, 3) == []
        assert list(sessions.changed(TopicPartition("t", 1))) == [session_id]
        assert self.begin(sessions, 4) == [1]
        assert self.begin(sessions, 5) == []

    def test_partitions_that_a_request_names_are_read(self) -> None:
        sessions, _ = self.session()
        self.begin(sessions, 1)
        assert self.begin(sessions, 2, asked=[asked(2, offset=5), asked(3)]) == [2, 3]
        assert list(sessions.changed(TopicPartition("t", 3))) == [7]

    def test_changes_of_forgotten_partitions_are_ignored(self) -> None:
        sessions, _ = self.session()
        assert self.begin(sessions, 1, forgotten=[("t", 1)]) == [0, 2]
        assert list(sessions.changed(TopicPartition("t", 1))) == []
        assert self.begin(sessions, 2) == []

    def test_all_partitions_are_read_after_some_time(self) -> None:
        sessions, _ = self.session()
        self.begin(sessions, 1)
        assert self.begin(sessions, 2, now=NOW + RECHECK_MS - 1) == []
        assert self.begin(sessions, 3, now=NOW + RECHECK_MS) == [0, 1, 2]
        assert self.begin(sessions, 4, now=NOW + RECHECK_MS + 1) == []

    def test_active_partitions_that_returned_records_are_read_last(self) -> None:
        sessions, _ = self.session()
        context = sessions.begin(session_id=7, epoch=1, asked=(), forgotten=(), uses_topic_ids=False, now_ms=NOW)
        sessions.end(context, [found(0, size=10), found(1), found(2)], NOW)
        assert self.begin(sessions, 2) == [1, 2, 0]

    def test_changes_of_a_topic_whose_id_gets_a_name_are_tracked(self) -> None:
        sessions, topic_id = FetchSessions(10, lambda: 7, tracks_changes=True), uuid.uuid4()
        nameless = PartitionFetch(topic=None, topic_id=topic_id, partition=0, fetch_offset=0, max_bytes=10)
        context = sessions.begin(
            session_id=0, epoch=FULL, asked=[nameless], forgotten=(), uses_topic_ids=True, now_ms=NOW
        )
        sessions.end(context, [found(0)], NOW)
        assert list(sessions.changed(TopicPartition("t", 0))) == []
        sessions.begin(
            session_id=7, epoch=1, asked=[replace(nameless, topic="t")], forgotten=(), uses_topic_ids=True, now_ms=NOW
        )
        assert list(sessions.changed(TopicPartition("t", 0))) == [7]

    def test_changes_of_a_recreated_topic_are_tracked_while_the_former_one_is_forgotten(self) -> None:
        sessions = FetchSessions(10, lambda: 7, tracks_changes=True)
        former, present = (replace(asked(0), topic_id=uuid.uuid4(), log_start_offset=0) for _ in range(2))
        context = sessions.begin(
            session_id=0, epoch=FULL, asked=[former], forgotten=(), uses_topic_ids=True, now_ms=NOW
        )
        sessions.end(context, [found(0)], NOW)
        context = sessions.begin(
            session_id=7, epoch=1, asked=[present], forgotten=[former.key], uses_topic_ids=True, now_ms=NOW
        )
        assert context.session
        assert context.session.keys == {present.name: present.key}
        assert list(sessions.changed(TopicPartition("t", 0))) == [7]
        assert list(context.session.active) == [present.key]

    @pytest.mark.parametrize("epoch", [FULL, LAST])
    def test_changes_are_not_tracked_for_an_ended_session(self, epoch: int) -> None:
        sessions, session_id = self.session()
        sessions.begin(session_id=session_id, epoch=epoch, asked=(), forgotten=(), uses_topic_ids=False, now_ms=NOW)
        assert [list(sessions.changed(TopicPartition("t", number))) for number in range(3)] == [[], [], []]

    def test_changes_are_not_tracked_for_a_session_that_became_too_large(self) -> None:
        sessions = FetchSessions(10, itertools.count(1).__next__, 3, tracks_changes=True)
        for number in range(2):
            context = sessions.begin(
                session_id=0, epoch=FULL, asked=[asked(number)], forgotten=(), uses_topic_ids=False, now_ms=NOW
            )
            sessions.end(context, [found(number)], NOW)
        with pytest.raises(FetchSessionIdNotFound):
            sessions.begin(
                session_id=1, epoch=1, asked=[asked(2), asked(3)], forgotten=(), uses_topic_ids=False, now_ms=NOW
            )
        assert [list(sessions.changed(TopicPartition("t", number))) for number in range(4)] == [[], [2], [], []]
