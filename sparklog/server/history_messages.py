"""AppendHistory, as it travels between brokers (`replication_calls.py`)."""

from __future__ import annotations

from sparklog.cluster.history import AppendHistory, HistoryAppended
from sparklog.server.peer_values import parse, serialize
from sparklog.v1 import replication_pb2


def encode_append(request: AppendHistory) -> bytes:
    return serialize(replication_pb2.AppendHistoryRequest(records=request.records, timeout_ms=request.timeout_ms))


def decode_append(data: bytes) -> AppendHistory:
    message = parse(replication_pb2.AppendHistoryRequest, data)
    return AppendHistory(records=message.records, timeout_ms=message.timeout_ms)


def encode_appended(response: HistoryAppended) -> bytes:
    return serialize(replication_pb2.AppendHistoryResponse(base_offset=response.base_offset))


def decode_appended(data: bytes) -> HistoryAppended:
    return HistoryAppended(base_offset=parse(replication_pb2.AppendHistoryResponse, data).base_offset)
