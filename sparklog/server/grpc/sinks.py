"""The service `Sinks`."""

from __future__ import annotations

from sparklog.broker.apis import sinks
from sparklog.broker.node import Broker
from sparklog.server.grpc.service import by_names
from sparklog.transaction.sink_requests import AbortBatch, CommitBatch, DescribeSinks, JoinBatch, ListSinks, ResetSink
from sparklog.v1 import sinks_pb2


class SinksServicer:
    """Translation of the service's messages for one broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    JoinBatch = by_names(sinks.JOIN_BATCH, JoinBatch, sinks_pb2.JoinBatchResponse)
    CommitBatch = by_names(sinks.COMMIT_BATCH, CommitBatch, sinks_pb2.CommitBatchResponse)
    AbortBatch = by_names(sinks.ABORT_BATCH, AbortBatch, sinks_pb2.AbortBatchResponse)
    ListSinks = by_names(sinks.LIST_SINKS, ListSinks, sinks_pb2.ListSinksResponse)
    DescribeSinks = by_names(sinks.DESCRIBE_SINKS, DescribeSinks, sinks_pb2.DescribeSinksResponse)
    ResetSink = by_names(sinks.RESET_SINK, ResetSink, sinks_pb2.ResetSinkResponse)
