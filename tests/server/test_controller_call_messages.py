"""Calls between brokers and controller are decoded as they were encoded."""

from __future__ import annotations

from typing import Any

import pytest

from sparklog.base.errors import ElectionNotNeeded, InvalidRequest
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from sparklog.broker.apis.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from sparklog.broker.apis.partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from sparklog.server.grpc.replication_calls import CALLS

A, B = TopicPartition("a", 0), TopicPartition("b", 7)
ASKED = [
    (
        AlterPartitionReassignmentsRequest(targets={A: (1, 2), B: None}, may_resize=False, is_for_controller=True),
        AlterPartitionReassignmentsResponse(errors={A: None, B: InvalidRequest("no")}),
    ),
    (
        ElectLeadersRequest(partitions=[A, B], is_unclean=True, is_for_controller=True),
        ElectLeadersResponse(errors={A: None, B: ElectionNotNeeded("no")}, leaders={A: 0}),
    ),
    (
        ElectLeadersRequest(partitions=None, is_for_controller=True),
        ElectLeadersResponse(errors={}),
    ),
    (
        ControlledShutdownRequest(broker_id=3, broker_epoch=1 << 40),
        ControlledShutdownResponse(remaining=[A, B]),
    ),
]


@pytest.mark.parametrize(("request_", "response"), ASKED, ids=[type(request).__name__ for request, _ in ASKED])
def test_requests_and_answers_arrive_whole(request_: Any, response: Any) -> None:
    [call] = [call for call in CALLS if call.request is type(request_)]

    assert call.decode_request(call.encode_request(request_)) == request_
    arrived = call.decode_response(call.encode_response(response))
    if hasattr(response, "errors"):
        assert {name: repr(error) for name, error in arrived.errors.items()} == {
            name: repr(error) for name, error in response.errors.items()
        }
        assert getattr(arrived, "leaders", None) == getattr(response, "leaders", None)
    else:
        assert arrived == response
    with pytest.raises(InvalidRequest):
        call.decode_request(b"\xff")
