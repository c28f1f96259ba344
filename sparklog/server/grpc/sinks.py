"""The service `Sinks`."""

from __future__ import annotations

from sparklog.broker.apis import sinks
from sparklog.broker.node import Broker
from sparklog.server.grpc.service import servicer_method
from sparklog.transaction.sink_requests import AbortBatch, CommitBatch, DescribeSinks, JoinBatch, ListSinks, ResetSink
from sparklog.v1 import sinks_pb2


class SinksServicer:
    """Translation of the service's messages for one broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    JoinBatch = servicer_method(sinks.JOIN_BATCH, JoinBatch, sinks_pb2.JoinBatchResponse)
    CommitBatch = servicer_method(sinks.COMMIT_BATCH, CommitBatch, sinks_pb2.CommitBatchResponse)
    AbortBatch = servicer_method(sinks.ABORT_BATCH, AbortBatch, sinks_pb2.AbortBatchResponse)
    ListSinks = servicer_method(sinks.LIST_SINKS, ListSinks, sinks_pb2.ListSinksResponse)
    DescribeSinks = servicer_method(sinks.DESCRIBE_SINKS, DescribeSinks, sinks_pb2.DescribeSinksResponse)
    ResetSink = servicer_method(sinks.RESET_SINK, ResetSink, sinks_pb2.ResetSinkResponse)
