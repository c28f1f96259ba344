"""Errors on gRPC: one partition's or topic's in the response, a whole request's as a status."""

from __future__ import annotations

from typing import Any, NoReturn

import grpc

from sparklog.base.errors import (
    BrokerNotAvailable,
    DuplicateResource,
    FencedLeaderEpoch,
    InvalidUpdateVersion,
    KafkaError,
    RecordListTooLarge,
    ResourceNotFound,
    ThrottlingQuotaExceeded,
    UnknownLeaderEpoch,
    UnknownServerError,
)
from sparklog.v1 import records_pb2

ERROR_CODE = "error-code"
STOPPING = "the broker is stopping: try another, or the same later"


def error_message(error: KafkaError | None) -> records_pb2.Error | None:
    """What a result carries; None where nothing went wrong."""
    if error is None:
        return None
    return records_pb2.Error(code=error.code, name=error.name, message=str(error), retriable=error.retriable)


async def refuse(context: Any, error: KafkaError) -> NoReturn:
    """End the call with a status.

    UNAVAILABLE where the broker is stopping, which clients try again; INTERNAL where the fault is its own;
    RESOURCE_EXHAUSTED for a request that is too large, or that comes while too much is in work; INVALID_ARGUMENT for
    one that makes no sense; of upkeep, NOT_FOUND and ALREADY_EXISTS for a lease that is gone or held by somebody else,
    FAILED_PRECONDITION where a plan is out of date. The trailing metadata `error-code` says which error it is.
    """
    match error:
        case BrokerNotAvailable():
            status = grpc.StatusCode.UNAVAILABLE
        case RecordListTooLarge() | ThrottlingQuotaExceeded():
            status = grpc.StatusCode.RESOURCE_EXHAUSTED
        case UnknownServerError():
            status = grpc.StatusCode.INTERNAL
        case ResourceNotFound():
            status = grpc.StatusCode.NOT_FOUND
        case DuplicateResource():
            status = grpc.StatusCode.ALREADY_EXISTS
        case InvalidUpdateVersion() | FencedLeaderEpoch() | UnknownLeaderEpoch():
            status = grpc.StatusCode.FAILED_PRECONDITION
        case _:
            status = grpc.StatusCode.INVALID_ARGUMENT
    await context.abort(status, f"{error.name}: {error}", trailing_metadata=((ERROR_CODE, str(error.code)),))
    raise AssertionError("abort() does not return")
