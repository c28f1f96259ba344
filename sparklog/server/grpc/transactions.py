"""The service `Transactions`. Producers over gRPC use protocol 2 of transactions (KIP-890)."""

from __future__ import annotations

from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import (
    describe_producers,
    find_coordinator,
    transactions,
    txn_offset_commit,
    write_txn_markers,
)
from sparklog.broker.node import Broker
from sparklog.coordinator.transaction_messages import PROTOCOL_2, TransactionMarker, WriteTxnMarkers
from sparklog.group.requests import TxnOffsetCommit
from sparklog.server.grpc.call import GrpcCall
from sparklog.server.grpc.errors import error_message
from sparklog.server.grpc.service import servicer_method
from sparklog.transaction.requests import TV2, DescribeTransactions, EndTxn, ListTransactions
from sparklog.v1 import groups_pb2, transactions_pb2


class TransactionsServicer:
    """Translation of the service's messages for one broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    FindCoordinator = servicer_method(
        find_coordinator.API,
        find_coordinator.FindCoordinatorRequest,
        transactions_pb2.FindTransactionCoordinatorResponse,
        request_fields=lambda request: {
            "keys": list(request.transactional_ids),
            "key_type": find_coordinator.TRANSACTION,
        },
        response_fields=lambda response: {"coordinators": [_coordinator(found) for found in response.coordinators]},
    )
    EndTxn = servicer_method(
        transactions.END, EndTxn, transactions_pb2.EndTxnResponse, request_fields=lambda _: {"transaction_version": TV2}
    )
    TxnOffsetCommit = servicer_method(
        txn_offset_commit.API,
        TxnOffsetCommit,
        groups_pb2.OffsetCommitResponse,
        request_fields=lambda _: {"protocol": PROTOCOL_2},
    )
    ListTransactions = servicer_method(transactions.LIST, ListTransactions, transactions_pb2.ListTransactionsResponse)
    DescribeTransactions = servicer_method(
        transactions.DESCRIBE, DescribeTransactions, transactions_pb2.DescribeTransactionsResponse
    )
    DescribeProducers = servicer_method(
        describe_producers.API,
        describe_producers.DescribeProducersRequest,
        transactions_pb2.DescribeProducersResponse,
    )

    async def AbortTransaction(
        self, request: transactions_pb2.AbortTransactionRequest, call: GrpcCall
    ) -> transactions_pb2.AbortTransactionResponse:
        name = TopicPartition(request.topic, request.partition)
        marker = TransactionMarker(
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            is_commit=False,
            coordinator_epoch=request.coordinator_epoch,
            partitions=[name],
        )
        answer = await call.serve(write_txn_markers.API, WriteTxnMarkers(markers=[marker]))
        return transactions_pb2.AbortTransactionResponse(error=error_message(answer.markers[0].errors[name]))


def _coordinator(found: find_coordinator.FoundCoordinator) -> transactions_pb2.TransactionCoordinatorFound:
    return transactions_pb2.TransactionCoordinatorFound(
        transactional_id=found.key,
        error=error_message(found.error),
        broker_id=found.broker.broker_id if found.broker else -1,
        grpc_address=found.broker.grpc_address if found.broker else "",
    )
