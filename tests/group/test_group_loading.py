"""The state that a coordinator loads from the records of a classic group."""

from __future__ import annotations

from sparklog.base.consumer_protocol import Subscription, write_subscription
from sparklog.group.classic_group import ClassicGroup
from sparklog.offsets_topic.records import GroupValue, MemberMetadata


def generation(number: int, *, topic: str, protocol: str = "range", session_ms: int = 10_000) -> GroupValue:
    member = MemberMetadata(
        member_id="m",
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=60_000,
        session_timeout_ms=session_ms,
        subscription=write_subscription(Subscription(topics=[topic])),
        assignment=b"",
    )
    return GroupValue(protocol_type="consumer", generation=number, protocol=protocol, leader="m", members=[member])


def test_a_loaded_member_has_its_last_description() -> None:
    group = ClassicGroup(group_id="g")

    group.restore(generation(1, topic="orders"))
    group.restore(generation(2, topic="payments", protocol="roundrobin", session_ms=30_000))

    assert group.is_subscribed_to("payments")
    assert not group.is_subscribed_to("orders")
    assert group.choose_protocol() == "roundrobin"
    assert group.members["m"].session_timeout_ms == 30_000
