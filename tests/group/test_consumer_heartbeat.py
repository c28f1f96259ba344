"""Consumer groups (KIP-848): joining, handing partitions over, leaving, fencing, expressions, topics that change."""

from __future__ import annotations

import pytest

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupMaxSizeReached,
    InvalidRegularExpression,
    InvalidRequest,
    StaleMemberEpoch,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)
from sparklog.base.ids import TopicPartition
from sparklog.group.consumer_heartbeat import AssignTimer, RevocationTimer, SessionTimer
from sparklog.group.consumer_member import MemberState
from sparklog.group.requests import OffsetCommit, OffsetFetch, OffsetToCommit
from support.groups.consumer_group import Client, FakeTopics, World, partitions, settle


@pytest.fixture
def world():
    return World(FakeTopics(orders=4))


def commit(client, *numbers, epoch=None):
    return OffsetCommit(
        group_id="readers",
        member_id=client.member_id,
        generation_or_epoch=client.epoch if epoch is None else epoch,
        offsets=[OffsetToCommit(partition=TopicPartition("orders", number), offset=1) for number in numbers],
    )


def test_the_first_member_gets_everything_in_its_first_answer(world):
    a = Client(world, "a", "orders")
    response = a.join()
    assert (response.member_epoch, response.heartbeat_interval_ms) == (2, 5_000)
    assert a.owned == partitions("orders", 0, 1, 2, 3)
    assert world.group.state_name == "Stable"
    assert world.timers == {SessionTimer("readers", "a"): 45_000}


def test_a_heartbeat_that_changes_nothing_writes_nothing_and_sends_no_assignment(world):
    a = Client(world, "a", "orders")
    a.join()
    written = len(world.log)
    assert a.beat().assignment is None
    assert a.beat(owned_partitions=None).assignment is None
    assert len(world.log) == written


def test_a_partition_is_given_only_after_its_owner_has_let_it_go(world):
    a, b = Client(world, "a", "orders"), Client(world, "b", "orders")
    a.join()
    assert b.join().assignment == []
    assert world.group.members["b"].state is MemberState.UNRELEASED_PARTITIONS
    assert world.group.state_name == "Reconciling"
    kept = a.beat().assignment
    assert (a.epoch, len(kept)) == (2, 2)
    assert world.timers[RevocationTimer("readers", "a")] == 60_000
    b.beat()
    assert b.owned == set()
    a.beat()
    assert a.epoch == 3
    assert RevocationTimer("readers", "a") not in world.timers
    b.beat()
    assert a.owned | b.owned == partitions("orders", 0, 1, 2, 3)
    assert not a.owned & b.owned
    assert world.group.state_name == "Stable"


def test_a_member_that_reports_no_partitions_has_given_up_none(world):
    a, b = Client(world, "a", "orders"), Client(world, "b", "orders")
    a.join()
    b.join()
    a.beat(owned_partitions=None)
    a.beat(owned_partitions=None)
    assert a.epoch == 2


def test_partitions_of_a_leaving_member_are_assigned_to_the_others(world):
    a, b = Client(world, "a", "orders"), Client(world, "b", "orders")
    a.join()
    b.join()
    settle(a, b)
    assert b.leave().member_epoch == -1
    assert world.group.state_name == "Assigning"
    a.beat()
    assert a.owned == partitions("orders", 0, 1, 2, 3)
    assert SessionTimer("readers", "b") not in world.timers


def test_the_last_member_leaves_an_empty_group(world):
    a = Client(world, "a", "orders")
    a.join()
    a.leave()
    assert (world.group.state_name, world.group.metadata_hash, world.group.owners) == ("Empty", 0, {})


def test_a_removed_member_is_unknown_and_can_join_again(world):
    a = Client(world, "a", "orders")
    a.join()
    world.put_out("a")
    with pytest.raises(UnknownMemberId):
        a.beat()
    a.join()
    assert a.owned == partitions("orders", 0, 1, 2, 3)


def test_an_epoch_that_is_not_the_members_is_fenced(world):
    a = Client(world, "a", "orders")
    a.join()
    for epoch in (1, 3):
        with pytest.raises(FencedMemberEpoch):
            a.beat(member_epoch=epoch)


def test_the_epoch_before_is_taken_from_a_member_that_lost_the_answer(world):
    a, b = Client(world, "a", "orders"), Client(world, "b", "orders")
    a.join()
    b.join()
    settle(a, b)
    b.leave()
    before = a.epoch
    world.ask(a.request())  # the answer never arrives
    with pytest.raises(FencedMemberEpoch):
        a.beat(member_epoch=before, owned_partitions=None)
    assert a.beat(member_epoch=before, **a.described).assignment is not None
    assert a.owned == partitions("orders", 0, 1, 2, 3)


def test_joining_twice_gives_the_same(world):
    a = Client(world, "a", "orders")
    a.join()
    written, epoch = len(world.log), a.epoch
    a.join()
    assert (len(world.log), a.epoch) == (written, epoch)
    assert a.owned == partitions("orders", 0, 1, 2, 3)


def test_a_new_subscription_takes_away_what_is_no_longer_in_it():
    world = World(FakeTopics(orders=1, payments=1))
    a = Client(world, "a", "orders", "payments")
    a.join()
    a.beat(subscribed_topic_names=["payments"])
    assert a.owned == partitions("payments", 0)
    settle(a)
    assert world.group.members["a"].is_reconciled_to(world.group.epoch)


@pytest.mark.parametrize(
    "fields",
    [
        {"rebalance_timeout_ms": -1},
        {"owned_partitions": [TopicPartition("orders", 0)]},
        {"subscribed_topic_names": None},
        {"group_id": ""},
        {"group_instance_id": ""},
        {"member_epoch": 3, "member_id": ""},
        {"member_epoch": -2},
        {"member_epoch": -3},
    ],
)
def test_invalid_requests_are_refused(world, fields):
    a = Client(world, "a", "orders")
    with pytest.raises(InvalidRequest):
        world.ask(a.request(**{**a.described, **fields}))


def test_an_assignor_must_be_one_of_the_configured_ones(world):
    with pytest.raises(UnsupportedAssignor):
        Client(world, "a", "orders", server_assignor="lucky").join()


def test_the_assignor_that_most_members_want_is_used(world):
    a, b, c = (Client(world, name, "orders", server_assignor="range") for name in "abc")
    a.join()
    b.join()
    c.join()
    settle(a, b, c)
    assert [sorted(p for _, p in client.owned) for client in (a, b, c)] == [[0, 1], [2], [3]]


def test_a_group_has_a_largest_size():
    world = World(FakeTopics(orders=1), BrokerConfig(group_consumer_max_size=1))
    Client(world, "a", "orders").join()
    with pytest.raises(GroupMaxSizeReached):
        Client(world, "b", "orders").join()


@pytest.mark.slow
def test_the_names_that_members_subscribe_to_have_a_largest_size():
    topics = BrokerConfig().topic_defaults
    names = [f"{number:0200}" for number in range(topics.max_message_bytes // 200)]
    world = World(FakeTopics(orders=1))
    members = [Client(world, f"m{number}", *names) for number in range(16)]
    for member in members:
        member.join()
    with pytest.raises(GroupMaxSizeReached, match="bytes of topic names"):
        Client(world, "one more", *names).join()
    with pytest.raises(GroupMaxSizeReached):
        world.ask(members[0].request(subscribed_topic_names=[*names, "x" * 5_000]))
    assert len(world.group.members) == 16
    assert world.group.names_bytes == world.reloaded().names_bytes
    world.ask(members[0].request(subscribed_topic_names=["orders"]))
    Client(world, "one more", *names[1:]).join()
    for member_id in list(world.group.members):
        world.put_out(member_id)
    assert world.group.names_bytes == 0


def test_members_that_come_together_are_assigned_together():
    world = World(FakeTopics(orders=4), BrokerConfig(group_consumer_assignment_interval_ms=1_000))
    clients = [Client(world, name, "orders") for name in "abcd"]
    for client in clients:
        client.join()
    assert [len(client.owned) for client in clients] == [4, 0, 0, 0]
    assert (world.group.state_name, world.group.epoch, world.group.target_epoch) == ("Assigning", 5, 2)
    assert world.timers[AssignTimer("readers")] == 1_000
    world.now_ms += 1_000
    world.fire(AssignTimer("readers"))
    assert (world.group.epoch, world.group.target_epoch) == (5, 5)
    settle(*clients)
    assert [len(client.owned) for client in clients] == [1, 1, 1, 1]


# Static members


def test_a_static_member_finds_its_partitions_when_it_comes_back(world):
    a, b = (Client(world, name, "orders", group_instance_id=f"i-{name}") for name in "ab")
    a.join()
    b.join()
    settle(a, b)
    had, epoch = set(b.owned), world.group.epoch
    assert b.leave(-2).member_epoch == -2
    again = Client(world, "b2", "orders", group_instance_id="i-b")
    again.join()
    assert (again.owned, world.group.epoch) == (had, epoch)
    a.beat()
    assert world.group.members.keys() == {"a", "b2"}
    with pytest.raises(FencedInstanceId):
        b.beat()


def test_an_instance_id_in_use_is_not_given_to_another(world):
    Client(world, "a", "orders", group_instance_id="i").join()
    with pytest.raises(UnreleasedInstanceId):
        Client(world, "b", "orders", group_instance_id="i").join()


def test_a_static_member_that_never_comes_back_is_put_out_when_its_session_ends(world):
    a, b = (Client(world, name, "orders", group_instance_id=f"i-{name}") for name in "ab")
    a.join()
    b.join()
    settle(a, b)
    b.leave(-2)
    assert SessionTimer("readers", "b") in world.timers
    world.put_out("b")
    a.beat()
    assert a.owned == partitions("orders", 0, 1, 2, 3)
    with pytest.raises(UnknownMemberId):
        b.beat()


def test_a_static_member_may_ask_to_join_again_when_the_answer_was_lost(world):
    a = Client(world, "a", "orders", group_instance_id="i")
    a.join()
    assert len(a.join().assignment) == 4


# Expressions


def test_an_expression_follows_topics_that_come_and_go():
    world = World(FakeTopics(orders=1, other=1))
    a = Client(world, "a", subscribed_topic_regex="ord.*")
    a.join()
    assert a.owned == partitions("orders", 0)
    world.topics.put("ordinals", 2)
    a.beat()
    assert a.owned == partitions("orders", 0) | partitions("ordinals", 0, 1)
    world.topics.remove("orders")
    settle(a)
    assert a.owned == partitions("ordinals", 0, 1)


def test_an_expression_goes_with_its_last_member():
    world = World(FakeTopics(orders=1))
    a, b = (Client(world, name, subscribed_topic_regex="ord.*") for name in "ab")
    a.join()
    b.join()
    a.leave()
    assert world.group.regexes.keys() == {"ord.*"}
    b.beat(subscribed_topic_regex="o+")
    assert world.group.regexes.keys() == {"o+"}
    b.leave()
    assert world.group.regexes == {}


def test_a_bad_expression_is_refused_and_leaves_no_member(world):
    with pytest.raises(InvalidRegularExpression):
        Client(world, "a", subscribed_topic_regex="(").join()
    assert world.group.is_empty


def test_names_and_an_expression_add_up():
    world = World(FakeTopics(orders=1, other=1, third=1))
    a = Client(world, "a", "other", subscribed_topic_regex="ord.*")
    a.join()
    assert a.owned == partitions("orders", 0) | partitions("other", 0)


# Topics


def test_a_topic_that_grows_is_assigned_anew(world):
    a = Client(world, "a", "orders")
    a.join()
    world.topics.put("orders", 6)
    a.beat()
    assert a.owned == partitions("orders", 0, 1, 2, 3, 4, 5)


def test_a_topic_that_is_created_later_is_assigned_then():
    world = World(FakeTopics())
    a = Client(world, "a", "orders")
    assert a.join().assignment == []
    epoch = a.epoch
    world.topics.put("unrelated", 1)
    a.beat()
    assert a.epoch == epoch
    world.topics.put("orders", 2)
    a.beat()
    assert (a.owned, a.epoch) == (partitions("orders", 0, 1), epoch + 1)


def test_a_topic_that_is_made_again_is_another_topic(world):
    a = Client(world, "a", "orders")
    a.join()
    world.topics.remove("orders")
    a.owned = set()
    a.beat()
    assert world.group.owners == {}
    world.topics.put("orders", 1, generation=1)
    settle(a)
    assert a.owned == partitions("orders", 0)


# Offsets


def test_offsets_are_taken_from_members_with_their_epoch(world):
    a = Client(world, "a", "orders")
    a.join()
    world.group.check_commit(commit(a, 0))
    with pytest.raises(StaleMemberEpoch):
        world.group.check_commit(commit(a, 0, epoch=a.epoch + 1))
    with pytest.raises(UnknownMemberId):
        world.group.check_commit(commit(Client(world, "nobody"), 0))
    world.group.check_fetch(OffsetFetch(group_id="readers", member_id="a", member_epoch=a.epoch))
    world.group.check_fetch(OffsetFetch(group_id="readers"))
    with pytest.raises(StaleMemberEpoch):
        world.group.check_fetch(OffsetFetch(group_id="readers", member_id="a", member_epoch=a.epoch + 1))


def test_an_older_epoch_may_commit_what_the_member_has_had_since_then(world):
    a, b = Client(world, "a", "orders"), Client(world, "b", "orders")
    a.join()
    first = a.epoch
    b.join()
    settle(a, b)
    kept = [p for _, p in a.owned]
    world.group.check_commit(commit(a, *kept, epoch=first))
    with pytest.raises(StaleMemberEpoch):
        world.group.check_commit(commit(a, *(p for _, p in b.owned), epoch=first))
    with pytest.raises(StaleMemberEpoch):
        world.group.check_commit(commit(b, *(p for _, p in b.owned), epoch=first))


def test_only_members_commit_unless_the_group_is_empty(world):
    a, nobody = Client(world, "a", "orders"), Client(world, "")
    a.join()
    with pytest.raises(UnknownMemberId):
        world.group.check_commit(commit(nobody, 0, epoch=-1))
    a.leave()
    world.group.check_commit(commit(nobody, 0, epoch=-1))


def test_topics_of_subscriptions_are_in_use(world):
    Client(world, "a", "payments", subscribed_topic_regex="ord.*").join()
    assert [world.group.is_subscribed_to(name) for name in ("payments", "orders", "other")] == [True, True, False]
