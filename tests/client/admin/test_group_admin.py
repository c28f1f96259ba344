"""Administration of groups by the admin client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from sparklog.base.errors import (
    CoordinatorLoadInProgress,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    NonEmptyGroup,
    UnknownMemberId,
)
from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Consumer, OffsetAndMetadata, Producer
from sparklog.testing import RunningBroker, start_broker
from support.patience import PATIENCE_MS, PATIENCE_S

NewConsumer = Callable[..., Consumer]
ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture(scope="module")
def sparklog_broker() -> Iterator[RunningBroker]:
    with start_broker(group_initial_rebalance_delay_ms=0, offsets_topic_num_partitions=3) as broker:
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.create_topic("t", partitions=2)
        with Producer(bootstrap_servers=broker.bootstrap, linger_ms=0) as producer:
            for number in range(10):
                producer.send("t", b"%d" % number, partition=0, timestamp_ms=1_000 + number).result(PATIENCE_S)
        yield broker


@pytest.fixture
def member(new_consumer: NewConsumer) -> Consumer:
    """The only member of group "read", with both partitions read to their ends."""
    consumer = new_consumer(group_id="read", client_id="reader", enable_auto_commit=False)
    consumer.subscribe(["t"])
    seen = 0
    while seen < 10:
        seen += len(consumer.poll(PATIENCE_MS))
    assert seen == 10
    return consumer


@pytest.mark.slow
def test_groups_are_listed_once_all_that_was_committed_has_been_read(
    admin: Admin, monkeypatch: pytest.MonkeyPatch, sparklog_broker: RunningBroker
) -> None:
    coordinator = sparklog_broker.node.broker.services.groups
    real, refusals = coordinator.list, iter([CoordinatorLoadInProgress("not yet")] * 2)

    async def loading(request: Any) -> Any:
        error = next(refusals, None)
        return replace(await real(request), error=error)

    monkeypatch.setattr(coordinator, "list", loading)
    admin.alter_group_offsets("loaded", {ZERO: 1})
    assert "loaded" in [group.group_id for group in admin.list_groups()]
    admin.delete_groups(["loaded"])


def test_a_group_is_listed_and_described_with_what_its_members_read(admin: Admin, member: Consumer) -> None:
    [listing] = [group for group in admin.list_groups() if group.group_id == "read"]
    assert (listing.protocol_type, listing.state, listing.type) == ("consumer", "Stable", "classic")
    assert listing not in admin.list_groups(states=["Empty"])
    assert listing in admin.list_groups(states=["stable"], types=["classic"])

    [group] = admin.describe_groups(["read"])
    assert (group.state, group.protocol, group.coordinator) == ("Stable", "range", 0)
    [found] = group.members
    assert (found.client_id, found.client_host, found.topics) == ("reader", "/127.0.0.1", ("t",))
    assert found.assignment == (ZERO, ONE)

    member.close()
    [group] = admin.describe_groups(["read"])
    assert (group.state, group.members) == ("Empty", ())
    with pytest.raises(GroupIdNotFound):
        admin.describe_groups(["nobody"])


def test_offsets_show_how_far_behind_a_group_is(admin: Admin) -> None:
    admin.alter_group_offsets("lagging", {ZERO: OffsetAndMetadata(7, "by hand"), ONE: 0})

    offsets = admin.list_group_offsets("lagging")

    behind, done = offsets[ZERO], offsets[ONE]
    assert (behind.offset, behind.metadata, behind.high_watermark, behind.lag) == (7, "by hand", 10, 3)
    assert behind.behind_since_ms == 1_007
    assert behind.lag_ms(5_000) == 3_993
    assert (done.lag, done.behind_since_ms, done.lag_ms(5_000)) == (0, None, 0)
    assert list(admin.list_group_offsets("lagging", [ONE])) == [ONE]
    [unknown] = admin.list_group_offsets("unknown", [ZERO]).values()
    assert (unknown.offset, unknown.lag) == (-1, None)


def test_offsets_of_a_group_without_members_are_set_and_forgotten(admin: Admin, new_consumer: NewConsumer) -> None:
    admin.alter_group_offsets("moved", {ZERO: 8, ONE: 0})
    consumer = new_consumer(group_id="moved")
    consumer.assign([ZERO])
    assert [record.offset for record in consumer.poll(PATIENCE_MS)] == [8, 9]
    consumer.close()

    admin.delete_group_offsets("moved", [ONE])
    assert list(admin.list_group_offsets("moved")) == [ZERO]

    admin.delete_groups(["moved"])
    assert admin.list_group_offsets("moved") == {}
    with pytest.raises(GroupIdNotFound):
        admin.delete_groups(["moved"])


def test_a_group_with_members_is_left_alone(admin: Admin, member: Consumer) -> None:
    member.commit()

    with pytest.raises(UnknownMemberId):
        admin.alter_group_offsets("read", {ZERO: 0})
    with pytest.raises(GroupSubscribedToTopic):
        admin.delete_group_offsets("read", [ZERO])
    with pytest.raises(NonEmptyGroup):
        admin.delete_groups(["read"])
    assert admin.list_group_offsets("read")[ZERO].offset == 10


def test_the_offsets_of_a_deleted_topic_go_with_it(admin: Admin) -> None:
    admin.create_topic("short-lived")
    gone = TopicPartition("short-lived", 0)
    admin.alter_group_offsets("orphan", {gone: 0, ZERO: 3})
    admin.delete_topics(["short-lived"])

    assert list(admin.list_group_offsets("orphan")) == [ZERO]
    offsets = admin.list_group_offsets("orphan", [gone, ZERO])
    assert (offsets[gone].offset, offsets[gone].high_watermark, offsets[gone].lag) == (-1, -1, None)
    assert (offsets[ZERO].offset, offsets[ZERO].lag) == (3, 7)
