"""Expelled consumers are no members from that moment on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sparklog.base.clock import SystemClock
from sparklog.base.errors import IllegalGeneration, UnknownMemberId
from sparklog.client.config import ConsumerConfig
from sparklog.client.consumer.membership import Membership
from sparklog.v1 import groups_pb2


class Answers:
    """A coordinator that accepts a member, and answers its heartbeats with an error."""

    def __init__(self, error: int) -> None:
        self.cluster = SimpleNamespace(clock=SystemClock(), backoff=None)
        self._error = error

    async def ask(self, method: str, request: Any, limit_ms: int) -> Any:
        match method:
            case "JoinGroup":
                return groups_pb2.JoinGroupResponse(member_id="m", generation=3)
            case "SyncGroup":
                return groups_pb2.SyncGroupResponse(assignment=b"")
        return groups_pb2.HeartbeatResponse(error={"code": self._error})


@pytest.mark.parametrize("error", [UnknownMemberId, IllegalGeneration])
async def test_a_lost_member_is_none_before_it_joins_again(error: type[UnknownMemberId | IllegalGeneration]) -> None:
    config = ConsumerConfig(bootstrap_servers=("b:1",), group_id="g", heartbeat_interval_ms=1)
    coordinator: Any = Answers(error.code)
    membership = Membership(coordinator, config, lambda: 0)
    assert not membership.is_member
    await membership.join(lambda: [("range", b"")])
    assert membership.is_member
    await membership.sync("range", {})
    with pytest.raises(error):
        await membership.until_due()
    assert not membership.is_member
    membership.reset()
    assert (membership.is_member, membership.member_id) == (False, "" if error is UnknownMemberId else "m")
