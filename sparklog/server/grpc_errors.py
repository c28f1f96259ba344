"""Errors on gRPC: one partition's or topic's in the response, a whole request's as a status."""

from __future__ import annotations

from typing import Any, NoReturn

import grpc

from sparklog.base.errors import BrokerNotAvailable, KafkaError, RecordListTooLarge, UnknownServerError
from sparklog.v1 import records_pb2

STOPPING = "the broker is stopping: try another, or the same later"


def error_message(error: KafkaError | None) -> records_pb2.Error | None:
    """What a result carries; None where nothing went wrong."""
    if error is None:
        return None
    return records_pb2.Error(code=error.code, name=error.name, message=str(error), retriable=error.retriable)


async def refuse(context: Any, error: KafkaError) -> NoReturn:
    """End the call with a status.

    UNAVAILABLE where the broker is stopping, which clients try again; INTERNAL where the fault is its own;
    RESOURCE_EXHAUSTED for a request that is too large, INVALID_ARGUMENT for one that makes no sense.
    """
    match error:
        case BrokerNotAvailable():
            status = grpc.StatusCode.UNAVAILABLE
        case RecordListTooLarge():
            status = grpc.StatusCode.RESOURCE_EXHAUSTED
        case UnknownServerError():
            status = grpc.StatusCode.INTERNAL
        case _:
            status = grpc.StatusCode.INVALID_ARGUMENT
    await context.abort(status, f"{error.name}: {error}")
    raise AssertionError("abort() does not return")
