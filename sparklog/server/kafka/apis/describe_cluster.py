"""DescribeCluster in Kafka's protocol.

From version 1 on, a client may request the controllers' endpoints (KIP-919). As in Apache Kafka, a broker answers
MISMATCHED_ENDPOINT_TYPE, and UNSUPPORTED_ENDPOINT_TYPE for an unknown type. No broker is ever fenced.
"""

from __future__ import annotations

from sparklog.base.acls import CLUSTER_NAME, AclResourceType
from sparklog.base.errors import KafkaError, MismatchedEndpointType, UnsupportedEndpointType
from sparklog.broker.apis import describe_cluster
from sparklog.broker.apis.describe_cluster import DescribeClusterRequest
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.responses import broker_address, with_listener
from sparklog.server.kafka.translation import KafkaCall, Translation

BROKERS, CONTROLLERS = 1, 2


async def serve(call: KafkaCall, request: Message) -> Message:
    """Return the brokers that have the client's listener. Raises MismatchedEndpointType or UnsupportedEndpointType."""
    endpoint_type = getattr(request, "endpoint_type", BROKERS)
    if endpoint_type == CONTROLLERS:
        raise MismatchedEndpointType("this is a broker's listener, not a controller's")
    if endpoint_type != BROKERS:
        raise UnsupportedEndpointType(f"there is no endpoint type {endpoint_type}")
    response = await call.serve(describe_cluster.API, DescribeClusterRequest())
    ask_operations = request.include_cluster_authorized_operations
    return call.answer(
        throttle_time=0,
        error_code=None,
        endpoint_type=BROKERS,
        cluster_id=response.cluster_id,
        controller_id=response.controller_id,
        brokers=[
            {
                "broker_id": broker.broker_id,
                **broker_address(broker, call.session.listener),
                "rack": broker.rack or None,
                "is_fenced": False,
            }
            for broker in with_listener(response.brokers, call.session.listener)
        ],
        cluster_authorized_operations=call.operations(AclResourceType.CLUSTER, CLUSTER_NAME, is_asked=ask_operations),
    )


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    """Return the answer with the error and without brokers."""
    return call.answer(throttle_time=0, error_code=error, error_message=str(error), cluster_id="", brokers=())


TRANSLATION = Translation(api=describe_cluster.API, serve=serve, refuse=refuse)
